"""How many rollouts run at once, and why a run ends early.

The number is fixed, or found while running: `auto` starts small and doubles while that brings more rollouts per second.
It halves after a 429. Once it has settled it tries a little more and a little less in turn, and keeps whichever is as
fast with fewer in flight. It is arithmetic on what is reported to it: no clock, no tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DEFAULT_PARALLEL = 16
_WORTH = 1.05  # a wider limit must bring this much more throughput to be kept
_PATIENCE = 8  # windows to hold still before trying another limit again


@dataclass
class Fixed:
    """Always the same number."""

    limit: int

    def finished(self, now: float, rate_limited: bool) -> None:
        """Nothing to learn."""


class Auto:
    """Slow start, back off on 429 and on latency that buys nothing."""

    def __init__(self, *, start: int = 4, most: int = 1024, window_s: float = 1.0) -> None:
        self.limit = start
        self._most = most
        self._window_s = window_s
        self._opened: float | None = None
        self._count = 0
        self._limited = False
        self._best_rate = 0.0
        self._best_limit = start
        self._climbing = True
        self._still = 0
        self._wider_next = True
        self._old = 0  # rollouts still in flight that began under a limit known to be too wide

    def finished(self, now: float, rate_limited: bool) -> None:
        """Count one finished rollout; at the end of a window, think again."""
        if self._opened is None or self._old > 0:
            self._opened = now
        if self._old > 0:
            self._old -= 1
            return
        self._count += 1
        self._limited = self._limited or rate_limited
        lasted = now - self._opened
        if lasted >= self._window_s and self._count >= 2 * self.limit:
            self._decide(self._count / lasted)
            self._opened, self._count, self._limited = now, 0, False

    def _decide(self, rate: float) -> None:
        if self._limited:
            self._old = self.limit
            self.limit = max(1, self.limit // 2)
            self._best_rate, self._best_limit = 0.0, self.limit
            self._climbing, self._still, self._wider_next = False, 0, True
        elif self.limit == self._best_limit:
            self._best_rate = rate
            self._still += 1
            if self._climbing or self._still >= _PATIENCE:
                self._try_another()
        elif self.limit > self._best_limit and rate > self._best_rate * _WORTH:
            self._best_rate, self._best_limit, self._still = rate, self.limit, 0
            self._widen()
        elif self.limit < self._best_limit and rate * _WORTH > self._best_rate:
            self._best_limit, self._still = self.limit, 0  # the rate stays: small losses must not add up
            self._narrow()
        else:
            self.limit = self._best_limit
            self._climbing, self._still = False, 0

    def _try_another(self) -> None:
        if self._climbing or self._wider_next:
            self._widen()
        else:
            self._narrow()
        self._wider_next = not self._wider_next

    def _narrow(self) -> None:
        self.limit = max(1, self.limit - max(1, self.limit // 5))

    def _widen(self) -> None:
        step = self.limit if self._climbing else max(1, self.limit // 10)
        self.limit = min(self._most, self.limit + step)


Pace = Fixed | Auto


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
