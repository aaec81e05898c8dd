"""What a collection wrote beside its rollouts, taken only if it has the right shape and is of the rollouts there now.

A file can be moved, copied back or unpacked with an old time, so no time is believed: counts, the mean reward and the
slowest rollouts must be what the index of the file says.
"""

from __future__ import annotations

from math import isclose, isfinite
from pathlib import Path
from typing import Any

import orjson

from velodrome.index import Index
from velodrome.records.rollout import beside

Json = dict[str, Any]

_TIMES = ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "share")
_CLOSE = 1e-6


def saved_result(kind: str, rollouts: Path, index: Index) -> Any:
    """The metrics or the profile of a collection that ended; None if it is to be measured."""
    if kind not in ("metrics", "profile"):
        return None
    path = beside(rollouts, f"{kind}.json")
    try:
        newest = max(
            each.stat().st_mtime_ns for each in (rollouts, beside(rollouts, "failures.jsonl")) if each.exists()
        )
        if path.stat().st_mtime_ns < newest:
            return None
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if kind == "metrics":
        right = _is_metrics(found) and _of_these(found, index)
        return {"metrics": found, "notes": []} if right else None
    return found if _is_profile(found) and _times_of_these(found, index) else None


def _is_metrics(found: Any) -> bool:
    return isinstance(found, dict) and all(
        _number(value) and (not name.startswith(("pass@", "pass^", "majority@")) or 0 <= value <= 1)
        for name, value in found.items()
    )


def _of_these(metrics: Json, index: Index) -> bool:
    state = index.state
    counts = (metrics.get("rollouts/kept"), metrics.get("rollouts/failed"))
    if not state.complete or counts != (state.rows, state.failed):
        return False
    return _same(metrics.get("reward"), index.histogram("reward").mean)


def _is_profile(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(type(found.get(name)) is int for name in ("rollouts", "rows", "failed"))
        and isinstance(found.get("tree"), list)
        and all(map(_is_part, found["tree"]))
        and isinstance(found.get("verdict"), dict)
        and isinstance(found["verdict"].get("paragraph"), str)
        and isinstance(found.get("slowest"), list)
        and all(map(_is_slow, found["slowest"]))
    )


def _is_part(node: Any) -> bool:
    return (
        isinstance(node, dict)
        and isinstance(node.get("name"), str)
        and isinstance(node.get("part"), str)
        and type(node.get("depth")) is int
        and node["depth"] >= 0
        and all(_number(node.get(name)) for name in _TIMES)
        and isinstance(node.get("bottleneck"), bool)
    )


def _is_slow(each: Any) -> bool:
    return isinstance(each, dict) and type(each.get("line")) is int and _number(each.get("total_s"))


def _times_of_these(profile: Json, index: Index) -> bool:
    state = index.state
    if not state.complete or (profile["rows"], profile["failed"]) != (state.rows, state.failed):
        return False
    slowest = {each["line"]: each for each in profile["slowest"] if 0 < each["line"] < 2**62}
    found = {entry.number: entry for entry in index.entries(list(slowest))}
    return len(found) == len(profile["slowest"]) and all(
        each.get("key") == found[line].key and _same(each["total_s"], found[line].numbers.get("total_s"))
        for line, each in slowest.items()
    )


def _number(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)


def _same(told: float | None, known: float | None) -> bool:
    if told is None or known is None:
        return told is known
    return isclose(told, known, rel_tol=_CLOSE, abs_tol=_CLOSE)
