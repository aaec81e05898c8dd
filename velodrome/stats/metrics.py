"""The numbers of a collection: means, tokens, throughput, pass@k, in one streaming pass.

The collector feeds a `Tally` row by row; `read_metrics` feeds one from a file. Both give the same numbers, because
all of them come from the rows. A value that is absent or null is not counted: a deferred reward is not a zero. A value
of a wrong type or a NaN is not counted either, and a note reports it; the rest of its row is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from typing import Any

from velodrome.records.bounds import MAX_TOKENS
from velodrome.records.facts import RowFacts
from velodrome.records.outcomes import FINISHED, OUTCOMES
from velodrome.records.rows import Unread, read_facts, read_failures
from velodrome.stats.exact import Moments, mean_of
from velodrome.stats.stretches import Stretches
from velodrome.timing.report import clean

Json = dict[str, Any]

PASS_REWARD = 1.0


class Tally:
    """Running sums over rollouts. Memory does not grow with rows, but with tasks while `by_task` is on."""

    def __init__(self, *, by_task: bool = True, pass_at: float = PASS_REWARD) -> None:
        self.rows = 0
        self.deferred = 0
        self.incomplete = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.tool_calls = 0
        self._input_tokens = self._output_tokens = self.total_tokens = 0
        self._means: dict[str, Moments] = {"reward": Moments()}
        self.scored = {"reward"}  # fields that `verify` returned in at least one row
        self._infinite: dict[str, int] = {}  # by field: how many of its numbers are NaN or infinite
        self._wrong: dict[str, int] = {}  # by part: rows that have it in a wrong type
        self._damaged: dict[str, int] = {}  # by count: rows with an impossible number
        self._active = Stretches()
        self._scored_later = False  # by velo verify, so the times are not of this run
        self._pass_at = pass_at
        self._passes: dict[int, tuple[int, int]] | None = {} if by_task else None
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}  # shares equal pairs: many tasks, few different pairs

    def add(self, facts: RowFacts) -> None:
        self.rows += 1
        self.tool_calls += facts.tool_calls
        means = self._means
        for name, value in facts.numbers.items():
            if name not in means:
                means[name] = Moments()
            means[name].add(value)
        if not self.scored.issuperset(facts.numbers):
            self.scored.update(facts.scored.intersection(facts.numbers))
        for counts, names in (
            (self._infinite, facts.not_finite),
            (self._wrong, facts.wrong),
            (self._damaged, facts.damaged),
        ):
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        self._input_tokens += facts.input_tokens or 0
        self._output_tokens += facts.output_tokens or 0
        self.total_tokens += facts.total_tokens or 0
        self.deferred += facts.deferred
        self.incomplete += facts.status == "incomplete"
        self.outcomes[facts.outcome] += 1
        self._scored_later = self._scored_later or "verify_later_s" in facts.timing
        if facts.finished_at is not None:
            self._active.add(facts.finished_at - (facts.total_s or 0.0), facts.finished_at)
        reward, task = facts.reward, facts.task
        if reward is not None and task is not None and self._passes is not None:
            place = hash(task)
            tries, passed = self._passes.get(place, (0, 0))
            pair = (tries + 1, passed + (reward >= self._pass_at))
            self._passes[place] = self._pairs.setdefault(pair, pair)

    def notes(self) -> list[str]:
        """The values that are not counted, and why."""
        notes = []
        for name, count in sorted(self._wrong.items()):
            what = f"{clean(name)}: {count:,} of {self.rows:,} rollouts have it in a wrong type"
            notes.append(f"{what}; they are counted without it")
        for name, count in sorted(self._damaged.items()):
            what = f"{name}: {count:,} of {self.rows:,} rollouts have a number there that is below 0 or beyond"
            notes.append(f"{what} {MAX_TOKENS:,}, so it is damaged; they are counted without it")
        for name, count in sorted(self._infinite.items()):
            counted = self._means[name].n if name in self._means else 0
            what = f"{counted:,} of {counted + count:,} numbers are counted; the rest are NaN or infinite"
            notes.append(f"{clean(name)}: {what}")
        return notes

    def mean(self, name: str) -> float | None:
        return self._means[name].mean if name in self._means else None

    def metrics(self, *, failed: int = 0) -> Json:
        """Everything, under the names of docs/metrics.md."""
        names = sorted(self.scored & self._means.keys(), key=lambda name: (name != "reward", name))
        metrics: Json = {name: mean for name in names if (mean := self.mean(name)) is not None}
        counts = {f"n/{name}": self._means[name].n for name in metrics if self._means[name].n < self.rows}
        if self.rows:
            metrics.setdefault("avg_tool_calls", self.tool_calls / self.rows)
        metrics["rollouts/kept"] = self.rows
        metrics["rollouts/failed"] = failed
        if self.deferred:
            metrics["rollouts/deferred"] = self.deferred
        if self.incomplete:
            metrics["rollouts/incomplete"] = self.incomplete
        for outcome, count in self.outcomes.items():
            if count and outcome != FINISHED:
                metrics[f"stopped/{outcome}"] = count
        metrics["tokens/input"] = self._input_tokens
        metrics["tokens/output"] = self._output_tokens
        metrics["tokens/total"] = self.total_tokens
        seconds = self._active.seconds
        if seconds > 0 and not self._scored_later:
            metrics["throughput/active_s"] = round(seconds, 6)
            metrics["throughput/samples_per_s"] = self.rows / seconds
            metrics["throughput/tokens_per_s"] = metrics["tokens/total"] / seconds
        metrics.update(self._pass_rates() | counts)
        return metrics

    def _pass_rates(self) -> Json:
        """pass@k; and the number of tasks of each, if some tasks have too few rollouts for a k."""
        tries = list((self._passes or {}).values())
        most = largest_k([n for n, _ in tries])
        if most < 2:
            return {}
        passes: Json = {}
        tasks = {}
        for k in sizes(most):
            rates = [pass_at_k(n, passed, k) for n, passed in tries if n >= k]
            passes[f"pass@{k}"] = mean_of(rates)
            tasks[f"tasks/pass@{k}"] = len(rates)
        return passes if len(set(tasks.values())) == 1 else passes | tasks


def largest_k(tries: Sequence[int]) -> int:
    """The most scored rollouts that at least half of the tasks have; tasks without any are left out."""
    scored = sorted((n for n in tries if n), reverse=True)
    return scored[(len(scored) - 1) // 2] if scored else 0


def sizes(most: int) -> list[int]:
    """1, 2, 4, … up to `most`, and `most` itself."""
    return sorted({most, *(2**power for power in range(most.bit_length()))} - {0})


def pass_at_k(n: int, passed: int, k: int) -> float:
    """The chance that at least one of k tries, drawn from n without replacement, passed."""
    return 1.0 - comb(n - passed, k) / comb(n, k)


def failed_keys(rollouts: Path) -> dict[str, int]:
    """The keys in the failures file beside a rollouts file, with the number of failed attempts."""
    keys: dict[str, int] = {}
    for failure in read_failures(rollouts):
        if failure.key is not None:
            keys[failure.key] = keys.get(failure.key, 0) + 1
    return keys


@dataclass
class ReadResult:
    """The result of reading files: keys that only failed, and notes on rollouts that were not counted."""

    failed: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def read_shards(paths: Sequence[Path], add: Callable[[RowFacts], object]) -> ReadResult:
    """Pass every rollout of the files to `add`. A key that is in several files is read from the first of them."""
    result = ReadResult(failed={key for path in paths for key in failed_keys(path)})
    first_file: dict[str, dict[int, int]] = {}  # of each task and repeat
    for file_index, path in enumerate(paths):
        unread = Unread(path)
        rows = duplicates = 0
        for facts in read_facts(path, unread):
            rows += 1
            if facts.key is not None:
                if len(paths) > 1:
                    task, repeat = (facts.key, -1) if facts.task is None else (facts.task, facts.repeat)
                    if first_file.setdefault(task, {}).setdefault(repeat, file_index) < file_index:
                        duplicates += 1
                        continue
                result.failed.discard(facts.key)
            add(facts)
        result.notes += unread.notes
        if duplicates:
            result.notes.append(
                f"{path}: {duplicates} of its {rows} rollouts have keys that an earlier file has; each key is counted "
                "once, from the file named first (velo compare sets two runs side by side)"
            )
    return result


def read_metrics(*paths: Path) -> tuple[Json, list[str]]:
    """The metrics of rollouts files, read as one run, and notes on values that are not counted."""
    tally = Tally()
    result = read_shards(paths, tally.add)
    return tally.metrics(failed=len(result.failed)), [*result.notes, *tally.notes()]
