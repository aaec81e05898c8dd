"""How many rollouts run at once: a number, or found out while running.

`auto` starts small and doubles while that brings more rollouts a second. It halves when the model says 429. Once it
has settled it tries a little more and a little less in turn, and keeps whichever is as fast with fewer in flight. It
is arithmetic on what it is told: no clock, no tasks.
"""

from __future__ import annotations

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
