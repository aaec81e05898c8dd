"""`meta.timing`: where the time of one rollout went, and what surrounded it.

The parts and `other_s` add up to `total_s`. A wait for a slot, a wait for a connection and a back-off are parts of
their own: they are taken out of the part they happened in.
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
    """`meta.timing`: the parts of the time, and what surrounded the rollout (`around`)."""
    result = timing(spans)
    if around is not None:
        result.update(around)
        around.pop("pace", None)  # a change of the limit is in one row only
    return result


def timing(spans: Span) -> Json:
    """The parts of one rollout's time, in seconds, and the tree they come from; docs/rollouts.md#timing names them."""
    _, _, total, own, tree = as_node(spans, spans.start)
    result: Json = _NONE.copy()
    counts = {"model_calls": 0}
    if own:
        _count(own, counts)
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
    for name, _, length, own, children in tree:
        if own:
            _count(own, counts)
        if name == "model":
            counts["model_calls"] += int(own.get("folded", 1)) if own else 1
        elif name[0] == "@":
            _charge(children, parts, counts)
            continue
        if children:
            _count_below(children, counts)
            for wait, lasted in waits_below(name, children).items():
                length -= lasted
                parts[_FIELDS[wait]] = parts.get(_FIELDS[wait], 0) + lasted
        if name != "other":  # what is left is that anyway
            field = _FIELDS.get(name) or _FAMILIES.get(name.partition(":")[0]) or f"{name}_s"
            parts[field] = parts.get(field, 0) + length


def _count_below(children: list[Node], counts: dict[str, int]) -> None:
    for _, _, _, own, below in children:
        if own:
            _count(own, counts)
        if below:
            _count_below(below, counts)


def _count(own: dict[str, float], counts: dict[str, int]) -> None:
    if "retries" in own:
        counts["retries"] = counts.get("retries", 0) + int(own["retries"])
    if "rate_limited" in own:
        counts["rate_limited"] = counts.get("rate_limited", 0) + int(own["rate_limited"])
