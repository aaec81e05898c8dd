"""Some attempts of one run, kept for the verdict: its first, its last, and a fair choice of those between.

The first and the last are kept without gaps, because there the number in flight changes, and how long a call takes
while few others run tells what it takes alone. The choice is seeded: the same rows give the same sample.
"""

from __future__ import annotations

import random
from collections import deque
from math import exp, log
from typing import Any, NamedTuple

Json = dict[str, Any]

FEWEST = 20  # rollouts that a verdict needs
FIRST = 100
LAST = 250
BETWEEN = 150
_MOST_NODES = 2_000  # in each of the three; trees can be large


class RecordedAttempt(NamedTuple):
    """One attempt: when it began (seconds since 1970), how long it took, its `meta.timing`, whether it was kept."""

    start: float
    total_s: float
    timing: Json
    kept: bool
    nodes: int
    key: str = ""

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.total_s


class RunSample:
    """The attempts of one run, as far as the verdict needs them."""

    def __init__(self) -> None:
        self.kept = 0
        self.failed = 0
        self.total_s = 0.0  # of all attempts
        self.agent: str | None = None
        self._first: list[RecordedAttempt] = []
        self._between: list[RecordedAttempt] = []
        self._last: deque[RecordedAttempt] = deque()
        self._nodes = [0, 0, 0]
        self._seen = self._next = 0
        self._weight = 1.0
        self._chance = random.Random(4)

    def add(self, attempt: RecordedAttempt) -> None:
        """Count one, and keep it if it is chosen."""
        if attempt.kept:
            self.kept += 1
        else:
            self.failed += 1
        self.total_s += attempt.total_s
        nodes = self._nodes
        if nodes[0] < _MOST_NODES and len(self._first) < FIRST:
            self._first.append(attempt)
            nodes[0] += attempt.nodes
            return
        last = self._last
        last.append(attempt)
        nodes[2] += attempt.nodes
        while len(last) > LAST or (nodes[2] > _MOST_NODES and len(last) > 1):
            oldest = last.popleft()
            nodes[2] -= oldest.nodes
            self._seen += 1
            if self._seen >= self._next:
                self._choose(oldest)

    def _choose(self, attempt: RecordedAttempt) -> None:
        """Algorithm L (Li, 1994): the next one to take is drawn when one is taken, so the others cost nothing."""
        chosen, nodes = self._between, self._nodes
        if len(chosen) < BETWEEN and nodes[1] < _MOST_NODES:
            chosen.append(attempt)
            nodes[1] += attempt.nodes
            self._next = self._seen + 1
            return
        chance = self._chance.random
        if self._weight < 1.0:
            place = int(chance() * len(chosen))
            nodes[1] += attempt.nodes - chosen[place].nodes
            chosen[place] = attempt
        self._weight *= exp(log(1.0 - chance()) / len(chosen))
        self._next = self._seen + 1 + int(log(1.0 - chance()) / log(1.0 - self._weight))

    @property
    def windows(self) -> tuple[list[RecordedAttempt], ...]:
        """Attempts in the order of their ends with none missing between: the first and the last, or all at once."""
        if not self._between:
            return ([*self._first, *self._last],)
        return (self._first, list(self._last))

    @property
    def fair(self) -> list[RecordedAttempt]:
        """Attempts that stand for all of the run: of its first and its last as large a share as of the others."""
        if not self._between:
            return [*self._first, *self._last]
        every = max(round(self._seen / len(self._between)), 1)
        return [*self._first[::every], *self._between, *list(self._last)[::every]]
