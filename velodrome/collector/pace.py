"""How many rollouts run at once, and why a run ends early.

The number is fixed, or found while running (`auto`). It is arithmetic on what is reported: no clock, no tasks.

`auto` compares limits by the throughput of whole windows. It starts small and doubles while that brings more rollouts
per second: a glance is enough if that is clear, else a longer window decides. Then it tries more and fewer from time to
time, and keeps what is as fast with fewer in flight. After a 429 the limit that met it is a ceiling: it searches below
it, and returns soon to one that was kept before. A new one is tried while few calls were refused so far; more is risked
with less in flight than there once was, as a server may be able to do more again. A limit rises by one with each
rollout that finishes, so that a server never gets a burst of calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from typing import NamedTuple

from velodrome import scope
from velodrome.collector.account import Surroundings
from velodrome.collector.attempt import Attempt
from velodrome.collector.executors import Executor

DEFAULT_PARALLEL = 16
MOST_DECISIONS = 200

_ROUNDS = 4  # of all that are in flight, in a window
_FEWEST_GLANCE, _FEWEST, _FEWEST_COMPARED = 16, 24, 64  # rollouts in it: at a glance, to keep a limit, to compare two
_CLEAR = 0.6  # of the gain that could be at most, as logarithms: a glance is enough, and
_WORSE = 0.9  # of the throughput, too
_LEAST_GAIN = 0.1  # of throughput for more in flight, both as logarithms
_NO_LOSS = 0.97  # of the throughput: fewer in flight must keep this much
_SMALL = 1.2  # a step up to this cannot be told from chance by its throughput
_NEAR = 1.08  # a ceiling within this is tried itself, one further away is approached by halves
_PATIENCE = 2  # windows before trying again what brought nothing
_MOST_PATIENCE = 16
_SLOWER = 1.5
_DISTURBED = 0.1  # a share of rollouts that met errors, from which on a window is no reason to cut
_FEWEST_IN_FLIGHT = 4  # not fewer are tried: with one too many in flight it shows at once that a server can do more
_RISK, _MOST_RISK = 0.009, 20.0  # refusals that may be risked: so many per rollout, and saved up
_PRICE = 4.0  # refusals that a limit can cost which was not kept before
_FADE = 0.0005  # per round, of the most that was kept


class Decision(NamedTuple):
    """The limit was changed, and why."""

    before: int
    after: int
    why: str


@dataclass
class Fixed:
    """Always the same number."""

    limit: int
    decided: list[Decision] = field(default_factory=list)

    def finished(
        self, now: float, *, in_flight: int, total_s: float, backoff_s: float = 0.0, disturbed: bool = False
    ) -> None:
        """Nothing to learn."""

    def refused(self, now: float, *, in_flight: int, retry_after_s: float = 0.0) -> None:
        """Nothing to learn."""


class _Window:
    """What was reported since the limit was reached, or since the window before."""

    def __init__(self) -> None:
        self.opened: float | None = None
        self.count = self.disturbed = self.refused = self.timed = 0
        self.latency_sum = 0.0
        self.full = False  # whether as many as allowed were in flight
        self.settled = False  # whether a glance was not enough

    def add(self, latency_s: float, *, disturbed: bool, waited: bool) -> None:
        self.count += 1
        if disturbed:
            self.disturbed += 1
        elif not waited:
            self.timed += 1
            self.latency_sum += latency_s

    @property
    def latency_s(self) -> float:
        return self.latency_sum / self.timed if self.timed else 0.0

    @property
    def is_disturbed(self) -> bool:
        return self.disturbed > _DISTURBED * self.count


class Auto:
    """Finds the limit. `decided` has what was decided since the caller last emptied it.

    `_base` is the limit to keep, with its throughput and latency; the limit differs from it while another is tried.
    """

    def __init__(self, *, start: int = 4, most: int = 1024, window_s: float = 1.0) -> None:
        self.limit = self._target = self._base = start
        self.decided: list[Decision] = []
        self._most = most
        self._window_s = window_s
        self._window = _Window()
        self._rate = self._latency_s = 0.0
        self._starting = True
        self._step = 2.0
        self._ceiling: int | None = None  # the limit that met 429
        self._cuts = 0  # for 429, in a row
        self._risk = _PRICE  # refusals that may be risked now
        self._proven = 0  # the most that was kept for a window, and has met no 429 as it was tried again
        self._peak = 0.0  # the most that was kept; it fades
        self._more_in, self._more_patience = 0, 1  # windows until more are tried
        self._fewer_in = self._fewer_patience = _PATIENCE
        self._slower = False  # whether latency rose without throughput
        self._told_until = -inf  # by Retry-After

    def refused(self, now: float, *, in_flight: int, retry_after_s: float = 0.0) -> None:
        """One call was answered 429; it is reported when that happens, not when its rollout is finished."""
        self._told_until = max(self._told_until, now + retry_after_s)
        self._risk = max(0.0, self._risk - 1)
        if in_flight > self.limit:
            return  # of a limit that was cut already
        self._window.refused += 1
        trying = self._target > self._base
        if self._window.refused < (0.02 if trying else 0.06) * self.limit:
            return
        self._starting, self._rate, self._latency_s = False, 0.0, 0.0
        self._ceiling = max(self.limit, self._base + 1)
        if trying:
            self._proven = min(self._proven, self._ceiling - 1)
            self._base = max(1, min(self._base, int(0.95 * self.limit)))
        else:
            self._proven = min(self._proven, self.limit)
            share = min(0.5, 0.04 * 2**self._cuts)
            self._base = max(1, min(self.limit - 1, int(self.limit * (1 - share))))
            self._cuts += 1
        self._wait_below(self._ceiling)
        self._change(self._base, "429")

    def finished(
        self, now: float, *, in_flight: int, total_s: float, backoff_s: float = 0.0, disturbed: bool = False
    ) -> None:
        """One rollout is finished; so many were in flight with it. `disturbed`: it met errors other than 429."""
        self._peak = max(self._base, self._peak * (1 - _FADE / self.limit))
        self._risk = min(_MOST_RISK, self._risk + _RISK * self._peak / self.limit)
        if self.limit < self._target and in_flight >= self.limit and now >= self._told_until:
            self.limit += 1
        if self.limit != self._target or in_flight > self.limit:
            return
        window = self._window
        if window.opened is None:
            window.opened = now
            return
        window.add(total_s - backoff_s, disturbed=disturbed, waited=backoff_s > 0)
        window.full = window.full or in_flight >= self.limit
        lasted = now - window.opened
        if window.count >= self._fewest and lasted >= self._window_s:
            self._window = _Window()
            self._window.opened = now
            if window.full:
                self._cuts = 0
                self._decide(now, window, window.count / lasted)

    @property
    def _fewest(self) -> int:
        """Rollouts in this window. Below a ceiling refusals count, not throughput, so few are enough."""
        least = _ROUNDS * self.limit
        if self._ceiling is not None:
            return least
        if self.limit == self._base:
            return max(least, _FEWEST)
        if self.limit < _SMALL * self._base:
            return max(least, _FEWEST_COMPARED)
        return max(2 * self.limit, _FEWEST_COMPARED) if self._window.settled else max(self.limit, _FEWEST_GLANCE)

    def _decide(self, now: float, window: _Window, rate: float) -> None:
        if self.limit > self._base:
            self._judge_more(window, rate)
        elif self.limit < self._base:
            self._judge_fewer(window, rate)
        else:
            self._hold(now, window, rate)

    def _judge_more(self, window: _Window, rate: float) -> None:
        times, chance = self.limit / self._base, 1 / sqrt(window.count)
        comparable = times >= _SMALL and self._rate > 0
        glance = comparable and self._ceiling is None and not window.refused and not window.settled
        if glance and _WORSE * self._rate < rate < self._rate * times**_CLEAR:
            self._window.settled = True
            return
        least: float = times**_LEAST_GAIN
        if self._ceiling is not None:
            least -= 0.7 * chance
        else:
            least = max(1.0, least - 0.7 * chance) if self._starting else max(least, 1 + 0.2 * chance)
        if window.refused:
            self._ceiling = self.limit
            self._wait_below(self._ceiling)
            self._change(self._base, "429")
        elif comparable and rate < self._rate * least:
            self._starting, self._step = False, 1.5
            self._more_in = self._more_patience = min(2 * self._more_patience, 4)
            self._change(self._base, "no more throughput")
        else:
            self._base, self._rate, self._latency_s = self.limit, rate, window.latency_s
            self._go_on(times, glance=not window.settled)

    def _go_on(self, times: float, *, glance: bool) -> None:
        """So many times as many in flight were better, or met no 429."""
        if self._ceiling is not None and self.limit <= self._proven:
            self._ceiling = max(self._ceiling, self._proven + 1 + self._proven // 33)
        if self._ceiling is not None and self.limit < self._ceiling:
            if self._next() < self._ceiling:
                self._change(self._next(), "no 429")
            else:
                self._wait_below(self._ceiling)
            return
        self._ceiling = None
        self._step = 2.0 if self._starting else min(2.0 if glance else 1.5, 2 * times - 1)
        self._more_in, self._more_patience = 1, 1
        if times >= _SMALL:
            self._change(self._next(), "more throughput")

    def _judge_fewer(self, window: _Window, rate: float) -> None:
        if rate >= _NO_LOSS * self._rate and not window.is_disturbed:
            self._base, self._latency_s = self.limit, window.latency_s
            self._rate = max(self._rate, rate)  # small losses must not add up
            self._fewer_in = self._fewer_patience = 1
            self._more_in = max(2, self._more_in)
            if self.limit > _FEWEST_IN_FLIGHT:
                self._change(min(self.limit - 1, ceil(0.8 * self.limit)), "try fewer")
        else:
            self._fewer_in = self._fewer_patience = min(2 * self._fewer_patience, _MOST_PATIENCE)
            if self._slower:
                self._latency_s = 0.0  # it did not depend on the limit: what it is now is normal
            self._change(self._base, "less throughput")

    def _hold(self, now: float, window: _Window, rate: float) -> None:
        """The limit to keep was measured again."""
        self._proven = max(self._proven, self.limit)
        rate_before, latency_before = self._rate, self._latency_s
        slower = latency_before and window.latency_s > _SLOWER * latency_before
        if slower and rate < (1 - max(0.1, 1 / sqrt(window.count))) * rate_before and not window.is_disturbed:
            if self._slower:
                self._rate = rate
                to = max(self.limit // 2, ceil(1.1 * rate * latency_before))
                self._change(to, "higher latency, less throughput")
            self._slower = True  # the next window says how much
            return
        self._slower = False
        self._rate = (rate_before + rate) / 2 if rate_before else rate
        self._latency_s = min((each for each in (latency_before, window.latency_s) if each), default=0.0)
        if rate_before and rate > _SMALL * rate_before:  # the server can do more again
            self._rate, self._more_in, self._more_patience, self._step = rate, 0, 1, 2.0
        self._more_in -= 1
        self._fewer_in -= 1
        if now < self._told_until:
            return
        if self._starting or (self._more_in <= 0 and self._may_risk):
            self._change(self._next(), "try more")
        elif (
            self._fewer_in <= 0 and self._ceiling is None and not window.is_disturbed and self.limit > _FEWEST_IN_FLIGHT
        ):
            self._change(min(self.limit - 1, ceil(0.8 * self.limit)), "try fewer")

    @property
    def _may_risk(self) -> bool:
        """Whether the next limit may be tried, though it can meet 429."""
        if self._ceiling is None or self._next() < self._ceiling:
            return True
        if self._next() <= self._proven:
            return self._risk >= 1
        return self._risk >= _PRICE

    def _next(self) -> int:
        """The next limit to try above the one to keep."""
        to = self._base * self._step
        if self._ceiling is not None:
            to = self._ceiling if self._ceiling <= _NEAR * self._base else sqrt(self._base * self._ceiling)
        return max(self._base + 1, int(to))

    def _wait_below(self, ceiling: int) -> None:
        """Keep the limit for a window, or for two if the next is the one that met 429."""
        self._more_in = 1 if self._next() < ceiling else 2

    def _change(self, to: int, why: str) -> None:
        to = max(1, min(self._most, to))
        if to != self.limit:
            self.decided.append(Decision(self.limit, to, why))
        self._target, self.limit = to, min(self.limit, to)
        self._window = _Window()


Pace = Fixed | Auto


class Pacing:
    """Reports a run to its pace, and sets the limit of its executor. Decisions go into the rows and to watchers."""

    def __init__(self, pace: Pace, executor: Executor, around: Surroundings) -> None:
        self._pace = pace
        self._executor = executor
        self._around = around
        self._rate_limits = 0  # 429s that were reported, of attempts that are not finished
        self._decisions: deque[tuple[float, int, int, str]] = deque(maxlen=MOST_DECISIONS)
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
        reported = min(self._rate_limits, attempt.rate_limited)
        self._rate_limits -= reported
        for _ in range(attempt.rate_limited - reported):
            self._pace.refused(now, in_flight=in_flight)
        failed = attempt.failure is not None and attempt.failure["boundary"] == "model"
        self._pace.finished(
            now,
            in_flight=in_flight,
            total_s=attempt.total_s,
            backoff_s=attempt.backoff_s,
            disturbed=attempt.retries > attempt.rate_limited or (failed and not attempt.rate_limited),
        )

    def apply(self) -> None:
        """Set the limit."""
        self._executor.limit = self._pace.limit
        decided, self._pace.decided = self._pace.decided, []
        self._around.decisions += [(before, after, why) for before, after, why in decided]
        self._decisions += [(time.perf_counter(), *decision) for decision in decided]

    def take_decisions(self) -> list[tuple[float, int, int, str]]:
        """What was decided since this was last called: when, the limit before and after, why."""
        decisions = list(self._decisions)
        self._decisions.clear()
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
        """The limit that is used up, in words, or None."""
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
