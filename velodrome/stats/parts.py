"""What `meta.timing` of one row says: a total, the parts that add up to it, and the calls inside them."""

from __future__ import annotations

from typing import Any

from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]
Parts = tuple[float, float, float, float, float, float, float, float]

PARTS = ("queue", "connection", "session", "model", "backoff", "tools", "verify", "other")
WAITS = ("queue", "connection", "backoff")  # spans inside others, whose time is not that of those
LONGEST_S = 1e8
AT_ONCE = 256  # times are sorted into histograms many at once, which is much quicker than one by one
# What reading a row that somebody else wrote can raise.
HOSTILE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


def timed_parts(timing: Json) -> tuple[float, Parts]:
    """The total and what it is made of, in the order of `PARTS`. What is no time raises one of HOSTILE."""
    told = timing.get
    total = timing["total_s"]
    queue, session, backoff = told("queue_s", 0.0), told("session_s", 0.0), told("backoff_s", 0.0)
    connection = told("connection_s", 0.0)
    model, tools, verify = told("model_s", 0.0), told("tools_s", 0.0), told("verify_s", 0.0)
    if "other_s" not in timing:  # of an older format, in which the model's part holds its waits
        model = max(model - queue - backoff, 0.0)
    other = total - (queue + connection + session + model + backoff + tools + verify)
    fine = queue >= 0 and session >= 0 and model >= 0 and backoff >= 0 and tools >= 0 and verify >= 0
    if not (fine and connection >= 0 and 0 <= total < LONGEST_S and other > -LONGEST_S):
        raise ValueError(total)
    if other < 0:  # rounded, or put together from several clocks
        total, other = total - other, 0.0
    return total, (queue, connection, session, model, backoff, tools, verify, other)


def waited_us(children: list[Any]) -> float:
    """Microseconds that a call waited for its turn, which are not its own."""
    return sum(child[2] for child in children if child[0] in WAITS) if children else 0


def row_flaw(row: Any) -> str:
    if not isinstance(row, dict):
        return "not a rollout"
    meta = row.get("meta")
    timed = isinstance(meta, dict) and meta.get("timing") is not None
    return "its timing is not one" if timed else "it has no timing"


class Calls:
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
