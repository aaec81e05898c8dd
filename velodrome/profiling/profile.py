"""Where the time of a collection's rollouts went: one pass over the rows, in memory that does not grow with them.

The collector feeds a `Profile` row by row; `make_profile` feeds one from files. Both give the same object, because all
of it comes from the rows, in the order in which they finished. A collection writes them in that order, so one pass is
enough; other files are sorted first. A row without times is reported in `notes` and not counted.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from collections import deque
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from velodrome.profiling.call_times import TreeCalls
from velodrome.profiling.config_blocks import read_config
from velodrome.profiling.sample import FEWEST, RecordedAttempt, RunSample
from velodrome.profiling.series import Series
from velodrome.records.facts import RowFacts
from velodrome.records.row_times import PARTS, RowTimes
from velodrome.records.rows import Notes, Unread, read_attempts
from velodrome.stats.stretches import Stretches
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]
Attempts = Iterator[tuple[str, RowFacts]]  # each with the name of its file

SLOWEST = 10
_READ = ("meta", "reward")  # what a profile reads of a rollout
_MOST_FAILED = 100_000  # failed keys that are remembered; the rest are only counted
_MOST_CHANGES = 200  # of the limit; the last ones are kept
_NAMES = {
    "queue": "Queue",
    "connection": "Connection",
    "session": "Session",
    "model": "Model",
    "backoff": "Back-off",
    "tools": "Tools",
    "verify": "Verify",
}
_NOT_WORTH_A_LINE_S = 50e-6
_ONLY_WHEN_ANY = ("connection", "session", "backoff")
_SHOWN = 10  # tools that have a line of their own in the tree
_LONGER = 1.001  # times as long: a difference that shows
_DRAWN = ("total", "model", "tools", "verify", "queue")


class Profile:
    """A running summary of rollouts. `where` is the name of their file in notes."""

    def __init__(self, where: str = "rollouts.jsonl") -> None:
        self.where = where
        self.rollouts = 0
        self.ordered = True  # whether attempts came in the order of their ends, as runs and samples require
        self._last = (0.0, False, "")
        self._untimed = 0
        self._notes = Notes()
        self._line = 0
        self._total, self._write, self._lags = Quantiles(), Quantiles(), Quantiles()
        self._parts = [Quantiles() for _ in PARTS]
        self._calls = TreeCalls()
        self._model_calls = self._retries = self._rate_limited = self._bytes = 0
        self._active = Stretches()  # of all attempts; in `active_s` only those that were kept count
        self._kept = Stretches()
        self._series = Series()
        self._in_flight = self._loads = 0
        self._limit: int | None = None
        self._pace: deque[Json] = deque(maxlen=_MOST_CHANGES)
        self._cpu_sum = self._cpu_max = 0.0
        self._slowest: list[tuple[float, int, Json]] = []
        self._failed: set[int] = set()
        self._failed_more = 0
        self._run = RunSample()
        self._earlier, self._earlier_s = self._run, 0.0  # the previous run with enough rollouts for a verdict

    def add(self, facts: RowFacts) -> None:
        """Count one rollout or one failed attempt. A rollout without a line number is in the next line."""
        times = facts.times
        if facts.failed:
            self._fail(facts, times)
            return
        self._line = line = facts.line or self._line + 1
        if times is None:
            self._untimed += 1
            self.note(f"{self.where}:{line}: it has no times; it is not counted")
            return
        self.rollouts += 1
        self._bytes += facts.size
        self._model_calls += times.model_calls
        total = times.total_s
        self._total.add(total)
        for part, seconds in zip(self._parts, times.parts, strict=True):
            part.add(seconds)
        self._write.add(times.write_s or 0.0)
        self._calls.add(times.tree)
        slowest = self._slowest
        if len(slowest) < SLOWEST or total > slowest[0][0]:
            heapq.heappush(slowest, (total, -self.rollouts, _slow(facts, times, line, self.where)))
            if len(slowest) > SLOWEST:
                heapq.heappop(slowest)
        self._failed.discard(hash(facts.key))
        self._place(facts, times)

    def _fail(self, facts: RowFacts, times: RowTimes | None) -> None:
        if facts.key is None or times is None:
            return
        key = hash(facts.key)
        if len(self._failed) < _MOST_FAILED:
            self._failed.add(key)
        elif key not in self._failed:
            self._failed_more += 1
        self._place(facts, times)

    def note(self, text: str) -> None:
        """Add a note on the file; the first few are kept."""
        self._notes.add(text)

    def _place(self, facts: RowFacts, times: RowTimes) -> None:
        """Add an attempt to the series, and to the sample if it is of the latest run."""
        if times.retries or times.rate_limited:
            self._retries += times.retries
            self._rate_limited += times.rate_limited
        end = facts.finished_at
        if not end or end < 0:
            return
        kept, key = not facts.failed, facts.key or ""
        place = (end, kept, key)
        self.ordered = self.ordered and place >= self._last
        self._last = place
        in_flight, cpu, lag_s = times.in_flight, times.cpu, times.lag_s or 0.0
        if in_flight is not None:
            self._loads += 1
            self._in_flight += in_flight
            self._limit = times.limit
        if times.pace:
            self._pace += [{"at": end, "from": a, "to": b, "why": why} for a, b, why in times.pace]
        if cpu is not None:
            self._cpu_sum += cpu
            self._lags.add(lag_s)
            if cpu > self._cpu_max:
                self._cpu_max = cpu
        start, active = end - times.total_s, self._active
        if active.add(start, end):
            if self._run.kept >= FEWEST:
                self._earlier, self._earlier_s = self._run, active.before_s
            self._run = RunSample()
        if end >= active.lo:
            self._run.add(RecordedAttempt(start, times, kept, key))
        if kept:
            self._run.agent = facts.agent or None
            self._kept.add(start, end)
            self._series.add(start, end, in_flight, cpu, lag_s)

    def tree(self, verdict: Json | None = None) -> list[Json]:
        """The lines of the tree. The part of the verdict is marked; without a verdict, the longest.

        The parts and Other add up to the total. Write follows it: a row cannot include the time of writing itself.
        """
        lines = [self._line_of("Rollout Total", "total", 0, self._total, 1.0)]
        total_ms = lines[0]["mean_ms"]
        for part, times in zip(PARTS[:-1], self._parts, strict=False):
            if part not in _ONLY_WHEN_ANY or times.sum > _NOT_WORTH_A_LINE_S * self.rollouts:
                lines.append(self._line_of(_NAMES[part], part, 1, times, self._calls_per_rollout(part)))
                lines += self._below(part)
        lines.append(self._line_of("Other", "other", 1, self._parts[-1]))
        parts = [line for line in lines if line["depth"] == 1]
        lines[-1]["mean_ms"] = max(total_ms - sum(line["mean_ms"] for line in parts[:-1]), 0.0)
        if verdict is None:
            bottleneck = max(parts, key=lambda line: line["mean_ms"])["part"]
        else:
            bottleneck = _marked(verdict, {line["part"] for line in lines[1:]})
        if self._write.high:
            lines.append(self._line_of("Write", "write", 0, self._write))
        for line in lines:
            part_of_total = line["part"] != "write"
            line["share"] = (line["mean_ms"] / total_ms if total_ms else 0.0) if part_of_total else None
            line["bottleneck"] = bool(self.rollouts) and line["part"] == bottleneck
        return lines

    def _below(self, part: str) -> list[Json]:
        if part == "tools":
            tools = self._calls.tools()
            lines = [self._line_of(name[5:], name, 2, calls.times) for name, calls in tools[:_SHOWN]]
            rest = Quantiles()
            for _, calls in tools[_SHOWN:]:
                rest.merge(calls.times)
            return [*lines, self._line_of(f"{len(tools) - _SHOWN} others", "tools", 2, rest)] if rest.count else lines
        judge = self._calls.judge.times
        return [self._line_of("judge", "judge", 2, judge)] if part == "verify" and judge.count else []

    def _calls_per_rollout(self, part: str) -> float | None:
        """The calls per rollout of a part; None if the part has no calls."""
        if part not in ("model", "tools"):
            return None
        tools = sum(calls.times.count for _, calls in self._calls.tools()) if part == "tools" else 0
        return (self._model_calls if part == "model" else tools) / (self.rollouts or 1)

    def _line_of(self, name: str, part: str, depth: int, times: Quantiles, calls: float | None = None) -> Json:
        """The mean is over all rollouts; percentiles of a part are over rollouts, of a tool or the judge over calls."""
        rollouts = self.rollouts or 1
        return {
            "name": name,
            "part": part,
            "depth": depth,
            "mean_ms": 1e3 * times.sum / rollouts,
            "p50_ms": 1e3 * times.quantile(0.5),
            "p90_ms": 1e3 * times.quantile(0.9),
            "p99_ms": 1e3 * times.quantile(0.99),
            "share": 0.0,
            "calls": times.count / rollouts if depth == 2 else calls,
            "bottleneck": False,
        }

    def report(self, config: Json | None = None) -> Json:
        """The whole profile (docs/profiling.md). `config` is resolved; the names in the advice come from it."""
        run, run_s, whose = self._run, self._active.hi - self._active.lo, "in the last run"
        if run.kept < FEWEST <= self._earlier.kept:
            run, run_s, whose = self._earlier, self._earlier_s, f"in the last run of at least {FEWEST} rollouts"
        if run.kept >= self.rollouts:
            whose = "with the time of failed attempts" if run_s > _LONGER * self._kept.seconds else ""
        from velodrome.profiling.verdict import make_verdict  # needed once, at the end of a run

        verdict = make_verdict(run, run_s, config, whose)
        seconds = self._kept.seconds
        histograms = {}
        for part in _DRAWN:
            times = self._total if part == "total" else self._parts[PARTS.index(part)]
            edges, counts = times.bins()
            histograms[part] = {"edges_ms": [1e3 * edge for edge in edges], "counts": counts}
        rows = self.rollouts + self._untimed
        notes = [f"{self.rollouts:,} of {rows:,} rollouts have times"] if self._untimed else []
        notes += [*self._notes, f"and {self._notes.more} more like these"] if self._notes.more else self._notes
        return {
            "rollouts": self.rollouts,
            "rows": rows,
            "failed": len(self._failed) + self._failed_more,
            "active_s": seconds,
            "rollouts_per_s": self.rollouts / seconds if seconds > 0 else 0.0,
            "tree": self.tree(verdict),
            "load": self._load(),
            "series": self._series.report(self._active),
            "histograms": histograms,
            "tools": [calls.as_json(name[5:]) for name, calls in self._calls.tools()],
            "endpoints": self._calls.endpoints(seconds),
            "pace": list(self._pace),
            "slowest": [each[2] for each in sorted(self._slowest, key=lambda each: each[:2], reverse=True)],
            "notes": notes,
            "verdict": verdict,
        }

    def _load(self) -> Json:
        lags = self._lags
        return {
            "in_flight_mean": self._in_flight / self._loads if self._loads else None,
            "limit": self._limit,
            "cpu_mean": self._cpu_sum / lags.count if lags.count else None,
            "cpu_max": self._cpu_max if lags.count else None,
            "lag_p50_ms": 1e3 * lags.quantile(0.5) if lags.count else None,
            "lag_p99_ms": 1e3 * lags.quantile(0.99) if lags.count else None,
            "rate_limited": self._rate_limited,
            "retries": self._retries,
            "bytes": self._bytes,
        }


def _marked(verdict: Json, shown: set[str]) -> str | None:
    """The part of the verdict; `tools`, if it is a tool without a line in the tree."""
    part: str | None = verdict["part"]
    if verdict["bound"] == "unknown" or part is None:
        return None
    return "tools" if part not in shown and part.startswith("tool:") else part


def _slow(facts: RowFacts, times: RowTimes, line: int, where: str) -> Json:
    reward = facts.reward
    return {
        "key": str(facts.key),
        "line": line,
        "file": where,
        "total_s": times.total_s,
        "reward": reward if reward is not None and isfinite(reward) else None,
        "tree": times.tree,
    }


def read_profile(path: Path, *more: Path) -> Json:
    """The profile of one rollouts file, or of several as if they were one, with the files beside them."""
    files = (path, *more)
    profile = make_profile(*files)
    configs = [config for config in map(read_config, files) if config]
    return profile.report(configs[-1] if configs else None)


def make_profile(*files: Path) -> Profile:
    """A profile of all attempts of these files, in the order in which they finished."""
    profile = _read_profile(files, in_order=True)
    return profile if profile.ordered else _read_profile(files, in_order=False)


def _read_profile(files: tuple[Path, ...], *, in_order: bool) -> Profile:
    profile = Profile()
    unread = [Unread(each) for each in files]
    attempts = (
        (str(each), facts) for each, lost in zip(files, unread, strict=True) for facts in read_attempts(each, lost)
    )
    for profile.where, facts in attempts if in_order else _sorted(attempts):
        profile.add(facts)
        if in_order and not profile.ordered:
            return profile
    for note in (note for each in unread for note in each.notes):
        profile.note(note)
    return profile


def _sorted(attempts: Attempts) -> Attempts:
    """The attempts in the order in which they finished; memory holds their places, not their rows."""
    places: list[tuple[float, bool, str, int, int]] = []
    with tempfile.TemporaryFile(prefix="velodrome-profile-") as spool:
        for where, facts in attempts:
            row = facts.row if facts.failed else {name: facts.row.get(name) for name in _READ}
            data = json.dumps([where, row, facts.line, facts.size, facts.failed]).encode()  # NaN and broken text too
            places.append((facts.finished_at or 0.0, not facts.failed, facts.key or "", spool.tell(), len(data)))
            spool.write(data)
        for *_, at, size in sorted(places):
            spool.seek(at)
            where, row, line, length, failed = json.loads(spool.read(size))
            yield where, RowFacts(row, line=line, size=length, failed=failed)
