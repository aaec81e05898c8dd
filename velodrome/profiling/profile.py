"""Where the time of a collection's rollouts went: one pass over the rows, in memory that does not grow with them.

The collector feeds a `Profile` row by row; `profiling/profile_file.py` feeds one from files. Both give the same object,
because all of it comes from the rows, in the order they were finished in. A row that is not a rollout, or whose times
are not times, is named in `notes` and counts nowhere.
"""

from __future__ import annotations

import heapq
from math import isfinite
from typing import Any

from velodrome.profiling.call_times import AT_ONCE, CallTimes, row_flaw, waited_us
from velodrome.profiling.sample import FEWEST, RecordedAttempt, RunSample
from velodrome.profiling.series import Series
from velodrome.records.bounds import MAX_TOKENS
from velodrome.records.facts import PARTS, timed_parts
from velodrome.records.mending import HOSTILE, LATEST_S, LONGEST_S
from velodrome.stats.stretches import Stretches
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

SLOWEST = 10
_MOST_TOOLS = 100
_OTHER_TOOLS = "tool:(others)"
_MOST_NOTES = 20
_MOST_FAILED = 100_000
_MOST_NODES = 10_000  # of one tree; what the collector writes has 200
_CLOSED = frozenset(("model", "queue", "connection", "backoff", "session"))  # below these there is no tool and no judge
_NAMES = {
    "queue": "Queue",
    "connection": "Connection",
    "session": "Session",
    "model": "Model",
    "backoff": "Back-off",
    "tools": "Tools",
    "verify": "Verify",
    "write": "Write",
    "other": "Other",
}
_NOT_WORTH_A_LINE_S = 50e-6
_ONLY_WHEN_ANY = ("connection", "session", "backoff")
_SHOWN = 10  # tools that have a line of their own in the tree
_DRAWN = ("total", "model", "tools", "verify", "queue")


