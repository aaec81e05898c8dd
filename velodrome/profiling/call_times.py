"""The times of calls of tools, the judge and model endpoints, from the span trees of rollouts."""

from __future__ import annotations

from typing import Any

from velodrome.records.mending import HOSTILE, LONGEST_S
from velodrome.records.row_times import waits_below
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

_MOST_TOOLS = 100
ENDPOINT = "endpoint:"
_OTHER_TOOLS = "tool:(others)"
_LONGEST_US = LONGEST_S * 1e6
_MOST_NODES = 10_000  # of one tree; what the collector writes has 200
_CLOSED = frozenset(("model", "queue", "connection", "backoff", "session"))  # spans without tools and judge below them


class CallTimes:
    """The calls of one tool, or of the judge."""

    def __init__(self) -> None:
        self.times = Quantiles()
        self.cpu_us = self.held_us = 0.0
        self.failed = 0

    def add(self, length_us: float, counts: Json) -> None:
        """Count one call, or several that were folded into one span."""
        if not 0 <= length_us < _LONGEST_US:
            return
        calls = 1
        if counts:
            cpu_us, held_us = counts.get("cpu_us", 0.0) + counts.get("worker_cpu_us", 0.0), counts.get("held_us", 0.0)
            if 0 <= cpu_us < _LONGEST_US and 0 <= held_us < _LONGEST_US:
                self.cpu_us += cpu_us
                self.held_us += held_us
            failed = counts.get("failed", 0)
            if 0 <= failed < LONGEST_S:
                self.failed += int(failed)
            calls = max(int(counts.get("folded") or 1), 1)
        self.times.add(length_us * 1e-6 / calls, calls)

    def times_ms(self) -> Json:
        """The mean call and two percentiles."""
        times = self.times
        return {"mean_ms": 1e3 * times.mean, "p50_ms": 1e3 * times.quantile(0.5), "p99_ms": 1e3 * times.quantile(0.99)}

    def as_json(self, name: str) -> Json:
        """The mean call, in milliseconds."""
        calls = self.times.count
        cpu = {"cpu_ms": self.cpu_us / 1e3 / (calls or 1), "held_ms": self.held_us / 1e3 / (calls or 1)}
        return {"name": name, "calls": calls, **self.times_ms(), **cpu}


class TreeCalls:
    """The calls in all trees so far."""

    def __init__(self) -> None:
        self.judge = CallTimes()
        self._tools: dict[str, CallTimes] = {}
        self._endpoints: dict[str, CallTimes] = {}

    def add(self, tree: list[Any]) -> None:
        """Count the calls of one tree. After invalid data, the rest of it is left out."""
        todo: list[Any] = []
        try:
            todo += tree
            for node in todo:  # grows during the loop
                name = node[0]
                below = node[4]
                if name in _CLOSED:
                    if below and name == "model":
                        self._add_endpoints(below)
                    continue
                if name[:5] == "tool:" or name == "judge":
                    calls = self.judge if name == "judge" else self._tools.get(name) or self._new_tool(name)
                    calls.add(node[2] - sum(waits_below(name, below).values()), node[3])
                elif name[:9] == ENDPOINT:
                    self._add_endpoints([node])
                    continue
                if below and len(todo) < _MOST_NODES:
                    todo += below
        except HOSTILE:
            return

    def _new_tool(self, name: str) -> CallTimes:
        if len(self._tools) >= _MOST_TOOLS:  # a model may make names up
            name = _OTHER_TOOLS
        return self._tools.setdefault(name, CallTimes())

    def _add_endpoints(self, nodes: list[Any]) -> None:
        """Count the calls of endpoints below a model call."""
        todo = list(nodes)
        for node in todo:  # grows during the loop
            name, below = node[0], node[4]
            if name[:9] == ENDPOINT:
                calls = self._endpoints.get(name)
                if calls is None and len(self._endpoints) < _MOST_TOOLS:
                    calls = self._endpoints[name] = CallTimes()
                if calls is not None:
                    calls.add(node[2] - sum(waits_below(name, below).values()), node[3])
            elif below and len(todo) < _MOST_NODES:
                todo += below

    def endpoints(self, active_s: float) -> list[Json]:
        """The endpoints of models that have several, by their names: calls, failures, how many in flight, times."""
        return [
            {
                "name": name.removeprefix(ENDPOINT),
                "calls": calls.times.count,
                "failed": calls.failed,
                **calls.times_ms(),
                "in_flight_mean": calls.times.sum / active_s if active_s > 0 else 0.0,
            }
            for name, calls in sorted(self._endpoints.items())
        ]

    def tools(self) -> list[tuple[str, CallTimes]]:
        """The tools, those with the most time first."""
        return sorted(self._tools.items(), key=lambda each: -each[1].times.sum)
