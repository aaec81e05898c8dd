"""A collection against a simulated model server, in simulated time: a small discrete-event simulation.

A rollout is a few calls after another. A call is tried again as `velodrome.http` does it. What a collector would report
to its pace is reported here.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from velodrome.collector.pace import Pace
from velodrome.http.retry import MOST_DOUBLINGS, Retry

Capacity = Callable[[float], float]  # by time
RETRY = Retry()


@dataclass
class Rollout:
    began: float
    calls: int
    retries: int = 0  # of the call it is in
    backoff_s: float = 0.0


class Server(Protocol):
    def arrive(self, run: SimulatedRun, rollout: Rollout, alone_s: float) -> None:
        """A call came; `alone_s` is how long its answer takes if nothing else is asked."""

    def leave(self, run: SimulatedRun) -> None:
        """An answer was sent."""


class Queueing:
    """So many calls at once; the others wait for a place."""

    def __init__(self, places: Capacity) -> None:
        self._places = places
        self._busy = 0
        self._waiting: deque[tuple[Rollout, float]] = deque()

    def arrive(self, run: SimulatedRun, rollout: Rollout, alone_s: float) -> None:
        self._waiting.append((rollout, alone_s))
        self._begin(run)

    def leave(self, run: SimulatedRun) -> None:
        self._busy -= 1
        self._begin(run)

    def _begin(self, run: SimulatedRun) -> None:
        while self._waiting and self._busy < self._places(run.now):
            self._busy += 1
            run.answer(*self._waiting.popleft())


class Refusing:
    """So many calls per second, `burst` of them at any moment; those above get 429, perhaps with Retry-After."""

    def __init__(self, per_s: Capacity, burst: float, *, says_when: bool) -> None:
        self._per_s = per_s
        self._burst = self._left = burst
        self._says_when = says_when
        self._at = 0.0

    def arrive(self, run: SimulatedRun, rollout: Rollout, alone_s: float) -> None:
        per_s = self._per_s(run.now)
        self._left = min(self._burst, self._left + (run.now - self._at) * per_s)
        self._at = run.now
        if self._left >= 1:
            self._left -= 1
            run.answer(rollout, alone_s)
        else:
            seconds = max(1, math.ceil((1 - self._left) / per_s)) if self._says_when else 0
            run.answer(rollout, 0.02 * alone_s, 429, seconds)

    def leave(self, run: SimulatedRun) -> None:
        pass


class Slowing:
    """Answers take `slower(load)` times as long with so many calls at once."""

    def __init__(self, slower: Callable[[int], float]) -> None:
        self._slower = slower
        self._busy = 0

    def arrive(self, run: SimulatedRun, rollout: Rollout, alone_s: float) -> None:
        self._busy += 1
        run.answer(rollout, alone_s * self._slower(self._busy))

    def leave(self, run: SimulatedRun) -> None:
        self._busy -= 1


class SimulatedRun:
    """Keeps `pace.limit` rollouts in flight."""

    def __init__(
        self,
        server: Server,
        pace: Pace,
        *,
        latency_s: float = 1.0,
        most_calls: int = 1,
        seed: int = 0,
    ) -> None:
        self.server = server
        self.pace = pace
        self.now = 0.0
        self.kept = self.calls = self.rate_limited = 0
        self.limits: list[int] = []  # after each rollout
        self._latency_s, self._most_calls = latency_s, most_calls
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Rollout, int, float]] = []  # when, order, whose, status or 0, Retry-After
        self._order = count()
        self._in_flight = 0

    def until(self, end_s: float) -> SimulatedRun:
        while self.now < end_s:
            while self._in_flight < self.pace.limit:
                self._in_flight += 1
                self._call(Rollout(self.now, self._random.randint(1, self._most_calls)))
            self.now, _, rollout, status, retry_after_s = heapq.heappop(self._events)
            if not status:
                self._call(rollout)
            elif self._is_over(rollout, status, retry_after_s):
                self._finish(rollout)
        return self

    def answer(self, rollout: Rollout, after_s: float, status: int = 200, retry_after_s: float = 0.0) -> None:
        """Give an answer later; with status 0 the rollout asks then."""
        heapq.heappush(self._events, (self.now + after_s, next(self._order), rollout, status, retry_after_s))

    def _call(self, rollout: Rollout) -> None:
        self.calls += 1
        self.server.arrive(self, rollout, self._latency_s * self._random.lognormvariate(-0.045, 0.3))

    def _is_over(self, rollout: Rollout, status: int, retry_after_s: float) -> bool:
        """Take an answer; ask again after an error, or for the next one."""
        if status == 429:
            self.rate_limited += 1
            self.pace.refused(self.now, in_flight=self._in_flight, retry_after_s=retry_after_s)
        else:
            self.server.leave(self)
        if status == 200:
            rollout.calls, rollout.retries = rollout.calls - 1, 0
            self.kept += not rollout.calls
            if rollout.calls:
                self._call(rollout)
            return not rollout.calls
        if status != 429 and rollout.retries >= RETRY.max_retries:
            return True
        doubled = min(rollout.retries, MOST_DOUBLINGS) if status == 429 else rollout.retries
        wait_s = RETRY.delay_s(doubled, self._random.random(), retry_after_s)
        rollout.retries += 1
        rollout.backoff_s += wait_s
        self.answer(rollout, wait_s, 0)
        return False

    def _finish(self, rollout: Rollout) -> None:
        self.pace.finished(self.now, in_flight=self._in_flight)
        self._in_flight -= 1
        self.limits.append(self.pace.limit)
