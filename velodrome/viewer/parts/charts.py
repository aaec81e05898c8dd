"""Pictures as inline SVG: a waterfall, a line over time, a histogram.

Plots stretch with the page while their text keeps its size: places along the line are percentages. The same numbers
give the same bytes; every text is escaped and bounded here; colours are the page's, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

from velodrome.timing.report import clean, duration

KINDS = ("model", "tools", "verify", "wait", "other")
MOST_BARS = 60
MOST_POINTS = 600
MOST_BINS = 60
_LABELS = 30.0  # share of a waterfall's width that the names take, in percent
_ROW = 26
_AXIS = 22
_PLOT = 120


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """One bar of a waterfall. `kind` is one of KINDS and decides its colour; `note` is shown when pointed at."""

    name: str
    start_ms: float
    length_ms: float
    depth: int = 0
    kind: str = "other"
    note: str = ""


def text(value: str, longest: int = 60) -> str:
    """A text for use between tags or in a quoted attribute."""
    return escape(clean(value, longest=longest), quote=True)


def waterfall(bars: Sequence[WaterfallBar], total_ms: float, *, label: str) -> str:
    """When each stretch began and how long it lasted, one below the other, against the whole."""
    shown = list(bars[:MOST_BARS])
    more = len(bars) - len(shown)
    total_ms = max([total_ms if isfinite(total_ms) else 0.0, *(bar.start_ms + bar.length_ms for bar in shown), 0.001])
    bottom = _AXIS + _ROW * len(shown)
    parts = [_time_axis(total_ms, bottom)]
    parts += [_row(bar, _AXIS + _ROW * index, total_ms) for index, bar in enumerate(shown)]
    if more > 0:
        parts.append(f'<text class="tick" x="0" y="{bottom + 16}">and {more} more</text>')
    return _svg("waterfall", bottom + (_AXIS if more > 0 else 4), label, parts)


def _time_axis(total_ms: float, bottom: int) -> str:
    parts = []
    for quarter, anchor in ((0, "start"), (1, "middle"), (2, "middle"), (3, "middle"), (4, "end")):
        x = _number(_LABELS + (100 - _LABELS) * quarter / 4)
        parts.append(f'<line class="grid" x1="{x}%" x2="{x}%" y1="{_AXIS - 6}" y2="{bottom}"/>')
        if quarter % 2 == 0:
            at = text(duration(total_ms * quarter / 4)) if quarter else "0"
            parts.append(f'<text class="tick" x="{x}%" y="11" text-anchor="{anchor}">{at}</text>')
    return "".join(parts)


def _row(bar: WaterfallBar, y: int, total_ms: float) -> str:
    scale = (100 - _LABELS) / total_ms
    start = _LABELS + max(bar.start_ms, 0.0) * scale
    width = max(bar.length_ms, 0.0) * scale
    kind = bar.kind if bar.kind in KINDS else "other"
    took = text(duration(bar.length_ms))
    note = f"; {text(bar.note, 200)}" if bar.note else ""
    title = f"{text(bar.name)}: {took}, from {text(duration(bar.start_ms))}{note}"
    if start + width <= 88:
        place = f'class="value" x="{_number(start + width)}%" dx="6"'
    elif start >= _LABELS + 12:
        place = f'class="value" x="{_number(start)}%" dx="-6" text-anchor="end"'
    else:
        place = f'class="value on-{kind}" x="{_number(start + width)}%" dx="-6" text-anchor="end"'
    return (
        f"<g><title>{title}</title>"
        f'<svg x="0" y="{y}" width="{_number(_LABELS - 1)}%" height="{_ROW}">'
        f'<text class="name" x="{min(bar.depth, 8) * 12}" y="17">{text(bar.name, 40)}</text></svg>'
        f'<rect class="kind-{kind}" x="{_number(start)}%" y="{y + 5}" width="{_number(width)}%" height="16" rx="2"/>'
        f'<text {place} y="{y + 17}">{took}</text></g>'
    )


def line(at_s: Sequence[float], values: Sequence[float | None], *, label: str, unit: str, every_s: float = 1.0) -> str:
    """A value over time, as a line with its area. Stretches without points are taken out and marked."""
    points = [(at, _finite(value)) for at, value in zip(at_s, values, strict=True)][:MOST_POINTS]
    known = [value for _, value in points if value is not None]
    if not known:
        return ""
    top = max([*known, 0.0]) or 1.0
    if len(points) == 1:  # all of it within one stretch: as long as that was
        points.append((points[0][0] + every_s, points[0][1]))
    widest = len(points) - 1
    runs: list[list[str]] = [[]]
    marks = []
    for index, (second, value) in enumerate(points):
        x = index * 1000 / widest
        if index and second - points[index - 1][0] > 1.5 * every_s:
            marks.append(
                f'<line class="gap" x1="{_number(x / 10)}%" x2="{_number(x / 10)}%" y1="18" y2="{18 + _PLOT}"/>'
            )
            runs.append([])
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{_number(x)} {_number(100 - max(value, 0.0) / top * 100)}")
    shapes = "".join(_shape(run, widest) for run in runs if run)
    bottom = 18 + _PLOT
    summary = f"{label}: {_short(min(known))} to {_short(max(known))} {unit}"
    parts = [
        f'<line class="grid" x1="0" x2="100%" y1="18" y2="18"/><line class="axis" x1="0" x2="100%" y1="{bottom}" '
        f'y2="{bottom}"/>',
        f'<svg x="0" y="18" width="100%" height="{_PLOT}" viewBox="0 0 1000 100" preserveAspectRatio="none">'
        f"{shapes}</svg>",
        *marks,
        f'<text class="tick" x="0" y="12">{text(f"{_short(top)} {unit}")}</text>',
        *_ends(_clock(points[0][0]), _clock(points[-1][0]), bottom),
    ]
    return _svg("line", bottom + _AXIS, summary, parts)


def _shape(run: Sequence[str], widest: int) -> str:
    if len(run) == 1:  # a lone point would have no width
        x, y = run[0].split(" ")
        half = min(4.0, 500 / widest)
        run = [f"{_number(float(x) - half)} {y}", f"{_number(float(x) + half)} {y}"]
    path = "L".join(run)
    first, last = run[0].split(" ")[0], run[-1].split(" ")[0]
    return (
        f'<path class="area" d="M{first} 100L{path}L{last} 100Z"/>'
        f'<path class="stroke" d="M{path}" vector-effect="non-scaling-stroke"/>'
    )


def histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    *,
    label: str,
    noun: str = "rollouts",
    shown: Callable[[float], str] = duration,
) -> str:
    """How many fell between each two edges, times in ms by default; empty bins at both ends are left out."""
    filled = [index for index, count in enumerate(counts) if count > 0]
    if not filled:
        return ""
    first, last = filled[0], min(filled[-1], filled[0] + MOST_BINS - 1)
    top = max(counts[first : last + 1])
    share = 100 / (last - first + 1)
    bottom = 18 + _PLOT
    parts = [f'<line class="axis" x1="0" x2="100%" y1="{bottom}" y2="{bottom}"/>']
    for index in range(first, last + 1):
        height = counts[index] / top * _PLOT
        if counts[index]:
            height = max(height, 1.0)
        between = f"{shown(edges[index])} to {shown(edges[index + 1])}"
        parts.append(
            f"<g><title>{text(f'{between}: {_many(counts[index], noun)}')}</title>"
            f'<rect class="bin" x="{_number((index - first) * share + share * 0.06)}%" '
            f'y="{_number(bottom - height)}" width="{_number(share * 0.88)}%" height="{_number(height)}" rx="1"/></g>'
        )
    parts.append(f'<text class="tick" x="0" y="12">{text(f"tallest bar: {_many(top, noun)}")}</text>')
    parts += _ends(shown(edges[first]), shown(edges[last + 1]), bottom)
    return _svg("histogram", bottom + _AXIS, label, parts)


def share_bar(share: float | None, *, kind: str = "other") -> str:
    """A thin bar for a share of the whole. It repeats a number beside it, so a screen reader passes over it."""
    width = min(max(_finite(share) or 0.0, 0.0), 1.0) * 100
    return (
        '<svg class="share" width="100%" height="8" aria-hidden="true">'
        f'<rect class="track" width="100%" height="8" rx="2"/>'
        f'<rect class="kind-{kind if kind in KINDS else "other"}" width="{_number(width)}%" height="8" rx="2"/></svg>'
    )


def _ends(first: str, last: str, bottom: int) -> list[str]:
    y = bottom + 15
    return [
        f'<text class="tick" x="0" y="{y}">{text(first)}</text>',
        f'<text class="tick" x="100%" y="{y}" text-anchor="end">{text(last)}</text>',
    ]


def _svg(kind: str, height: int, label: str, parts: Sequence[str]) -> str:
    title = text(label, 200)
    return (
        f'<svg class="chart {kind}" width="100%" height="{height}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _clock(seconds: float) -> str:
    return duration(seconds * 1000) if seconds else "0 s"


def _many(amount: int, nouns: str) -> str:
    return f"{amount} {nouns if amount != 1 else nouns.removesuffix('s')}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.2g}"
