"""Some of a run's rollouts, kept for the verdict: its first, its last, and a fair choice of those between.

The first and the last are kept whole, because there the number in flight changes, and how long a call takes when few
others run tells what it takes by itself. The choice is seeded: the same rows give the same sample.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from math import exp, log
from typing import Any, NamedTuple

Json = dict[str, Any]

FIRST = 500
LAST = 500
BETWEEN = 1000
_MOST_NODES = 20_000  # in each of the three; trees can be large


class Recorded(NamedTuple):
    """One attempt: when it began (seconds since 1970), how long it took, its `meta.timing`, whether it was kept."""

    start: float
    total_s: float
    timing: Json
    kept: bool
    nodes: int
    key: str = ""


class Run:
    """One run of a collection, as far as the verdict needs it."""

    def __init__(self) -> None:
        self.kept = 0
        self.failed = 0
        self.agent: str | None = None
        self._first: list[Recorded] = []
        self._between: list[Recorded] = []
        self._last: deque[Recorded] = deque()
        self._nodes = [0, 0, 0]
        self._seen = self._next = 0
        self._weight = 1.0
        self._chance = random.Random(4)

    def add(self, rollout: Recorded) -> None:
        """Count one, and keep it if it is chosen."""
        if rollout.kept:
            self.kept += 1
        else:
            self.failed += 1
        nodes = self._nodes
        if nodes[0] < _MOST_NODES and len(self._first) < FIRST:
            self._first.append(rollout)
            nodes[0] += rollout.nodes
            return
        last = self._last
        last.append(rollout)
        nodes[2] += rollout.nodes
        while len(last) > LAST or (nodes[2] > _MOST_NODES and len(last) > 1):
            oldest = last.popleft()
            nodes[2] -= oldest.nodes
            self._seen += 1
            if self._seen >= self._next:
                self._choose(oldest)

    def _choose(self, rollout: Recorded) -> None:
        """Algorithm L: which one is taken next is drawn when one is taken, so that the others cost nothing."""
        chosen, nodes = self._between, self._nodes
        if len(chosen) < BETWEEN and nodes[1] < _MOST_NODES:
            chosen.append(rollout)
            nodes[1] += rollout.nodes
            self._next = self._seen + 1
            return
        chance = self._chance.random
        if self._weight < 1.0:
            place = int(chance() * len(chosen))
            nodes[1] += rollout.nodes - chosen[place].nodes
            chosen[place] = rollout
        self._weight *= exp(log(1.0 - chance()) / len(chosen))
        self._next = self._seen + 1 + int(log(1.0 - chance()) / log(1.0 - self._weight))

    def __iter__(self) -> Iterator[Recorded]:
        yield from self._first
        yield from self._between
        yield from self._last

    @property
    def windows(self) -> tuple[list[Recorded], ...]:
        """Rollouts of which none in between is missing: the first and the last, or all of them at once."""
        if not self._between:
            return ([*self._first, *self._last],)
        return (self._first, list(self._last))
