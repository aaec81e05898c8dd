"""The chart kit of all pages: bars, curves with bands, and means with their interval; `plots.html` draws them.

A mark can link to the list of its rollouts; a table with the same links is for the keyboard. Horizontal places are
percentages, so that a chart stretches with its page; vertical places are pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from velodrome.timing.figures import duration, long_duration

Json = dict[str, Any]
Points = Sequence[tuple[float, float]]

TIME = "time"  # the first heading of the table of a chart over time
HEIGHT = 132  # pixels from the lowest value to the highest
_BAR = 0.86  # width of a bar as a share of its column; a few bars are narrower


@dataclass(frozen=True, slots=True)
class Mark:
    """A bar or a point: its title, its height, and the list of its rollouts."""

    title: str
    height: float
    href: str | None = None
    cells: tuple[str, ...] = ()  # its line in the table for the keyboard
    low: float | None = None  # of the band
    high: float | None = None
    gap: bool = False  # whether values are missing before it


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers at the bottom and at the top, and their format."""

    low: float
    high: float
    shown: Callable[[float], str]

    def y(self, value: float) -> float:
        """The place of a value, in pixels from the top."""
        value = value if isfinite(value) else self.low
        return HEIGHT * (1 - (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0))

    @property
    def ticks(self) -> list[str]:
        """The labels of the axis, from the top down."""
        middle = (self.low + self.high) / 2
        return [self.shown(self.high), self.shown(middle), self.shown(self.low)]


def scale_of(values: Sequence[float | None], shown: Callable[[float], str], *, whole: bool = False) -> Scale:
    """A scale from 0 to the highest value; with `whole`, at least to 1, for rewards and rates."""
    numbers = [value for value in values if value is not None and isfinite(value)]
    low, high = min([0.0, *numbers]), max([1.0 if whole else 0.0, *numbers])
    if not whole and low == 0 and high % 2 == 1 and high < 10:  # for small counts, the middle is a whole number too
        high += 1
    return Scale(low, high if high > low else low + 1.0, shown)


def bars(marks: Sequence[Mark], *, label: str, head: Sequence[str], below: Sequence[str], scale: Scale) -> Json | None:
    """A bar for each mark."""
    if not marks:
        return None
    room, wide = 100 / len(marks), min(_BAR, 0.1 * (len(marks) + 1))
    parts = []
    for place, mark in enumerate(marks):
        height = max(scale.y(scale.low) - scale.y(scale.low + mark.height), 1.5 if mark.height else 0.0)
        x, width = (place + (1 - wide) / 2) * room, wide * room
        parts.append({"x": x, "width": width, "y": HEIGHT - height, "height": height, "mark": mark})
    return {**chart("bars", label, scale, below, head, marks), "parts": parts}


def curve(marks: Sequence[Mark], *, label: str, head: Sequence[str], below: Sequence[str], scale: Scale) -> Json | None:
    """A line through the marks, with the band between `low` and `high`; it is interrupted at gaps."""
    if not marks:
        return None
    strokes: list[list[tuple[float, Mark]]] = []
    for place, mark in enumerate(marks):
        if mark.gap or not strokes:
            strokes.append([])
        strokes[-1].append((100 * (place + 0.5) / len(marks), mark))
    bands = []
    for stroke in strokes:
        edge = [(x, mark.low, mark.high) for x, mark in stroke if mark.low is not None and mark.high is not None]
        upper = [(10 * x, scale.y(high)) for x, _, high in edge]
        bands.append([*upper, *((10 * x, scale.y(low)) for x, low, _ in reversed(edge))] if len(edge) > 1 else [])
    dots = [
        dot(x, mark.height, scale, reach=None if any(bands) or mark.low is None else (mark.low, mark.high or mark.low))
        for stroke in strokes
        for x, mark in stroke
        if len(marks) <= 40 or len(stroke) == 1
    ]
    return {
        **chart("curve", label, scale, below, head, marks),
        "lines": [line([(x, mark.height) for x, mark in stroke], scale) for stroke in strokes if len(stroke) > 1],
        "bands": [band for band in bands if band],
        "dots": dots,
        "gaps": [100 * place / len(marks) for place, mark in enumerate(marks) if mark.gap and place],
    }


def chart(
    kind: str, label: str, scale: Scale, below: Sequence[str], head: Sequence[str] = (), marks: Sequence[Mark] = ()
) -> Json:
    """An empty chart. `below` are the labels under its columns, or of the two ends of the time axis."""
    room = 100 / max(len(marks), 1)
    linked = any(mark.href for mark in marks)
    # A link covers the whole height, so that a low mark can be clicked too.
    hits = [{"x": place * room, "width": room, "mark": mark} for place, mark in enumerate(marks) if linked]
    table = {"head": list(head), "marks": list(marks) if linked else [], "hits": hits}
    frame = {"ticks": scale.ticks, "below": list(below), "over_time": len(below) == 2 != len(marks)}
    return {
        "kind": kind,
        "label": label,
        **frame,
        **table,
        "shades": [],
        "lines": [],
        "bands": [],
        "dots": [],
        "gaps": [],
    }


def line(points: Points, scale: Scale, style: str = "stroke") -> Json:
    """A line through points: a percentage from the left, and a value."""
    return {"style": style, "points": [(10 * x, scale.y(value)) for x, value in points]}


def dot(
    x: float,
    value: float,
    scale: Scale,
    *,
    reach: tuple[float, float] | None = None,
    style: str = "dot-mark",
    shape: str = "circle",
    title: str = "",
) -> Json:
    """A point with an error bar."""
    ends = reach and (scale.y(reach[1]), scale.y(reach[0]))
    return {"x": x, "y": scale.y(value), "reach": ends, "style": style, "shape": shape, "title": title}


def whisker(mean: float | None, low: float | None, high: float | None, scale: Scale) -> Json | None:
    """A mean and its interval as places on a horizontal line, in percent."""
    if mean is None:
        return None
    wide = scale.high - scale.low

    def x(value: float) -> float:
        return 100 * (min(max(value, scale.low), scale.high) - scale.low) / wide

    return {"x": x(mean), "low": None if low is None else x(low), "high": None if high is None else x(high)}


def elapsed(seconds: float) -> str:
    """Time since the start of a chart."""
    return long_duration(seconds) if seconds >= 60 else duration(seconds * 1000)
