"""How many rollouts run at once, and why a run ends early.

The number is fixed, or found while running (`auto`). It is arithmetic on what is reported: no clock, no tasks.

`auto` compares limits by the throughput of whole windows. It starts small and doubles while that brings more rollouts
per second. Then it tries more and fewer in turn, ever less often, and keeps what is as fast with fewer in flight. A
limit that met 429 is a ceiling: what is tried lies below it, and the ceiling itself only after a while. A limit rises
by one with each rollout that finishes, so that a server never gets a burst of calls.
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

_ROUNDS = 3  # of all that are in flight, in a window
_FEWEST = 32  # rollouts in a window
_MORE, _FEWER = 1.4, 0.8  # times as many are tried
_GAIN = 0.1  # of throughput that more in flight must bring at least, both as logarithms
_LOSS = 0.03  # of throughput that fewer in flight may cost
_AGAIN = 1.15  # times the throughput: the server can do more again
_MOST_PATIENCE = 8  # windows between two tries that brought nothing
_REFUSED = 0.06  # of the limit: more 429s than this in a window are a reason to cut
_DISTURBED = 0.1  # a share of rollouts that met other errors, from which on a window says nothing


class Decision(NamedTuple):
    """The limit was changed, and why."""

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
    """What was reported since the limit was reached, or since the window before."""

    opened: float | None = None
    count: int = 0
    disturbed: int = 0
    refused: int = 0
    full: bool = False  # whether as many as allowed were in flight


class Auto:
    """Finds the limit. `decided` has the decisions since the caller last emptied it.

    `_base` is the limit to keep, with its throughput; the limit differs from it while another is tried.
    """

    def __init__(self, *, start: int = 4, most: int = 1024, window_s: float = 1.0) -> None:
        self.limit = self._target = self._base = start
        self.decided: list[Decision] = []
        self._most = most
        self._window_s = window_s
        self._window = _Window()
        self._rate = 0.0  # of rollouts at the base
        self._starting = True
        self._ceiling: int | None = None  # the limit that met 429
        self._wait = 0  # windows until another limit is tried
        self._patience = 1  # windows between two tries
        self._up = True  # whether more are tried next
        self._refused_until = -inf  # by Retry-After

    def refused(self, now: float, *, in_flight: int, retry_after_s: float = 0.0) -> None:
        """One call was answered 429; it is reported when that happens, not when its rollout is finished."""
        self._refused_until = max(self._refused_until, now + retry_after_s)
        if in_flight > self.limit:
            return  # of a limit that was cut already
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
        """One rollout has finished, with this many in flight. `disturbed`: it met errors other than 429."""
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
        lasted_s = now - window.opened
        if window.count >= max(_ROUNDS * self.limit, _FEWEST) and lasted_s >= self._window_s:
            self._window = _Window(opened=now)
            if window.full:
                self._decide(now, window, window.count / lasted_s)

    def _decide(self, now: float, window: _Window, rate: float) -> None:
        """Compare what was tried with what was kept, or try something."""
        times, chance = self.limit / self._base, 1 / sqrt(window.count)
        if window.disturbed > _DISTURBED * window.count:
            self._change(self._base, "errors")
        elif times > 1:
            least = max(1.0, times**_GAIN - 0.7 * chance) if self._starting else times**_GAIN + 0.1 * chance
            if self._ceiling is not None or rate >= least * self._rate:
                self._accept(rate)
            else:
                self._give_up("no more throughput")
        elif times < 1:
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
        """Keep the limit that was tried, and try the same step again."""
        if self._ceiling is not None and self.limit >= self._ceiling:
            self._ceiling = None
        self._base, self._rate = self.limit, rate
        self._patience = 1
        self._try()

    def _give_up(self, why: str) -> None:
        """Return to the limit before. The other direction is tried next, after a while."""
        self._starting = False
        self._wait = self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._up = not self._up if self._ceiling is None else True
        self._change(self._base, why)

    def _try(self) -> None:
        if not self._up:
            self._change(min(self._base - 1, int(_FEWER * self._base)), "try fewer")
            return
        to = self._base * (2.0 if self._starting else _MORE)
        if self._ceiling is not None:
            to = min(to, (self._base + self._ceiling + 1) / 2)
        self._change(max(self._base + 1, int(to)), "try more")

    def _change(self, to: int, why: str) -> None:
        to = max(1, min(self._most, to))
        if to != self.limit:
            self.decided.append(Decision(self.limit, to, why))
        self._target, self.limit = to, min(self.limit, to)
        self._window = _Window()


Pace = Fixed | Auto


class Pacing:
    """Reports a run to its pace, and sets the limit of its executor. Decisions go into the rows and the samples."""

    def __init__(self, pace: Pace, executor: Executor, around: Json) -> None:
        self._pace = pace
        self._executor = executor
        self._around = around
        self._rate_limits = 0  # 429s that were reported, of attempts that are not finished
        self._decisions: list[tuple[float, int, int, str]] = []
        call = scope.current()
        if call is not None:
            call.rate_limited = self.rate_limited

    def rate_limited(self, retry_after_s: float) -> None:
        """A call was answered 429 just now."""
        self._rate_limits += 1
        now = asyncio.get_running_loop().time()
        self._pace.refused(now, in_flight=self._executor.in_flight, retry_after_s=retry_after_s)
        self.apply()

    def finished(self, attempt: Attempt, in_flight: int) -> None:
        """Report an attempt, and its 429s if they were not reported at once: those that another server met."""
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
        """Set the limit."""
        self._executor.limit = self._pace.limit
        decided, self._pace.decided = self._pace.decided, []
        if decided:
            self._around["pace"] = [*self._around.get("pace", ()), *map(list, decided)]
        self._decisions += [(round(time.time(), 3), *decision) for decision in decided]

    def take_decisions(self) -> list[tuple[float, int, int, str]]:
        """The decisions since the last call: when, the limit before and after, why."""
        decisions, self._decisions = self._decisions, []
        return decisions


_ENOUGH = 20  # finished rollouts before a share of failures means anything


class Stop:
    """Why a run takes no new jobs. The first reason counts. `now`: what is in flight is given up, too."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.now = False
        self.changed: Callable[[], None] = lambda: None  # the run sets it
        self.interrupted = False

    def request(self, reason: str) -> None:
        """Take no new jobs, and let what is in flight finish."""
        if self.reason is None:
            self.reason = reason
        self.changed()

    def interrupt(self) -> None:
        """Ctrl-C. The first one lets what is in flight finish, even after a budget; the second does not."""
        self.now = self.now or self.interrupted
        self.interrupted = True
        self.request("interrupted")


@dataclass(frozen=True)
class Budget:
    """Limits of one run. `max_failures` below 1 is a share, from 1 on a count, and 0 allows none."""

    max_total_tokens: int | None = None
    max_failures: float | None = None

    def reached(self, *, tokens: int, kept: int, failed: int) -> str | None:
        """The budget that is used up, in words, or None."""
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
