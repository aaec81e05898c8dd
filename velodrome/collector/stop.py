"""Why a run ends early: a budget is used up, somebody interrupts it, or the disk or a server is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_ENOUGH = 20  # finished rollouts before a share of failures means anything


class Stop:
    """Why a run takes no new jobs. The first reason counts. `now`: what is in flight is given up, too."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.now = False
        self.changed: Callable[[], None] = lambda: None  # the run sets it
        self._interrupted = False

    def request(self, reason: str) -> None:
        """Take no new jobs, and let what is in flight finish."""
        if self.reason is None:
            self.reason = reason
        self.changed()

    def interrupt(self) -> None:
        """Ctrl-C. The first one lets what is in flight finish, even after a budget; the second does not."""
        self.now = self.now or self._interrupted
        self._interrupted = True
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
