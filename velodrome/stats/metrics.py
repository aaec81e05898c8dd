"""The numbers of a collection: means, tokens, throughput, pass@k, in one streaming pass.

The collector feeds a `Tally` row by row; `read_metrics` feeds one from a file. Both give the same numbers, because
every one of them comes from the rows. A value that is absent or null counts nowhere: a deferred reward is not a
zero. Nor does one of a wrong type, or one that is NaN; its row counts all the same, and a note says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, isfinite
from pathlib import Path
from typing import Any

from velodrome.records.bounds import MAX_TOKENS, is_count
from velodrome.records.rollout import beside, split_key
from velodrome.records.rows import read_rows
from velodrome.records.unread import Unread
from velodrome.stats.exact import Mean, mean_of
from velodrome.stats.mend import LATEST_S, mended
from velodrome.stats.parts import HOSTILE, LONGEST_S
from velodrome.stats.series import Stretches
from velodrome.timing.report import clean

Json = dict[str, Any]

PASS_REWARD = 1.0
_NAMES = frozenset({"id", "task_id"})  # a number here is a name, not a measure
_TOKENS = ("input_tokens", "output_tokens", "total_tokens")


class Tally:
    """Running sums over rollouts. Memory does not grow with rows, but with tasks while `by_task` is on."""

    def __init__(self, *, by_task: bool = True, pass_at: float = PASS_REWARD) -> None:
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.tool_calls = 0
        self.tokens: dict[str, int] = {}
        self._means: dict[str, Mean] = {"reward": Mean()}
        self._infinite: dict[str, int] = {}  # of a field, how many of its numbers are none to count with
        self._wrong: dict[str, int] = {}  # of a part, how many rows have it in a wrong type
        self._damaged: dict[str, int] = {}  # of a count, how many rows have one that cannot be
        self._active = Stretches()
        self._pass_at = pass_at
        self._passes: dict[int, tuple[int, int]] | None = {} if by_task else None
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}  # equal ones are one object: tasks are many, pairs few

    def add(self, row: Json) -> Json:
        """Count one rollout. Gives it as it was counted: without what has a wrong type."""
        try:
            tool_calls, usage, meta, response, stretch, task = self._parts(row)
        except HOSTILE:
            row, wrong = mended(row)
            tool_calls, usage, meta, response, stretch, task = self._parts(row)
            for name in wrong:
                self._leave_out(name)
        self.rows += 1
        self.tool_calls += tool_calls
        means = self._means
        for name, value in row.items():
            if isinstance(value, int | float) and name not in _NAMES:
                if isfinite(value):
                    if name not in means:
                        means[name] = Mean()
                    means[name].add(value)
                else:
                    self._infinite[name] = self._infinite.get(name, 0) + 1
        for name in _TOKENS:
            value = usage.get(name)
            if is_count(value):
                self.tokens[name] = self.tokens.get(name, 0) + value
            elif value is not None:
                self._leave_out(f"usage.{name}", damaged=type(value) is int)
        self.deferred += meta.get("verification") == "deferred"
        self.incomplete += response.get("status") == "incomplete"
        if stretch is not None:
            self._active.add(*stretch)
        reward = row.get("reward")
        if not isinstance(reward, int | float):
            if reward is not None:
                self._leave_out("reward")
        elif task is not None and self._passes is not None and isfinite(reward):
            tries, passed = self._passes.get(task, (0, 0))
            pair = (tries + 1, passed + (reward >= self._pass_at))
            self._passes[task] = self._pairs.setdefault(pair, pair)
        return row

    def _parts(self, row: Json) -> tuple[int, Json, Json, Json, tuple[float, float] | None, int | None]:
        """Tool calls, usage, meta, response, from when to when, and a hash of the task. A wrong type raises."""
        tool_calls = sum(len(message.get("tool_calls") or ()) for message in row.get("output") or ())
        usage, meta, response = row.get("usage") or {}, row.get("meta") or {}, row.get("response") or {}
        if not (type(usage) is type(meta) is type(response) is dict):
            raise TypeError
        finished, total = meta.get("finished_at"), (meta.get("timing") or {}).get("total_s") or 0.0
        stretch = task = None
        if not 0 <= total < LONGEST_S:
            raise ValueError(total)
        if finished is not None:
            if not abs(finished) < LATEST_S:
                raise ValueError(finished)
            stretch = finished - total, finished
        if self._passes is not None and meta.get("key") is not None:
            task = hash(split_key(meta["key"])[0])
        return tool_calls, usage, meta, response, stretch, task

    def _leave_out(self, name: str, *, damaged: bool = False) -> None:
        counts = self._damaged if damaged else self._wrong
        counts[name] = counts.get(name, 0) + 1

    def notes(self) -> list[str]:
        """What of the rows is in no number, and why."""
        found = []
        for name, count in sorted(self._wrong.items()):
            what = f"{clean(name)}: {count:,} of {self.rows:,} rollouts have it in a wrong type"
            found.append(f"{what}; they are counted without it")
        for name, count in sorted(self._damaged.items()):
            what = f"{name}: {count:,} of {self.rows:,} rollouts have a number there that is below 0 or beyond"
            found.append(f"{what} {MAX_TOKENS:,}, so it is damaged; they are counted without it")
        for name, count in sorted(self._infinite.items()):
            counted = self._means[name].count if name in self._means else 0
            what = f"{counted:,} of {counted + count:,} numbers are counted; the rest are NaN or infinite"
            found.append(f"{clean(name)}: {what}")
        return found

    def mean(self, name: str) -> float | None:
        """The mean of one field over the rows that have it."""
        return self._means[name].value if name in self._means else None

    def metrics(self, *, failed: int = 0) -> Json:
        """Everything, under the names of docs/metrics.md."""
        means = {name: self.mean(name) for name in sorted(self._means, key=lambda name: (name != "reward", name))}
        found: Json = {name: mean for name, mean in means.items() if mean is not None}
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
        """pass@k; and where some tasks have too few rollouts for one of them, over how many tasks each is."""
        tries = list((self._passes or {}).values())
        most = largest_k([n for n, _ in tries])
        if most < 2:
            return {}
        found: Json = {}
        tasks = {}
        for k in sizes(most):
            rates = [pass_at_k(n, passed, k) for n, passed in tries if n >= k]
            found[f"pass@{k}"] = mean_of(rates)
            tasks[f"tasks/pass@{k}"] = len(rates)
        return found if len(set(tasks.values())) == 1 else found | tasks


def largest_k(tries: Sequence[int]) -> int:
    """The most scored rollouts that at least half of the tasks have; those without any are none."""
    scored = sorted((n for n in tries if n), reverse=True)
    return scored[(len(scored) - 1) // 2] if scored else 0


def sizes(most: int) -> list[int]:
    """1, 2, 4, … and the most."""
    return sorted({most, *(2**power for power in range(most.bit_length()))} - {0})


def pass_at_k(n: int, passed: int, k: int) -> float:
    """The chance that k of n tries, drawn without putting back, hold at least one that passed."""
    return 1.0 - comb(n - passed, k) / comb(n, k)


def failed_keys(rollouts: Path) -> dict[str, int]:
    """Keys in the failures file beside a rollouts file, each with its number of attempts."""
    path = beside(rollouts, "failures.jsonl")
    found: dict[str, int] = {}
    if path.exists():
        for _, failure, _ in read_rows(path, Unread(path)):  # of a torn line the rollout runs again
            key = failure.get("key")
            if isinstance(key, str):
                found[key] = found.get(key, 0) + 1
    return found


def tally_file(path: Path, tally: Tally) -> tuple[list[str], set[str]]:
    """Feed a file to a tally. Returns what could not be read, one line each, and the keys that only failed."""
    unread = Unread(path)
    failed = set(failed_keys(path))
    for _, row, _ in read_rows(path, unread):
        counted = tally.add(row)
        if failed:
            failed.discard((counted.get("meta") or {}).get("key"))
    return unread.notes, failed


def read_metrics(path: Path) -> tuple[Json, list[str]]:
    """The metrics of a rollouts file, and notes about what is in none of them."""
    tally = Tally()
    notes, failed = tally_file(path, tally)
    return tally.metrics(failed=len(failed)), [*notes, *tally.notes()]
