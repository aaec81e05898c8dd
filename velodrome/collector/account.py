"""`meta.timing`: where the time of one rollout went, and the load around it.

The parts and `other_s` add up to `total_s`. A wait for a slot, a wait for a connection and a back-off are separate
parts: they are subtracted from the part they happened in.
"""

from __future__ import annotations

from typing import Any

from velodrome.records.row_times import waits_below
from velodrome.timing.spans import Node, Span, as_node, bounded

Json = dict[str, Any]

# In microseconds, so that sums are exact.
_NONE = {"queue_s": 0, "session_s": 0, "model_s": 0, "tools_s": 0, "verify_s": 0}
_FIELDS = {name: f"{name}_s" for name in ("queue", "session", "model", "tools", "verify", "backoff", "connection")}
_FAMILIES = {"tool": "tools_s", "limit": "queue_s", "endpoint": "model_s"}  # `tool:<name>`, …


def account(spans: Span, around: Json | None) -> Json:
    """`meta.timing`: the parts of the time, and the load around the rollout (`around`)."""
    result = timing(spans)
    if around is not None:
        result.update(around)
        around.pop("pace", None)  # a change of the limit is in one row only
    return result


def timing(spans: Span) -> Json:
    """The parts of one rollout's time, in seconds, and the tree they come from; docs/rollouts.md#timing names them."""
    _, _, total, root_counts, tree = as_node(spans, spans.start)
    result: Json = _NONE.copy()
    counts = {"model_calls": 0}
    if root_counts:
        _count(root_counts, counts)
    _charge(tree, result, counts)
    other = total - sum(result.values())
    for name, length in result.items():
        result[name] = length / 1e6
    result["other_s"] = other / 1e6
    result["total_s"] = total / 1e6
    result.update(counts)
    result["tree"] = bounded(tree)
    return result


def _charge(tree: list[Node], parts: dict[str, int], counts: dict[str, int]) -> None:
    """Charge spans to their parts; time in another process (`@server`) is charged as if it were here."""
    for name, _, length, span_counts, children in tree:
        if span_counts:
            _count(span_counts, counts)
        if name == "model":
            counts["model_calls"] += int(span_counts.get("folded", 1)) if span_counts else 1
        elif name[0] == "@":
            _charge(children, parts, counts)
            continue
        if children:
            _count_below(children, counts)
            for wait, wait_length in waits_below(name, children).items():
                length -= wait_length
                parts[_FIELDS[wait]] = parts.get(_FIELDS[wait], 0) + wait_length
        if name != "other":  # the rest of the total
            field = _FIELDS.get(name) or _FAMILIES.get(name.partition(":")[0]) or f"{name}_s"
            parts[field] = parts.get(field, 0) + length


def _count_below(children: list[Node], counts: dict[str, int]) -> None:
    for _, _, _, span_counts, grandchildren in children:
        if span_counts:
            _count(span_counts, counts)
        if grandchildren:
            _count_below(grandchildren, counts)


def _count(span_counts: dict[str, float], counts: dict[str, int]) -> None:
    for name in ("retries", "rate_limited"):
        if name in span_counts:
            counts[name] = counts.get(name, 0) + int(span_counts[name])