class Profile:
    """A running summary of rollouts. `where` is the name of their file in notes."""

    def __init__(self, where: str = "rollouts.jsonl") -> None:
        self.where = where
        self.rollouts = 0
        self.ordered = True  # whether attempts came in the order they were finished in, which runs and samples rest on
        self._last = (0.0, 0, "")
        self._untimed = 0
        self._notes: list[str] = []
        self._more_notes = 0
        self._line = 0
        self._total, self._write = Quantiles(), Quantiles()
        self._parts = [Quantiles() for _ in PARTS]
        self._fresh: list[tuple[float, ...]] = []
        self._tools: dict[str, CallTimes] = {}
        self._judge = CallTimes()
        self._model_calls = self._retries = self._rate_limited = self._bytes = 0
        self._active = Stretches()  # of all attempts; in `active_s` only those that were kept count
        self._kept = Stretches()
        self._series = Series()
        self._in_flight = 0.0
        self._loads = 0
        self._limit: int | None = None
        self._cpu_sum = self._cpu_max = 0.0
        self._lags = Quantiles()
        self._lag_s, self._lag_times = -1.0, 0
        self._slowest: list[tuple[float, int, Json]] = []
        self._failed: set[int] = set()
        self._failed_more = 0
        self._run = RunSample()
        self._earlier, self._earlier_s = self._run, 0.0  # the last run but this that had enough rollouts for a verdict

    def add(self, row: Json, *, line: int | None = None, size: int = 0) -> None:
        """Count one rollout of so many bytes. Without `line` it is in the line after the last."""
        self._line = line = self._line + 1 if line is None else line
        try:
            meta = row["meta"]
            timing = meta["timing"]
            total, parts = timed_parts(timing)
            end = meta.get("finished_at") or 0.0
            calls, write_s = timing.get("model_calls", 0), timing.get("write_s", 0.0)
            if not (0 <= end < LATEST_S and 0 <= calls < 1e9 and 0 <= write_s < LONGEST_S):
                raise ValueError(end)
        except HOSTILE:
            self._untimed += 1
            self.note(f"{self.where}:{line}: {row_flaw(row)}; it is not counted")
            return
        self.rollouts += 1
        self._bytes += size
        self._model_calls += calls
        self._fresh.append((total, *parts, write_s))
        if len(self._fresh) >= AT_ONCE:
            self._settle()
        tree = timing.get("tree")
        nodes = self._walk(tree) if tree else 0
        slowest = self._slowest
        if len(slowest) < SLOWEST or total > slowest[0][0]:
            heapq.heappush(slowest, (total, -self.rollouts, _slow(total, line, self.where, row)))
            if len(slowest) > SLOWEST:
                heapq.heappop(slowest)
        if self._failed:
            self._failed.discard(hash(str(meta.get("key"))))
        if end:
            key = str(meta.get("key"))
            self._check_order((end, 1, key))
            self._place(RecordedAttempt(end - total, total, timing, True, nodes, key), end)
            agent = meta.get("agent")
            self._run.agent = agent if isinstance(agent, str) else None

    def fail(self, failure: Json) -> None:
        """Count one failed attempt. What is not a failure is left out."""
        try:
            if not isinstance(failure["key"], str):
                return
            key, timing = hash(failure["key"]), failure["timing"]
            total, _ = timed_parts(timing)
            end = failure.get("finished_at") or 0.0
            if not 0 <= end < LATEST_S:
                raise ValueError(end)
        except HOSTILE:
            return
        if len(self._failed) < _MOST_FAILED:
            self._failed.add(key)
        else:
            self._failed_more += 1
        if end:
            self._check_order((end, 0, failure["key"]))
            self._place(RecordedAttempt(end - total, total, timing, False, 0, failure["key"]), end)

    def _check_order(self, attempt: tuple[float, int, str]) -> None:
        self.ordered = self.ordered and attempt >= self._last
        self._last = attempt

    def note(self, text: str) -> None:
        """Add a note on the file; the first few are kept."""
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text)
        else:
            self._more_notes += 1

    def _settle(self) -> None:
        """Sort the times of the last rollouts into their histograms."""
        columns = zip(*self._fresh, strict=True)
        for times, seconds in zip((self._total, *self._parts, self._write), columns, strict=False):
            times.extend(seconds)
        self._fresh.clear()

    def _walk(self, tree: list[Any]) -> int:
        """Count the calls of tools and of the judge; a tree with a mistake is left out from there on."""
        todo = []
        try:
            todo = list(tree)
            for node in todo:  # which grows meanwhile
                name = node[0]
                if name in _CLOSED:
                    continue
                below = node[4]
                if name[:5] == "tool:":
                    calls = self._tools.get(name)
                    (self._new_tool(name) if calls is None else calls).add(node[2] - waited_us(below), node[3])
                elif name == "judge":
                    self._judge.add(node[2] - waited_us(below), node[3])
                if below and len(todo) < _MOST_NODES:
                    todo += below
        except HOSTILE:
            pass
        return len(todo)

    def _new_tool(self, name: str) -> CallTimes:
        if len(self._tools) >= _MOST_TOOLS:  # a model may make names up
            name = _OTHER_TOOLS
        return self._tools.setdefault(name, CallTimes())

    def _place(self, attempt: RecordedAttempt, end: float) -> None:
        """Put an attempt where it belongs in time: the series, and the sample if it is of the latest run."""
        read = attempt.timing.get
        in_flight, cpu, lag_s = read("in_flight"), read("cpu"), read("lag_s", 0.0)
        try:
            if in_flight is not None:
                limit = read("limit", 0)
                if not (0 <= in_flight < 1e9 and 0 <= limit < 1e9):
                    raise ValueError(in_flight)
                self._loads += 1
                self._in_flight += in_flight
                self._limit = limit
            if cpu is not None:
                if not (0 <= cpu < 1e6 and 0 <= lag_s < LONGEST_S):
                    raise ValueError(cpu)
                self._cpu_sum += cpu
                if lag_s == self._lag_s:  # rows between two samples say the same
                    self._lag_times += 1
                else:
                    self._add_lag(lag_s)
                if cpu > self._cpu_max:
                    self._cpu_max = cpu
            retries, limited = read("retries", 0), read("rate_limited", 0)
            if (retries or limited) and 0 <= retries <= MAX_TOKENS and 0 <= limited <= MAX_TOKENS:
                self._retries += int(retries)
                self._rate_limited += int(limited)
        except HOSTILE:
            in_flight = cpu = None
        active = self._active
        if active.add(attempt.start, end):
            if self._run.kept >= FEWEST:
                self._earlier, self._earlier_s = self._run, active.before_s
            self._run = RunSample()
        if end >= active.lo:
            self._run.add(attempt)
        if attempt.kept:
            self._kept.add(attempt.start, end)
            self._series.add(attempt.start, end, in_flight, cpu, lag_s)

    def _add_lag(self, next_s: float) -> None:
        if self._lag_times:
            self._lags.add(self._lag_s, self._lag_times)
        self._lag_s, self._lag_times = next_s, 1

    def tree(self, verdict: Json | None = None) -> list[Json]:
        """The lines of the tree. The mark is on what the verdict names; without one, on the longest part."""
        self._settle()
        total_ms = 1e3 * self._total.mean
        lines = [self._line_of("Rollout Total", "total", 0, self._total, 1.0)]
        for part, times in zip(PARTS[:-1], self._parts, strict=False):
            if part in _ONLY_WHEN_ANY and times.sum <= _NOT_WORTH_A_LINE_S * self.rollouts:
                continue
            lines.append(self._line_of(_NAMES[part], part, 1, times, self._calls(part)))
            lines += self._below(part)
        if self._write.high:
            lines.append(self._line_of(_NAMES["write"], "write", 1, self._write, None))
        lines.append(self._line_of(_NAMES["other"], "other", 1, self._parts[-1], None))
        parts = [line for line in lines if line["depth"] == 1 and line["part"] not in ("write", "other")]
        lines[-1]["mean_ms"] = max(total_ms - sum(line["mean_ms"] for line in parts), 0.0)
        if verdict is None:
            bottleneck = max((*parts, lines[-1]), key=lambda line: line["mean_ms"])["part"]
        else:
            bottleneck = _marked(verdict, {line["part"] for line in lines[1:]})
        for line in lines:
            line["share"] = line["mean_ms"] / total_ms if total_ms else 0.0
            line["bottleneck"] = bool(self.rollouts) and line["part"] == bottleneck and line["depth"] > 0
        return lines

    def _below(self, part: str) -> list[Json]:
        if part == "tools":
            tools = sorted(self._tools.items(), key=lambda each: -each[1].times.sum)
            lines = [
                self._line_of(name[5:], name, 2, calls.times, self._each(calls.times)) for name, calls in tools[:_SHOWN]
            ]
            rest = Quantiles()
            for _, calls in tools[_SHOWN:]:
                rest.merge(calls.times)
            what = f"{len(tools) - _SHOWN} others"
            return [*lines, self._line_of(what, "tools", 2, rest, self._each(rest))] if rest.count else lines
        if part == "verify" and self._judge.times.count:
            return [self._line_of("judge", "judge", 2, self._judge.times, self._each(self._judge.times))]
        return []

    def _calls(self, part: str) -> float | None:
        """CallTimes a rollout, of the parts that are made of calls."""
        if part == "model":
            return self._model_calls / (self.rollouts or 1)
        if part == "tools":
            return sum(calls.times.count for calls in self._tools.values()) / (self.rollouts or 1)
        return None

    def _each(self, times: Quantiles) -> float:
        return times.count / (self.rollouts or 1)

    def _line_of(self, name: str, part: str, depth: int, times: Quantiles, calls: float | None) -> Json:
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
            "calls": calls,
            "bottleneck": False,
        }

    def report(self, config: Json | None = None) -> Json:
        """Everything, as docs/profiling.md names it. `config` is the resolved one, for the names in the advice."""
        self._settle()
        run, run_s = self._run, self._active.hi - self._active.lo
        if run.kept < FEWEST <= self._earlier.kept:
            run, run_s = self._earlier, self._earlier_s
        from velodrome.profiling.verdict import make_verdict  # needed once, at the end of a run

        verdict = make_verdict(run, run_s, config)
        seconds = self._kept.seconds
        histograms = {}
        for part in _DRAWN:
            times = self._total if part == "total" else self._parts[PARTS.index(part)]
            edges, counts = times.bins()
            histograms[part] = {"edges_ms": [1e3 * edge for edge in edges], "counts": counts}
        rows = self.rollouts + self._untimed
        notes = [f"{self.rollouts:,} of {rows:,} rollouts have times"] if self._untimed else []
        notes += [*self._notes, f"and {self._more_notes} more like these"] if self._more_notes else self._notes
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
            "tools": self._tools_json(),
            "slowest": [each[2] for each in sorted(self._slowest, key=lambda each: each[:2], reverse=True)],
            "notes": notes,
            "verdict": verdict,
        }

    def _load(self) -> Json:
        lags = Quantiles()
        lags.merge(self._lags)
        if self._lag_times:
            lags.add(self._lag_s, self._lag_times)
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

    def _tools_json(self) -> list[Json]:
        tools = sorted(self._tools.items(), key=lambda each: -each[1].times.sum)
        return [
            {
                "name": name[5:],
                "calls": calls.times.count,
                "mean_ms": 1e3 * calls.times.mean,
                "p50_ms": 1e3 * calls.times.quantile(0.5),
                "p99_ms": 1e3 * calls.times.quantile(0.99),
                "cpu_ms": calls.cpu_us / 1e3 / (calls.times.count or 1),
                "held_ms": calls.held_us / 1e3 / (calls.times.count or 1),
            }
            for name, calls in tools
        ]


def _marked(verdict: Json, shown: set[str]) -> str | None:
    """The part, of those shown, that the verdict names; of a tool that is not shown by itself, the tools."""
    part: str | None = verdict["part"]
    if verdict["bound"] == "unknown" or part is None:
        return None
    return "tools" if part not in shown and part.startswith("tool:") else part


def _slow(total: float, line: int, where: str, row: Json) -> Json:
    meta, reward = row["meta"], row.get("reward")
    known = isinstance(reward, int | float) and isfinite(reward)
    tree = meta["timing"].get("tree")
    return {
        "key": str(meta.get("key")),
        "line": line,
        "file": where,
        "total_s": total,
        "reward": reward if known else None,
        "tree": tree if isinstance(tree, list) else [],
    }
