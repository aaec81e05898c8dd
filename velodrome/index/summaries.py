"""What is true of many entries at once: histograms, the course over time, kinds of failures."""

from __future__ import annotations

import sqlite3

import numpy as np

from velodrome.index.answer_types import FailureGroup, FieldHistogram, Point
from velodrome.index.columns import Columns

_BINS = 20
_MOST_GROUPS = 200
_FIRST_NUMBERS = 5
_LATEST_S = 1e11


def histogram(columns: Columns, field: str) -> FieldHistogram:
    """How the values of a field are distributed."""
    column = columns.field(field, "field")
    values = column[~np.isnan(column)]
    if not len(values):
        return FieldHistogram()
    low, high = float(values.min()), float(values.max())
    if low == high:
        return FieldHistogram((low, high), (len(values),), float(values.mean()))
    counts, edges = np.histogram(values, _BINS, (low, high))
    return FieldHistogram(tuple(edges.tolist()), tuple(counts.tolist()), float(values.mean()))


def series(columns: Columns, most: int) -> list[Point]:
    """What finished when, in at most so many points. Times in which nothing finished take no room."""
    finished = columns["finished_at"]
    seconds = finished[(finished >= 0) & (finished < _LATEST_S)].astype(np.int64)
    times, counts = np.unique(seconds, return_counts=True)
    width = 1
    while len(times) > most:
        width *= 2
        times, places = np.unique(times // 2, return_inverse=True)
        counts = np.bincount(places, weights=counts)
    return [Point(at * width, width, int(count)) for at, count in zip(times.tolist(), counts.tolist(), strict=True)]


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
