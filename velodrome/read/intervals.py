"""How far a mean over tasks could be off: confidence intervals from resampling whole tasks.

Rollouts of one task are alike, so tasks are drawn, not rollouts: a task brings all its sums with it. An interval is the
percentile bootstrap, widened to what Student's t asks for at this number of tasks. The same seed gives the same one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, cos, pi, sin, sqrt
from operator import itemgetter
from statistics import NormalDist
from typing import Any

RESAMPLES = 1000
FEWEST = 5  # clusters; with fewer, resampling says nothing worth printing
MOST = 500  # clusters; more tasks than that are dealt out to this many, which costs 3% in the interval's length

Interval = tuple[float, float]
Draw = Callable[[Sequence[float]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How intervals are made. A `level` of 0 makes none."""

    level: float = 0.95
    seed: int = 0
    resamples: int = RESAMPLES

    def mean(
        self, sums: Sequence[float], counts: Sequence[float], *, within: Interval | None = None
    ) -> Interval | None:
        """The interval of `sum(sums) / sum(counts)`, one entry a task; an entry with a count of 0 is none.

        None where resampling has nothing to say: few tasks, or all of them alike. The latter has an answer if the
        mean is known to lie `within` some bounds.
        """
        sums, counts = _dealt(sums, counts)
        clusters = len(sums)
        if not self.level or clusters < FEWEST:
            return None
        if _alike(sums, counts):
            return None if within is None else self._unseen(sums[0] / counts[0], clusters, within)
        return self._between(_means(sums, counts, self._draws(clusters, 0)), clusters)

    def difference(
        self, a: tuple[Sequence[float], Sequence[float]], b: tuple[Sequence[float], Sequence[float]]
    ) -> Interval | None:
        """The interval of the second mean less the first, of tasks that have nothing to do with each other."""
        (a_sums, a_counts), (b_sums, b_counts) = _dealt(*a), _dealt(*b)
        fewest = min(len(a_sums), len(b_sums))
        if not self.level or fewest < FEWEST or (_alike(a_sums, a_counts) and _alike(b_sums, b_counts)):
            return None
        a_means = _means(a_sums, a_counts, self._draws(len(a_sums), 0))
        b_means = _means(b_sums, b_counts, self._draws(len(b_sums), 1))
        return self._between([after - before for before, after in zip(a_means, b_means, strict=True)], fewest)

    def _draws(self, clusters: int, stream: int) -> list[Draw]:
        return _draws(clusters, 2 * self.seed + stream, self.resamples)

    def _between(self, values: list[float], clusters: int) -> Interval:
        values.sort()
        tail = _tail((1 - self.level) / 2, clusters)
        return _quantile(values, tail), _quantile(values, 1 - tail)

    def _unseen(self, value: float, clusters: int, within: Interval) -> Interval:
        """Where every task gave the same: what a share of other tasks, too small to have been drawn, could change."""
        share = 1 - ((1 - self.level) / 2) ** (1 / clusters)
        low, high = within
        return value - share * (value - low), value + share * (high - value)


def _dealt(sums: Sequence[float], counts: Sequence[float]) -> tuple[list[float], list[float]]:
    """The clusters that have anything, dealt out to at most `MOST`."""
    there = [(total, count) for total, count in zip(sums, counts, strict=True) if count]
    if len(there) <= MOST:
        return [total for total, _ in there], [float(count) for _, count in there]
    return (
        [sum(total for total, _ in there[start::MOST]) for start in range(MOST)],
        [float(sum(count for _, count in there[start::MOST])) for start in range(MOST)],
    )


def _alike(sums: list[float], counts: list[float]) -> bool:
    first = sums[0] / counts[0]
    near = 1e-12 * max(abs(first), 1e-300)
    return all(abs(total / count - first) <= near for total, count in zip(sums, counts, strict=True))


@lru_cache(maxsize=8)
def _draws(clusters: int, seed: int, resamples: int) -> list[Draw]:
    chance = random.Random(seed)
    everyone = range(clusters)
    return [itemgetter(*chance.choices(everyone, k=clusters)) for _ in range(resamples)]


def _means(sums: list[float], counts: list[float], draws: list[Draw]) -> list[float]:
    if all(count == counts[0] for count in counts):
        whole = counts[0] * len(counts)
        return [sum(draw(sums)) / whole for draw in draws]
    return [sum(draw(sums)) / sum(draw(counts)) for draw in draws]


def _quantile(values: list[float], share: float) -> float:
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def _tail(tail: float, clusters: int) -> float:
    """The tail to cut off, so that the interval is as long as Student's t would make it.

    Drawing from n tasks shows a variance that is too small by (n - 1) / n, and a normal tail is too thin for few.
    """
    reach = student(1 - tail, clusters - 1) * sqrt(clusters / (clusters - 1))
    return NormalDist().cdf(-reach)


@lru_cache(maxsize=256)
def student(share: float, freedom: int) -> float:
    """The quantile of Student's t for a share of at least one half."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < 2 * share - 1:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if _within(middle, freedom) < 2 * share - 1:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """The chance of a value between -t and t: the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = atan(t / sqrt(freedom))
    square = cos(angle) ** 2
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= square * (step - 1) / step
        total += term
    return (2 / pi) * (angle + sin(angle) * total) if odd else sin(angle) * total
