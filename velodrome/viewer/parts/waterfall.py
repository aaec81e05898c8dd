"""The spans of one rollout as the bars of a waterfall. The tree is untrusted: what is not a span is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from velodrome.records.row_times import WAITS
from velodrome.viewer.parts import charts

MOST_SPANS = 2000
_DEEPEST = 12
_LATEST_US = 1e15
_PARTS = {
    "model": "model",
    "tools": "tools",
    "verify": "verify",
    "judge": "verify",
    **dict.fromkeys(WAITS, "wait"),
}


def draw(tree: Any, total_s: Any, *, label: str) -> charts.Json | None:
    """The picture, or None if there are no spans to draw."""
    bars = list(islice(_bars(tree, 0), MOST_SPANS))
    total_ms = total_s * 1000 if isinstance(total_s, int | float) and abs(total_s) < _LATEST_US else 0.0
    return charts.waterfall(bars, total_ms, label=label) if bars else None


def kind(part: str) -> str:
    """Which colour a part of the time has."""
    family = {"tool": "tools", "limit": "wait", "endpoint": "model"}.get(part.partition(":")[0])
    return family or _PARTS.get(part, "other")


def _bars(nodes: Any, depth: int) -> Iterator[charts.WaterfallBar]:
    """Parents first."""
    for node in nodes if isinstance(nodes, list) else ():
        if not (isinstance(node, list) and len(node) == 5 and all(map(_is_time, node[1:3]))):
            continue
        name, start_us, length_us, counts, children = node
        items = counts.items() if isinstance(counts, dict) else ()
        note = ", ".join(f"{key!s:.40} {value:g}" for key, value in islice(items, 8) if _is_time(value))
        shown = str(name).removeprefix("tool:")
        yield charts.WaterfallBar(shown, start_us / 1000, length_us / 1000, depth, kind(str(name)), note)
        if depth < _DEEPEST:
            yield from _bars(children, depth + 1)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LATEST_US
