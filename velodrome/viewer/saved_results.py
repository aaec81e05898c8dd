"""The results a collection wrote beside its rollouts, used only if they describe the rollouts that are there now.

A file can be moved, copied back or unpacked with an old time, so times prove nothing: counts, the mean reward and the
slowest rollouts must agree with the index of the file.
"""

from __future__ import annotations

from math import isclose
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, TypeAdapter

from velodrome.index import Index
from velodrome.records.jsonl import open_regular
from velodrome.records.rollout import beside

_CLOSE = 1e-6
_RATES = ("pass@", "pass^", "majority@")


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _SavedPart(_Checked):
    name: str
    part: str
    depth: NonNegativeInt
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    share: float
    bottleneck: bool


class _SavedVerdict(_Checked):
    paragraph: str


class _SlowRollout(_Checked):
    line: int
    total_s: float
    key: str | None = None


class _SavedSeries(_Checked):
    start: float
    every_s: PositiveFloat
    at_s: list[float]
    in_flight: list[float | None]
    lag_ms: list[float | None]


class _SavedProfile(_Checked):
    rollouts: int
    rows: int
    failed: int
    tree: list[_SavedPart]
    verdict: _SavedVerdict
    slowest: list[_SlowRollout]
    series: _SavedSeries


_METRICS = TypeAdapter(dict[str, float], config=ConfigDict(strict=True, allow_inf_nan=False))


def saved_result(kind: str, rollouts: Path, index: Index) -> Any:
    """The metrics or the profile of a finished collection; None if it must be measured."""
    if kind not in ("metrics", "profile"):
        return None
    path = beside(rollouts, f"{kind}.json")
    sources = (rollouts, beside(rollouts, "failures.jsonl"))
    try:
        if path.stat().st_mtime_ns < max(each.stat().st_mtime_ns for each in sources if each.exists()):
            return None
        with open_regular(path) as file:
            value = orjson.loads(file.read())
        matches = _metrics_match if kind == "metrics" else _profile_matches
        return value if index.state.complete and matches(value, index) else None
    except (OSError, ValueError):  # a ValidationError is one
        return None


def _metrics_match(value: Any, index: Index) -> bool:
    metrics, state = _METRICS.validate_python(value), index.state
    return (
        (metrics.get("rollouts/kept"), metrics.get("rollouts/failed")) == (state.rows, state.failed)
        and all(0 <= value <= 1 for name, value in metrics.items() if name.startswith(_RATES))
        and _equal(metrics.get("reward"), index.histogram("reward").mean)
    )


def _profile_matches(value: Any, index: Index) -> bool:
    profile, state = _SavedProfile.model_validate(value), index.state
    slowest = {each.line: each for each in profile.slowest if 0 < each.line < 2**62}
    entries = index.entries(list(slowest))
    return (profile.rows, profile.failed, len(profile.slowest)) == (state.rows, state.failed, len(entries)) and all(
        slowest[entry.number].key == entry.key and _equal(slowest[entry.number].total_s, entry.numbers.get("total_s"))
        for entry in entries
    )


def _equal(saved: float | None, indexed: float | None) -> bool:
    if saved is None or indexed is None:
        return saved is indexed
    return isclose(saved, indexed, rel_tol=_CLOSE, abs_tol=_CLOSE)
