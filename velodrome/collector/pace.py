"""How many rollouts run at once, and why a run ends early.

The limit is fixed, or adjusted while running (`auto`). Both only compute with reported values: no clock, no tasks.

`auto` compares limits by the throughput of whole windows. It starts small and doubles while that brings more rollouts
per second. Then it tries higher and lower limits in turn, less and less often, and prefers the lower limit at equal
speed. A limit that met 429 is a ceiling: lower limits are tried first, the ceiling again only after a while. The limit
rises by one with each finished rollout, so that a server never gets a burst of calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, NamedTuple

from velodrome import scope
from velodrome.collector.attempt import Attempt, Failed
from velodrome.collector.executors.executor import Executor

Json = dict[str, Any]

_ROUNDS = 3  # a window lasts for this many rollouts per slot
_FEWEST = 32  # rollouts in a window
_MORE, _FEWER = 1.4, 0.8  # factors of the limit to try
_GAIN = 0.1  # least log gain of throughput per log increase of the limit
_LOSS = 0.03  # the share of throughput that a lower limit may cost
_AGAIN = 1.15  # with this factor of throughput, the server has become faster
_MOST_PATIENCE = 8  # windows between two tries without a gain
_REFUSED = 0.06  # more 429s in a window than this share of the limit cut the limit
_DISTURBED = 0.1  # a window with a larger share of rollouts with other errors is ignored


class Decision(NamedTuple):
    """A change of the limit, and the reason."""

    before: int
    after: int
    why: str


@dataclass
class Fixed:
    """A fixed limit."""

    limit: int
    decided: list[Decision] = field(default_factory=list)

    def finished(self, now: float, *, in_flight: int, disturbed: bool = False) -> None:
        """Nothing to learn."""

    def refused(self, now: float, *, in_flight: int, retry_after_s: float = 0.0) -> None:
        """Nothing to learn."""


@dataclass
class _Window:
    """The counts since the limit was reached, or since the last window."""

    opened: float | None = None
    count: int = 0
    disturbed: int = 0
    refused: int = 0
    full: bool = False  # whether the limit was in use


class Auto:
    """Adjusts the limit. `decided` lists the decisions since the caller last emptied it.

    `_base` is the best limit so far, and `_rate` its throughput; `limit` differs while another limit is tried.
    """

    def __init__(self, *, start: int = 4, most: int = 1024, window_s: float = 1.0) -> None:
        self.limit = self._target = self._base = start
        self.decided: list[Decision] = []
        self._most = most
        self._window_s = window_s
        self._window = _Window()
        self._rate = 0.0  # rollouts per second at the base
        self._starting = True
        self._ceiling: int | None = None  # the limit that met 429
        self._wait = 0  # windows until another limit is tried
        self._patience = 1  # windows between two tries
        self._up = True  # whether a higher limit is tried next
        self._refused_until = -inf  # by Retry-After

    def refused(self, now: float, *, in_flight: int, retry_after_s: float = 0.0) -> None:
        """A call was answered with 429. Reported at once, not when its rollout finishes."""
        self._refused_until = max(self._refused_until, now + retry_after_s)
        if in_flight > self.limit:
            return  # the limit was cut already
        self._window.refused += 1
        if self._window.refused < _REFUSED * self.limit:
            return
        self._ceiling = max(self.limit, 2)
        if self._target <= self._base:
            self._base = min(self.limit - 1, int(0.9 * self.limit))
        else:
            self._base = min(self._base, int(0.95 * self.limit))
        self._base = max(1, self._base)
        self._starting, self._rate = False, 0.0
        self._give_up("429")

    def finished(self, now: float, *, in_flight: int, disturbed: bool = False) -> None:
        """A rollout has finished. `in_flight` includes it; `disturbed`: it met errors other than 429."""
        if self.limit < self._target and in_flight >= self.limit and now >= self._refused_until:
            self.limit += 1
        if self.limit != self._target or in_flight > self.limit:
            return
        window = self._window
        if window.opened is None:
            window.opened = now
            return
        window.count += 1
        window.disturbed += disturbed
        window.full = window.full or in_flight >= self.limit
        duration_s = now - window.opened
        if window.count >= max(_ROUNDS * self.limit, _FEWEST) and duration_s >= self._window_s:
            self._window = _Window(opened=now)
            if window.full:
                self._decide(now, window, window.count / duration_s)

    def _decide(self, now: float, window: _Window, rate: float) -> None:
        """Compare the limit that was tried with the base, or try another."""
        factor, noise = self.limit / self._base, 1 / sqrt(window.count)
        if window.disturbed > _DISTURBED * window.count:
            self._change(self._base, "errors")
        elif factor > 1:
            least = max(1.0, factor**_GAIN - 0.7 * noise) if self._starting else factor**_GAIN + 0.1 * noise
            if self._ceiling is not None or rate >= least * self._rate:
                self._accept(rate)
            else:
                self._give_up("no more throughput")
        elif factor < 1:
            if rate >= (1 - _LOSS) * self._rate:
                self._accept(max(rate, self._rate))  # small losses must not add up
            else:
                self._give_up("less throughput")
        else:
            if rate > _AGAIN * self._rate > 0:
                self._wait, self._patience, self._up = 0, 1, True
            self._rate = (self._rate + rate) / 2 if self._rate else rate
            self._wait -= 1
            if self._wait <= 0 and now >= self._refused_until:
                self._try()

    def _accept(self, rate: float) -> None:
        """Make the limit that was tried the base, and try the same step again."""
        if self._ceiling is not None and self.limit >= self._ceiling:
            self._ceiling = None
        self._base, self._rate = self.limit, rate
        self._patience = 1
        self._try()

    def _give_up(self, why: str) -> None:
        """Return to the base. The other direction is tried next, after a while."""
        self._starting = False
        self._wait = self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._up = not self._up if self._ceiling is None else True
        self._change(self._base, why)

    def _try(self) -> None:
        if not self._up:
            self._change(min(self._base - 1, int(_FEWER * self._base)), "try fewer")
            return
        target = self._base * (2.0 if self._starting else _MORE)
        if self._ceiling is not None:
            target = min(target, (self._base + self._ceiling + 1) / 2)
        self._change(max(self._base + 1, int(target)), "try more")

    def _change(self, target: int, why: str) -> None:
        target = max(1, min(self._most, target))
        if target != self.limit:
            self.decided.append(Decision(self.limit, target, why))
        self._target, self.limit = target, min(self.limit, target)
        self._window = _Window()


Pace = Fixed | Auto


class Pacing:
    """Reports a run to its pace, and sets the limit of its executor. Decisions go into the rows and the samples."""

    def __init__(self, pace: Pace, executor: Executor, around: Json) -> None:
        self._pace = pace
        self._executor = executor
        self._around = around
        self._rate_limits = 0  # reported 429s of unfinished attempts
        self._decisions: list[tuple[float, int, int, str]] = []
        call = scope.current()
        if call is not None:
            call.rate_limited = self.rate_limited

    def rate_limited(self, retry_after_s: float) -> None:
        """A call was just answered with 429."""
        self._rate_limits += 1
        now = asyncio.get_running_loop().time()
        self._pace.refused(now, in_flight=self._executor.in_flight, retry_after_s=retry_after_s)
        self.apply()

    def finished(self, attempt: Attempt, in_flight: int) -> None:
        """Report an attempt, and those of its 429s that were not reported at once, because a server met them."""
        now = asyncio.get_running_loop().time()
        result, timing = attempt.result, attempt.timing
        retries, rate_limited = timing.get("retries", 0), timing.get("rate_limited", 0)
        reported = min(self._rate_limits, rate_limited)
        self._rate_limits -= reported
        for _ in range(rate_limited - reported):
            self._pace.refused(now, in_flight=in_flight)
        failed = isinstance(result, Failed) and result.row["boundary"] == "model"
        disturbed = retries > rate_limited or (failed and not rate_limited)
        self._pace.finished(now, in_flight=in_flight, disturbed=disturbed)

    def apply(self) -> None:
        """Set the limit of the executor, and note the decisions."""
        self._executor.limit = self._pace.limit
        decisions, self._pace.decided = self._pace.decided, []
        if decisions:
            self._around["pace"] = [*self._around.get("pace", ()), *map(list, decisions)]
        self._decisions += [(round(time.time(), 3), *decision) for decision in decisions]

    def take_decisions(self) -> list[tuple[float, int, int, str]]:
        """The decisions since the last call: when, the limit before and after, why."""
        decisions, self._decisions = self._decisions, []
        return decisions


_ENOUGH = 20  # finished rollouts before a share of failures means anything


class Stop:
    """Why a run takes no new jobs. The first reason counts. `now`: attempts in flight are cancelled, too."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.now = False
        self.changed: Callable[[], None] = lambda: None  # the run sets it
        self.interrupted = False

    def request(self, reason: str) -> None:
        """Take no new jobs, and let attempts in flight finish."""
        if self.reason is None:
            self.reason = reason
        self.changed()

    def interrupt(self) -> None:
        """Handle Ctrl-C. The first lets attempts in flight finish, even after a budget; the second cancels them."""
        self.now = self.now or self.interrupted
        self.interrupted = True
        self.request("interrupted")


@dataclass(frozen=True)
class Budget:
    """Limits of one run. `max_failures` below 1 is a share, from 1 on a count, and 0 allows none."""

    max_total_tokens: int | None = None
    max_failures: float | None = None

    def reached(self, *, tokens: int, kept: int, failed: int) -> str | None:
        """The exhausted budget as text, or None."""
        if self.max_total_tokens is not None and tokens >= self.max_total_tokens:
            return f"max_total_tokens={self.max_total_tokens} reached ({tokens} tokens)"
        if self.max_failures is None or not failed:
            return None
        if 0 < self.max_failures < 1:
            finished = kept + failed
            if finished >= _ENOUGH and failed > self.max_failures * finished:
                return f"max_failures={self.max_failures:g} reached ({failed} of {finished} failed)"
        elif failed > self.max_failures:
            return f"max_failures={self.max_failures:g} reached ({failed} failed)"
        return None
