"""How many rollouts finished a second, over the life of a file.

A second in which nothing finished is a zero. Only the time between two runs is taken out of the picture and marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from velodrome.index import Point

Json = dict[str, Any]

_MOST = 240  # points
_QUIET = 60  # of a file whose runs are not on record: so many widths without a rollout are taken for a stop


class Rates(NamedTuple):
    """Rollouts a second, for stretches of `every_s` that begin at `at_s`."""

    at_s: list[float]
    per_s: list[float]
    every_s: float


def rates(points: Sequence[Point], runs: Sequence[Json]) -> Rates:
    """The points with zeros between them, wider if there are too many."""
    stretches = _stretches(points, runs)
    width_s = points[0].width_s
    long = sum(round((each[-1].at - each[0].at) / width_s) + 1 for each in stretches)
    every_s = width_s * ceil(long / _MOST)
    curve = Rates([], [], every_s)
    for stretch in stretches:
        first = stretch[0].at
        finished = [0] * (int((stretch[-1].at - first) // every_s) + 1)
        for point in stretch:
            finished[int((point.at - first) // every_s)] += point.finished
        curve.at_s.extend(first - points[0].at + place * every_s for place in range(len(finished)))
        curve.per_s.extend(count / every_s for count in finished)
    return curve


def _stretches(points: Sequence[Point], runs: Sequence[Json]) -> list[list[Point]]:
    """What finished without a stop in between."""
    starts = [run["started_at"] for run in runs[1:] if isinstance(run.get("started_at"), int | float)]
    stretches = [[points[0]]]
    for before, point in pairwise(points):
        gap_s = point.at - before.at
        if runs:
            stopped = any(before.at <= start <= point.at + point.width_s for start in starts)
        else:
            stopped = gap_s > _QUIET * point.width_s
        if stopped and gap_s > 1.5 * point.width_s:
            stretches.append([])
        stretches[-1].append(point)
    return stretches
