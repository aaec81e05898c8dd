"""The numbers of a collection: means, tokens, throughput, pass@k, in one streaming pass.

The collector feeds a `Tally` row by row; `read_metrics` feeds one from a file. Both give the same numbers, because
every one of them comes from the rows. A value that is absent or null counts nowhere: a deferred reward is not a
zero.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import comb, isfinite
from pathlib import Path
from typing import Any

import orjson

from velodrome.records.jsonl import read_lines
from velodrome.records.rollout import beside, split_key

Json = dict[str, Any]

PASS_REWARD = 1.0
_NAMES = frozenset({"id", "task_id"})  # a number here is a name, not a measure


class Tally:
    """Running sums over rollouts. Memory does not grow with rows, but with tasks while `by_task` is on."""

    def __init__(self, *, by_task: bool = True, pass_at: float = PASS_REWARD) -> None:
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.tool_calls = 0
        self.tokens: dict[str, int] = {}
        self._sums: dict[str, float] = {"reward": 0.0}
        self._counts: dict[str, int] = {"reward": 0}
        self._active = ActiveTime()
        self._pass_at = pass_at
        self._passes: dict[int, tuple[int, int]] | None = {} if by_task else None
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}  # equal ones are one object: tasks are many, pairs few

    def add(self, row: Json) -> None:
        """Count one rollout, or none of it if it is not one."""
        tool_calls = sum(len(message.get("tool_calls") or ()) for message in row.get("output") or ())
        usage = (row.get("usage") or {}).items()
        meta = row.get("meta") or {}
        finished = meta.get("finished_at")
        if finished is not None:
            started = finished - (meta.get("timing") or {}).get("total_s", 0.0)
        incomplete = (row.get("response") or {}).get("status") == "incomplete"
        task = hash(split_key(meta["key"])[0]) if self._passes is not None and "key" in meta else None
        self.rows += 1
        self.tool_calls += tool_calls
        sums, counts = self._sums, self._counts
        for name, value in row.items():
            if isinstance(value, int | float) and name not in _NAMES and isfinite(value):
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + 1
        for name, value in usage:
            if isinstance(value, int):
                self.tokens[name] = self.tokens.get(name, 0) + value
        self.deferred += meta.get("verification") == "deferred"
        self.incomplete += incomplete
        if finished is not None:
            self._active.add(started, finished)
        if self._passes is not None and task is not None and isinstance(row.get("reward"), int | float):
            tries, passed = self._passes.get(task, (0, 0))
            pair = (tries + 1, passed + (row["reward"] >= self._pass_at))
            self._passes[task] = self._pairs.setdefault(pair, pair)

    def mean(self, name: str) -> float | None:
        """The mean of one field over the rows that have it."""
        count = self._counts.get(name)
        return self._sums[name] / count if count else None

    def metrics(self, *, failed: int = 0) -> Json:
        """Everything, under the names of docs/metrics.md."""
        found: Json = {name: self.mean(name) for name, count in self._counts.items() if count}
        if self.rows:
            found.setdefault("avg_tool_calls", self.tool_calls / self.rows)
        found["rollouts/kept"] = self.rows
        found["rollouts/failed"] = failed
        if self.deferred:
            found["rollouts/deferred"] = self.deferred
        if self.incomplete:
            found["rollouts/incomplete"] = self.incomplete
        for kind in ("input", "output", "total"):
            found[f"tokens/{kind}"] = self.tokens.get(f"{kind}_tokens", 0)
        seconds = self._active.seconds
        if seconds > 0:
            found["throughput/active_s"] = round(seconds, 6)
            found["throughput/samples_per_s"] = self.rows / seconds
            found["throughput/tokens_per_s"] = found["tokens/total"] / seconds
        found.update(self._pass_rates())
        return found

    def _pass_rates(self) -> Json:
        tries = list((self._passes or {}).values())
        most = max((n for n, _ in tries), default=0)
        if most < 2:
            return {}
        sizes = sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})
        found = {}
        for k in sizes:
            rates = [pass_at_k(n, passed, k) for n, passed in tries if n >= k]
            found[f"pass@{k}"] = sum(rates) / len(rates)
        return found


def pass_at_k(n: int, passed: int, k: int) -> float:
    """The chance that k of n tries, drawn without putting back, hold at least one that passed."""
    return 1.0 - comb(n - passed, k) / comb(n, k)


class ActiveTime:
    """How long anything at all was running: the length of the union of stretches, in whatever order they come.

    The gap between an interrupted run and its resumption is not counted. Memory grows with the gaps alone.
    """

    def __init__(self) -> None:
        self._starts: list[float] = []  # of stretches that do not touch, rising; so are their ends
        self._ends: list[float] = []

    def add(self, start: float, end: float) -> None:
        """Count one stretch."""
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    @property
    def seconds(self) -> float:
        """The length of the union so far."""
        return sum(end - start for start, end in zip(self._starts, self._ends, strict=True))


def failed_keys(rollouts: Path) -> dict[str, int]:
    """Keys in the failures file beside a rollouts file, each with its number of attempts."""
    path = beside(rollouts, "failures.jsonl")
    found: dict[str, int] = {}
    if path.exists():
        for _, line in read_lines(path):
            try:
                key = orjson.loads(line)["key"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue  # a torn line: its rollout is not in the rollouts file either and runs again
            if isinstance(key, str):
                found[key] = found.get(key, 0) + 1
    return found


def tally_file(path: Path, tally: Tally, *, end: int | None = None) -> tuple[list[str], set[str]]:
    """Feed a file to a tally. Returns what could not be read, one line each, and the keys that only failed."""
    unreadable: list[str] = []
    failed = set(failed_keys(path))
    for number, line in read_lines(path, end=end, mendable=True):
        try:
            row = orjson.loads(line)
            tally.add(row)
            if failed:
                failed.discard((row.get("meta") or {}).get("key"))
        except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
            unreadable.append(f"{path}:{number}: not a rollout; it is not counted")
    return unreadable, failed


def read_metrics(path: Path) -> tuple[Json, list[str]]:
    """The metrics of a rollouts file, and notes about lines that could not be read."""
    tally = Tally()
    notes, failed = tally_file(path, tally)
    return tally.metrics(failed=len(failed)), notes
