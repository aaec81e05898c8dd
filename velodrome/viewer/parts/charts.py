"""What the pictures of `charts.html` show: a line over time, a histogram.

Places along the line are percentages, so that a picture stretches with the page while its text keeps its size. The
same numbers give the same picture. The template bounds and escapes every text; colours are the page's, by class.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from velodrome.timing.report import duration
from velodrome.viewer.parts.render import many

Json = dict[str, Any]

MOST_POINTS = 600
MOST_BINS = 60


def line(
    at_s: Sequence[float], values: Sequence[float | None], *, label: str, unit: str, every_s: float = 1.0
) -> Json | None:
    """A value over time, as a line with its area. Stretches without points are taken out and marked."""
    finite = (value if value is not None and isfinite(value) else None for value in values)
    points = list(zip(at_s, finite, strict=True))[:MOST_POINTS]
    known = [value for _, value in points if value is not None]
    if not known:
        return None
    top = max([*known, 0.0]) or 1.0
    if len(points) == 1:  # all of it within one stretch: as long as that was
        points.append((points[0][0] + every_s, points[0][1]))
    widest = len(points) - 1
    strokes: list[list[tuple[float, float]]] = [[]]
    gaps = []
    for index, (second, value) in enumerate(points):
        x = index * 1000 / widest
        if index and second - points[index - 1][0] > 1.5 * every_s:
            gaps.append(x / 10)
            strokes.append([])
        if value is None:
            strokes.append([])
        else:
            strokes[-1].append((x, 100 - max(value, 0.0) / top * 100))
    half = min(4.0, 500 / widest)
    for run in strokes:
        if len(run) == 1:  # a lone point would have no width
            [(x, y)] = run
            run[:] = [(x - half, y), (x + half, y)]
    return {
        "kind": "line",
        "label": f"{label}: {_short(min(known))} to {_short(max(known))} {unit}",
        "top": f"{_short(top)} {unit}",
        "strokes": [run for run in strokes if run],
        "gaps": gaps,
        "ends": [duration(at * 1000) if at else "0 s" for at in (points[0][0], points[-1][0])],
    }


def histogram(edges_ms: Sequence[float], counts: Sequence[int], *, label: str) -> Json | None:
    """How many rollouts fell between each two edges; empty bins at both ends are left out."""
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return None
    first, last = filled[0], min(filled[-1], filled[0] + MOST_BINS - 1)
    top = max(counts[first : last + 1])
    edges = [duration(edge) for edge in edges_ms]
    return {
        "kind": "histogram",
        "label": label,
        "top": f"tallest bar: {many(top, 'rollout')}",
        "bins": [
            {
                "title": f"{edges[index]} to {edges[index + 1]}: {many(counts[index], 'rollout')}",
                "height": max(counts[index] / top * 120, 1.0) if counts[index] else 0.0,
            }
            for index in range(first, last + 1)
        ],
        "ends": [edges[first], edges[last + 1]],
    }


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.2g}"
