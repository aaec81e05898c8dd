"""The pictures of a run's page: bars, a curve with a band, bubbles, and the table behind each.

Every mark has the filter of its rollouts, so a picture is also a way to them. Places along the line are percentages,
up and down they are pixels. A mark is told apart by its place, its size or its pattern, never by its colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from velodrome.timing.report import duration

Json = dict[str, Any]

TIME = "time"  # the first heading of the table of a picture over time
HEIGHT = 132  # pixels from the lowest value to the highest
_LARGEST = 13.0  # radius of a bubble, in pixels
_BAR = 0.86  # of the room that a bar has; a few bars are narrower


@dataclass(frozen=True, slots=True)
class Mark:
    """A bar or a point: what it says, how high it is, and where its rollouts are listed."""

    title: str
    height: float
    href: str | None = None
    cells: tuple[str, ...] = ()  # its line of the table behind the picture
    low: float | None = None  # of the band
    high: float | None = None
    gap: bool = False  # whether something was left out before it


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers at the bottom and at the top, and how they are written."""

    low: float
    high: float
    shown: Callable[[float], str]

    def y(self, value: float) -> float:
        """The place of a value, in pixels from the top."""
        value = value if isfinite(value) else self.low
        return HEIGHT * (1 - (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0))

    @property
    def ticks(self) -> list[str]:
        """From the top down."""
        middle = (self.low + self.high) / 2
        return [self.shown(self.high), self.shown(middle), self.shown(self.low)]


def scale_of(values: Sequence[float | None], shown: Callable[[float], str], *, whole: bool = False) -> Scale:
    """From 0 to the highest; with `whole`, at least to 1, as rewards and rates are seen."""
    known = [value for value in values if value is not None and isfinite(value)]
    low, high = min([0.0, *known]), max([1.0 if whole else 0.0, *known])
    if not whole and low == 0 and high % 2 == 1 and high < 10:  # a few: the middle is a whole number too
        high += 1
    return Scale(low, high if high > low else low + 1.0, shown)


def bars(marks: Sequence[Mark], *, label: str, head: Sequence[str], below: Sequence[str], scale: Scale) -> Json | None:
    """A bar for each mark."""
    if not marks:
        return None
    columns = [[(0, mark)] for mark in marks]
    return {**stacked(columns, label=label, head=head, below=below, scale=scale), "hits": _hits(marks)}


def stacked(
    columns: Sequence[Sequence[tuple[int, Mark]]],
    *,
    label: str,
    head: Sequence[str],
    below: Sequence[str],
    scale: Scale,
) -> Json:
    """Bars of several parts, from the bottom: the kind of each, which is its pattern, and its mark."""
    room, wide = 100 / max(len(columns), 1), min(_BAR, 0.1 * (len(columns) + 1))
    parts = []
    for place, column in enumerate(columns):
        base = scale.low
        for kind, mark in column:
            bottom, top = scale.y(base), scale.y(base + mark.height)
            height = max(bottom - top, 1.5 if mark.height else 0.0)
            x, width = (place + (1 - wide) / 2) * room, wide * room
            parts.append({"kind": kind, "x": x, "width": width, "y": bottom - height, "height": height, "mark": mark})
            base += mark.height
    marks = [mark for column in columns for _, mark in column]
    return {"kind": "bars", "parts": parts, "hits": [], **_around(marks, label, head, below, scale)}


def curve(marks: Sequence[Mark], *, label: str, head: Sequence[str], below: Sequence[str], scale: Scale) -> Json | None:
    """A line through the marks, with the band between `low` and `high`; it stops where something was left out."""
    if not marks:
        return None
    strokes: list[list[tuple[float, Mark]]] = []
    for place, mark in enumerate(marks):
        if mark.gap or not strokes:
            strokes.append([])
        strokes[-1].append((_middle(place, len(marks)), mark))
    bands = []
    for stroke in strokes:
        edge = [(x, mark.low, mark.high) for x, mark in stroke if mark.low is not None and mark.high is not None]
        upper = [(10 * x, scale.y(high)) for x, _, high in edge]
        bands.append([*upper, *((10 * x, scale.y(low)) for x, low, _ in reversed(edge))] if len(edge) > 1 else [])
    return {
        "kind": "curve",
        "lines": [[(10 * x, scale.y(mark.height)) for x, mark in stroke] for stroke in strokes if len(stroke) > 1],
        "bands": [band for band in bands if band],
        "dots": [
            {
                "x": _middle(place, len(marks)),
                "y": scale.y(mark.height),
                "low": None if mark.low is None else scale.y(mark.low),
                "high": None if mark.high is None else scale.y(mark.high),
                "mark": mark,
            }
            for place, mark in enumerate(marks)
        ],
        "gaps": [100 * place / len(marks) for place, mark in enumerate(marks) if mark.gap and place],
        "hits": _hits(marks),
        **_around(marks, label, head, below, scale),
    }


def bubbles(
    cells: Sequence[tuple[int, float, int, Mark]],
    means: Sequence[float | None],
    *,
    label: str,
    head: Sequence[str],
    below: Sequence[str],
    scale: Scale,
) -> Json | None:
    """Circles whose areas are how many rollouts they stand for: (column, height, rollouts, mark); a line of means."""
    if not cells:
        return None
    most = max(count for _, _, count, _ in cells)
    line = [(10 * _middle(at, len(means)), scale.y(mean)) for at, mean in enumerate(means) if mean is not None]
    circles = [
        {
            "x": _middle(at, len(means)),
            "y": scale.y(height),
            "r": max(_LARGEST * sqrt(count / most), 2.0),
            "mark": mark,
        }
        for at, height, count, mark in cells
    ]
    marks = [mark for *_, mark in cells]
    return {
        "kind": "bubbles",
        "hits": [],
        "circles": circles,
        "line": line,
        **_around(marks, label, head, below, scale),
    }


def whisker(mean: float | None, low: float | None, high: float | None, scale: Scale) -> Json | None:
    """A mean and its interval along a line, as percentages."""
    if mean is None:
        return None
    wide = scale.high - scale.low

    def x(value: float) -> float:
        return 100 * (min(max(value, scale.low), scale.high) - scale.low) / wide

    return {"x": x(mean), "low": None if low is None else x(low), "high": None if high is None else x(high)}


def elapsed(seconds: float) -> str:
    """Time since the start of a picture."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return duration(seconds * 1000) if seconds > 0 else "0 s"


def _middle(place: int, count: int) -> float:
    return 100 * (place + 0.5) / count


def _hits(marks: Sequence[Mark]) -> list[Json]:
    """The whole height of a mark is its link, so that a low one can be hit too."""
    room = 100 / len(marks)
    return [{"x": place * room, "width": room, "mark": mark} for place, mark in enumerate(marks)]


def _around(marks: Sequence[Mark], label: str, head: Sequence[str], below: Sequence[str], scale: Scale) -> Json:
    """What is beside a picture: the words below it are those of its columns, or two of its ends in time."""
    beside = {"ticks": scale.ticks, "below": list(below), "over_time": head[0] == TIME}
    return {"label": label, **beside, "head": list(head), "marks": list(marks)}
