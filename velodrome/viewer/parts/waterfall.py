"""The spans of one rollout as a waterfall: a lane for each kind of time, with rows for spans that overlap.

The tree is untrusted: anything but a span is skipped. Places are percentages, so that the picture stretches and zooms
while its text keeps its size. Of thousands of spans the longest are drawn, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

from velodrome.records.row_times import WAITS
from velodrome.timing.figures import duration
from velodrome.viewer.parts.dialogue import ShownMessage

Json = dict[str, Any]

KINDS = ("model", "tools", "verify", "wait", "other")
LABELS = {"wait": "waiting"}
ZOOMS = (1, 4, 16)
MOST_SPANS = 20_000
MOST_DRAWN = 1_500
MOST_ROWS = 16  # of one lane
_NAMED = 7.0  # percent: a wider bar shows its name
_ROW, _LANE_GAP, _TOP = 17, 7, 18  # pixels
_DEEPEST = 12
_LATEST_US = 1e15
_PARTS = {"model": "model", "tools": "tools", "verify": "verify", "judge": "verify", **dict.fromkeys(WAITS, "wait")}


@dataclass(frozen=True, slots=True)
class ShownSpan:
    """One span. `inside` are the names of its parents."""

    name: str
    start_ms: float
    length_ms: float
    note: str = ""
    inside: tuple[str, ...] = ()

    @property
    def end_ms(self) -> float:
        return self.start_ms + self.length_ms


def kind(part: str) -> str:
    """The kind of a part of the time: its lane and its colour."""
    family = {"tool": "tools", "limit": "wait", "endpoint": "model"}.get(part.partition(":")[0])
    return family or _PARTS.get(part, "other")


def read_spans(tree: Any) -> list[ShownSpan]:
    """All spans of a tree, parents first."""
    return list(islice(_read(tree, ()), MOST_SPANS))


def draw(
    spans: Sequence[ShownSpan], total_s: Any, *, label: str, hrefs: Mapping[int, str] | None = None
) -> Json | None:
    """The picture, or None if there are no spans to draw. `hrefs` are the links of spans, by their place."""
    if not spans:
        return None
    total_ms = total_s * 1000 if isinstance(total_s, int | float) and abs(total_s) < _LATEST_US else 0.0
    total_ms = max(total_ms if isfinite(total_ms) else 0.0, *(span.end_ms for span in spans), 0.001)
    longest = {*sorted(range(len(spans)), key=lambda at: -spans[at].length_ms)[:MOST_DRAWN]}
    lanes, y, drawn = [], _TOP, 0
    for name in KINDS:
        lane = [place for place, span in enumerate(spans) if kind(span.name) == name]
        if not lane:
            continue
        rows = _stacked(spans, [place for place in lane if place in longest])[:MOST_ROWS]
        drawn += sum(map(len, rows))
        places = [(place, y + at * _ROW) for at, row in enumerate(rows) for place in row]
        bars = [_bar(spans[place], top, 100 / total_ms, (hrefs or {}).get(place)) for place, top in places]
        waits = (span for span in spans if kind(span.name) == "wait" != name and name in map(kind, span.inside))
        took = duration(max(_union(spans[place] for place in lane) - _union(waits), 0.0))  # as in `meta.timing`
        lanes.append({"kind": name, "label": LABELS.get(name, name), "took": took, "y": y, "bars": bars})
        y += max(len(rows), 1) * _ROW + _LANE_GAP
    shares = ", ".join(f"{lane['label']} {lane['took']}" for lane in lanes)
    undrawn = len(spans) - drawn
    return {
        "label": f"{label}: {shares} of {duration(total_ms)}",
        "lanes": lanes,
        "height": y,
        "ticks": _ticks(total_ms),
        "zooms": ZOOMS,
        "linked": bool(hrefs),
        "note": f"{undrawn:,} of {len(spans):,} spans are not drawn; they are among the shortest" if undrawn else "",
    }


def targets(spans: Sequence[ShownSpan], messages: Sequence[ShownMessage]) -> dict[int, tuple[int, int]]:
    """The message of each span: its place among the messages, and the place of the call in it (0: the message).

    The n-th model call is the n-th turn, and the n-th call of a tool is its n-th span. If the counts differ, these
    spans have no message.
    """
    result: dict[int, tuple[int, int]] = {}
    turns: dict[int, tuple[int, int]] = {}
    calls: dict[str, list[tuple[int, int]]] = {}
    for place, message in enumerate(messages):
        if message.turn:
            turns.setdefault(message.turn, (place, 0))
        for at, call in enumerate(() if message.in_prompt else message.calls, 1):
            calls.setdefault(f"tool:{call.name}", []).append((place, at))
    places: dict[str, list[int]] = {}
    for at in sorted(range(len(spans)), key=lambda at: spans[at].start_ms):
        if not {"verify", "judge", spans[at].name} & {*spans[at].inside}:
            places.setdefault(spans[at].name, []).append(at)
    if len(places.get("model", ())) - len(turns) in (0, 1):  # the last call of a failed attempt has no turn
        result |= zip(places.get("model", ()), turns.values(), strict=False)
    for name, tool_calls in calls.items():
        if len(places.get(name, ())) == len(tool_calls):
            result |= zip(places[name], tool_calls, strict=True)
    return result


def _read(nodes: Any, inside: tuple[str, ...]) -> Iterator[ShownSpan]:
    for node in nodes if isinstance(nodes, list) else ():
        if not (isinstance(node, list) and len(node) == 5 and all(map(_is_time, node[1:3]))):
            continue
        name, start_us, length_us, counts, children = node
        items = counts.items() if isinstance(counts, dict) else ()
        note = ", ".join(f"{key!s:.40} {value:g}" for key, value in islice(items, 8) if _is_time(value))
        yield ShownSpan(f"{name!s:.100}", max(start_us, 0) / 1000, max(length_us, 0) / 1000, note, inside)
        if len(inside) < _DEEPEST:
            yield from _read(children, (*inside, f"{name!s:.100}"))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LATEST_US


def _stacked(spans: Sequence[ShownSpan], lane: list[int]) -> list[list[int]]:
    """The spans of a lane in rows without overlaps. Of two overlapping spans, the longer is above."""
    rows: list[list[int]] = []
    for place in sorted(lane, key=lambda each: (spans[each].start_ms, -spans[each].length_ms)):
        row = next((row for row in rows if spans[row[-1]].end_ms <= spans[place].start_ms), None)
        if row is None:
            rows.append([place])
        else:
            row.append(place)
    return rows


def _bar(span: ShownSpan, y: int, scale: float, href: str | None) -> Json:
    name = span.name.removeprefix("tool:")
    note = f"; {span.note:.200}" if span.note else ""
    title = f"{name:.60}: {duration(span.length_ms)}, from {duration(span.start_ms)}{note}"
    width = span.length_ms * scale
    place = {"x": span.start_ms * scale, "width": width, "y": y}
    return {**place, "title": title, "href": href, "name": name if width > _NAMED else ""}


def _union(spans: Iterator[ShownSpan]) -> float:
    """The time in which at least one of the spans ran."""
    total = end = 0.0
    for span in sorted(spans, key=lambda span: span.start_ms):
        total += max(span.end_ms - max(span.start_ms, end), 0.0)
        end = max(end, span.end_ms)
    return total


def _ticks(total_ms: float) -> list[Json]:
    """Times along the axis, each with the smallest zoom that shows it. At the largest, every second one is shown."""
    finest = 4 * ZOOMS[-1]
    levels = [next(zoom for zoom in ZOOMS if at % (finest // (4 * zoom)) == 0) for at in range(finest + 1)]
    return [
        {
            "x": at * 100 / finest,
            "text": duration(total_ms * at / finest) if at else "0",
            "zoom": zoom,
            "is_odd": at * 4 * zoom // finest % 2 == 1,
        }
        for at, zoom in enumerate(levels)
        if zoom != ZOOMS[-1] or at % 4 == 2
    ]
