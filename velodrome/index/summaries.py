"""What is true of many entries at once: histograms, the course over time, kinds of failures."""

from __future__ import annotations

import sqlite3

import numpy as np

from velodrome.index.answer_types import FAILED, Bin, FailureGroup, FieldHistogram, Point
from velodrome.index.columns import Column, Columns
from velodrome.index.conditions import Mask

_MOST_BINS = 200
_MOST_POINTS = 1000
_MOST_GROUPS = 200
_FIRST_NUMBERS = 5
_LATEST_S = 1e11
_MOST_WIDTHS = 2**20  # that a course is divided into at first


def histogram(columns: Columns, field: str, bins: int, allowed: Mask | None) -> FieldHistogram:
    """How the values of a field are distributed, over the range they have in the whole file."""
    column = columns.field(field, "field")
    values = column[~np.isnan(column)]
    chosen = column if allowed is None else column[allowed]
    present = chosen[~np.isnan(chosen)]
    made: tuple[Bin, ...] = ()
    if len(values):
        low, high = float(values.min()), float(values.max())
        if low == high:
            made = (Bin(low, high, len(present)),)
        else:
            counts, edges = np.histogram(present, max(1, min(bins, _MOST_BINS)), (low, high))
            made = tuple(map(Bin, edges[:-1].tolist(), edges[1:].tolist(), counts.tolist()))
    mean = float(present.mean()) if len(present) else None
    return FieldHistogram(field, made, len(present), len(chosen) - len(present), mean)


def series(columns: Columns, points: int) -> list[Point]:
    """What finished when, in at most so many points. Times in which nothing finished take no room."""
    points = max(1, min(points, _MOST_POINTS))
    finished = columns["finished_at"]
    rows = (finished >= 0) & (finished < _LATEST_S)
    if not rows.any():
        return []
    seconds = finished[rows].astype(np.int64)
    width = 1
    while (seconds.max() - seconds.min()) // width > _MOST_WIDTHS:
        width *= 2
    times = seconds // width
    start = times.min()
    times -= start
    used = np.flatnonzero(np.bincount(times))
    factor = 1
    while len(np.unique((used + start) // factor)) > points:
        factor *= 2
    known = np.unique((used + start) // factor)
    place = np.searchsorted(known, (times + start) // factor)
    failed = columns["number"][rows] > FAILED
    reward, tokens = columns["reward"][rows], np.nan_to_num(columns["tokens"][rows])
    scored = ~np.isnan(reward) & ~failed

    def total(mask: Mask, weights: Column | None = None) -> list[float]:
        own = None if weights is None else weights[mask]
        sums: list[float] = np.bincount(place[mask], weights=own, minlength=len(known)).tolist()
        return sums

    sums = zip(
        (known * width * factor).tolist(),
        total(~failed),
        total(failed),
        total(np.ones(len(place), bool), tokens),
        total(scored),
        total(scored, reward),
        strict=True,
    )
    return [
        Point(float(at), float(width * factor), int(kept), int(lost), int(used), reward / n if n else None)
        for at, kept, lost, used, n, reward in sums
    ]


def failure_groups(connection: sqlite3.Connection) -> list[FailureGroup]:
    """Kinds of failures, the most frequent first."""
    kinds = connection.execute(
        "SELECT boundary, pattern, count(*) FROM failure GROUP BY boundary, pattern"
        " ORDER BY count(*) DESC, boundary, pattern LIMIT ?",
        (_MOST_GROUPS,),
    ).fetchall()
    first = "SELECT number, message FROM failure WHERE boundary = ? AND pattern = ? ORDER BY number LIMIT ?"
    groups = []
    for boundary, pattern, count in kinds:
        examples = connection.execute(first, (boundary, pattern, _FIRST_NUMBERS)).fetchall()
        groups.append(FailureGroup(boundary, pattern, count, examples[0][1], tuple(row[0] for row in examples)))
    return groups
