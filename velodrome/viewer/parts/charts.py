"""What the pictures of `charts.html` show: a waterfall, a line over time, a histogram.

Places along the line are percentages, so that a picture stretches with the page while its text keeps its size. The
same numbers give the same picture. The template bounds and escapes every text; colours are the page's, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from velodrome.timing.report import duration

Json = dict[str, Any]

KINDS = ("model", "tools", "verify", "wait", "other")
MOST_BARS = 60
MOST_POINTS = 600
MOST_BINS = 60
_LABELS = 30.0  # share of a waterfall's width that the names take, in percent


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """One bar of a waterfall. `kind` is one of KINDS and decides its colour; `note` is shown when pointed at."""

    name: str
    start_ms: float
    length_ms: float
    depth: int = 0
    kind: str = "other"
    note: str = ""


def waterfall(bars: Sequence[WaterfallBar], total_ms: float, *, label: str) -> Json:
    """When each stretch began and how long it lasted, one below the other, against the whole."""
    shown = bars[:MOST_BARS]
    total_ms = max([total_ms if isfinite(total_ms) else 0.0, *(bar.start_ms + bar.length_ms for bar in shown), 0.001])
    return {
        "kind": "waterfall",
        "label": label,
        "labels": _LABELS,
        "times": ["0", duration(total_ms / 2), duration(total_ms)],
        "rows": [_row(bar, (100 - _LABELS) / total_ms) for bar in shown],
        "more": len(bars) - len(shown),
    }


def _row(bar: WaterfallBar, scale: float) -> Json:
    x, width = _LABELS + max(bar.start_ms, 0.0) * scale, max(bar.length_ms, 0.0) * scale
    took, note = duration(bar.length_ms), f"; {bar.note:.200}" if bar.note else ""
    return {
        "name": bar.name,
        "title": f"{bar.name:.60}: {took}, from {duration(bar.start_ms)}{note}",
        "kind": bar.kind if bar.kind in KINDS else "other",
        "indent": min(bar.depth, 8) * 12,
        "x": x,
        "width": width,
        "took": took,
        "place": "after" if x + width <= 88 else "before" if x >= _LABELS + 12 else "inside",
    }


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


def histogram(
    edges: Sequence[float], counts: Sequence[int], *, label: str, shown: Callable[[float], str] = duration
) -> Json | None:
    """How many fell between each two edges, times in ms by default; empty bins at both ends are left out."""
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return None
    first, last = filled[0], min(filled[-1], filled[0] + MOST_BINS - 1)
    top = max(counts[first : last + 1])
    return {
        "kind": "histogram",
        "label": label,
        "top": f"tallest bar: {_rollouts(top)}",
        "bins": [
            {
                "title": f"{shown(edges[index])} to {shown(edges[index + 1])}: {_rollouts(counts[index])}",
                "height": max(counts[index] / top * 120, 1.0) if counts[index] else 0.0,
            }
            for index in range(first, last + 1)
        ],
        "ends": [shown(edges[first]), shown(edges[last + 1])],
    }


def _rollouts(amount: int) -> str:
    return f"{amount} rollout{'' if amount == 1 else 's'}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.2g}"
