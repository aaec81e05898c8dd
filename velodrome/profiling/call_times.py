"""How long the calls of tools and of the judge took, read from the span trees of rollouts."""

from __future__ import annotations

from typing import Any

from velodrome.records.mending import HOSTILE, LONGEST_S
from velodrome.records.row_times import waits_below
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

AT_ONCE = 256  # times are sorted into histograms many at once, which is much quicker than one by one
_MOST_TOOLS = 100
_OTHER_TOOLS = "tool:(others)"
_MOST_NODES = 10_000  # of one tree; what the collector writes has 200
_CLOSED = frozenset(("model", "queue", "connection", "backoff", "session"))  # below these there is no tool and no judge


class CallTimes:
    """The calls of one tool, or of the judge."""

    def __init__(self) -> None:
        self.cpu_us = 0.0
        self.held_us = 0.0
        self._times = Quantiles()
        self._fresh: list[float] = []

    def add(self, length_us: float, counts: Json) -> None:
        """Count one call, or several that were folded into one span."""
        if not 0 <= length_us < LONGEST_S * 1e6:
            return
        if counts:
            cpu_us, held_us = counts.get("cpu_us", 0.0), counts.get("held_us", 0.0)
            if 0 <= cpu_us < LONGEST_S * 1e6 and 0 <= held_us < LONGEST_S * 1e6:
                self.cpu_us += cpu_us
                self.held_us += held_us
            calls = counts.get("folded")
            if calls is not None and calls >= 1:
                self._times.add(length_us * 1e-6 / int(calls), int(calls))
                return
        self._fresh.append(length_us * 1e-6)
        if len(self._fresh) >= AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        self._times.extend(self._fresh)
        self._fresh.clear()

    @property
    def times(self) -> Quantiles:
        """How long they took."""
        self._settle()
        return self._times

    def as_json(self, name: str) -> Json:
        """The mean call, in milliseconds."""
        times = self.times
        return {
            "name": name,
            "calls": times.count,
            "mean_ms": 1e3 * times.mean,
            "p50_ms": 1e3 * times.quantile(0.5),
            "p99_ms": 1e3 * times.quantile(0.99),
            "cpu_ms": self.cpu_us / 1e3 / (times.count or 1),
            "held_ms": self.held_us / 1e3 / (times.count or 1),
        }


class TreeCalls:
    """The calls in all trees so far."""

    def __init__(self) -> None:
        self.judge = CallTimes()
        self._tools: dict[str, CallTimes] = {}

    def add(self, tree: list[Any]) -> int:
        """Count the calls of one tree, which is left out from a mistake on; how many nodes were read."""
        todo: list[Any] = []
        try:
            todo += tree
            for node in todo:  # which grows meanwhile
                name = node[0]
                if name in _CLOSED:
                    continue
                below = node[4]
                if name[:5] == "tool:" or name == "judge":
                    calls = self.judge if name == "judge" else self._tools.get(name) or self._new_tool(name)
                    calls.add(node[2] - sum(waits_below(name, below).values()), node[3])
                if below and len(todo) < _MOST_NODES:
                    todo += below
        except HOSTILE:
            pass
        return len(todo)

    def _new_tool(self, name: str) -> CallTimes:
        if len(self._tools) >= _MOST_TOOLS:  # a model may make names up
            name = _OTHER_TOOLS
        return self._tools.setdefault(name, CallTimes())

    def tools(self) -> list[tuple[str, CallTimes]]:
        """By their time, the longest first."""
        return sorted(self._tools.items(), key=lambda each: -each[1].times.sum)
