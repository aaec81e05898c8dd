"""How long the calls of one tool took, and the waits inside them."""

from __future__ import annotations

from typing import Any

from velodrome.records.facts import WAITS
from velodrome.records.mending import LONGEST_S
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

AT_ONCE = 256  # times are sorted into histograms many at once, which is much quicker than one by one


def waited_us(children: list[Any]) -> float:
    """Microseconds that a call waited for its turn, which are not its own."""
    return sum([child[2] for child in children if child[0] in WAITS or child[0][:6] == "limit:"]) if children else 0


def row_flaw(row: Any) -> str:
    if not isinstance(row, dict):
        return "not a rollout"
    meta = row.get("meta")
    timed = isinstance(meta, dict) and meta.get("timing") is not None
    return "its timing is not one" if timed else "it has no timing"


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
