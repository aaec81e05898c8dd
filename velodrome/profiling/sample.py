"""A sample of the attempts of one run, for the verdict: the first, the last, and a fair choice of the others.

The first and the last are kept without gaps, because the number in flight changes there, which shows the time of a call
with few others. The choice is seeded: the same rows give the same sample.
"""

from __future__ import annotations

import random
from collections import deque
from operator import add
from typing import NamedTuple

from velodrome.records.row_times import PARTS, RowTimes

FEWEST = 20  # rollouts that a verdict needs
FIRST = 100
LAST = 250
BETWEEN = 150


class RecordedAttempt(NamedTuple):
    """One attempt: when it began (seconds since 1970), its times, and whether it was kept."""

    start: float
    times: RowTimes
    kept: bool
    key: str = ""

    @property
    def total_s(self) -> float:
        """How long it took."""
        return self.times.total_s

    @property
    def end(self) -> float:
        """When it ended."""
        return self.start + self.times.total_s


class RunSample:
    """The sampled attempts of one run, and sums over all."""

    def __init__(self) -> None:
        self.kept = 0
        self.failed = 0
        self.total_s = 0.0  # of all attempts
        self.parts = [0.0] * len(PARTS)  # of that
        self.agent: str | None = None
        self._first: list[RecordedAttempt] = []
        self._between: list[RecordedAttempt] = []
        self._last: deque[RecordedAttempt] = deque()
        self._seen = 0
        self._chance = random.Random(4)

    def add(self, attempt: RecordedAttempt) -> None:
        """Count one attempt, and keep it if it is chosen."""
        if attempt.kept:
            self.kept += 1
        else:
            self.failed += 1
        self.total_s += attempt.total_s
        self.parts = list(map(add, self.parts, attempt.times.parts))
        if len(self._first) < FIRST:
            self._first.append(attempt)
            return
        self._last.append(attempt)
        if len(self._last) > LAST:
            self._seen += 1
            self._choose(self._last.popleft())

    def _choose(self, attempt: RecordedAttempt) -> None:
        """Keep the attempt with a fair probability (algorithm R)."""
        if len(self._between) < BETWEEN:
            self._between.append(attempt)
        elif (place := int(self._chance.random() * self._seen)) < BETWEEN:
            self._between[place] = attempt

    @property
    def windows(self) -> tuple[list[RecordedAttempt], ...]:
        """Attempts in the order of their ends, without gaps: the first and the last, or all in one window."""
        if not self._between:
            return ([*self._first, *self._last],)
        return (self._first, list(self._last))

    @property
    def fair(self) -> list[RecordedAttempt]:
        """Attempts that represent the whole run: the same share of its beginning, its middle and its end."""
        if not self._between:
            return [*self._first, *self._last]
        every = max(round(self._seen / len(self._between)), 1)
        return [*self._first[::every], *self._between, *list(self._last)[::every]]
