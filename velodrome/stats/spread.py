"""How numbers are spread: count, mean, standard deviation, least, median, most, in one pass and in bounded memory.

The median is exact while there are few different numbers, as rewards and counts are; beyond that it is within `ERROR`
of the one that stands at its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from velodrome.stats.exact import Moments

MOST_DISTINCT = 4096
ERROR = 0.01
_STEP = log((1 + ERROR) / (1 - ERROR))
_ZERO = 100_000  # beyond the bucket of any float, so that the sign of a bucket is the sign of its numbers


class Spread:
    """What is kept of finite numbers; the order they come in makes no difference, not to the last digit."""

    __slots__ = ("_buckets", "_counts", "_moments", "high", "low", "n")

    def __init__(self) -> None:
        self.n = 0
        self.low = self.high = 0.0
        self._counts: Counter[float] = Counter()
        self._buckets: Counter[int] | None = None  # once too many numbers are different; then `_moments` has their sums
        self._moments = Moments()

    def extend(self, values: Sequence[float]) -> None:
        """Count numbers, any but none."""
        low, high = min(values), max(values)
        if not self.n or low < self.low:
            self.low = low
        if not self.n or high > self.high:
            self.high = high
        self.n += len(values)
        if self._buckets is None:
            self._counts.update(values)
            self._fold()
        else:
            self._buckets.update(map(_bucket, values))
            self._moments.extend(values)

    def merge(self, other: Spread) -> None:
        """Count the numbers of another."""
        if not other.n:
            return
        self.low = min(self.low, other.low) if self.n else other.low
        self.high = max(self.high, other.high) if self.n else other.high
        self.n += other.n
        if other._buckets is not None:
            self._fold(at_once=True)
            self._moments.merge(other._moments)
            self._buckets = (self._buckets or Counter()) + other._buckets
        elif self._buckets is None:
            self._counts.update(other._counts)
            self._fold()
        else:
            for value, count in other._counts.items():
                self._buckets[_bucket(value)] += count
            self._moments.extend(other._counts, other._counts.values())

    def _fold(self, *, at_once: bool = False) -> None:
        """Keep buckets in place of numbers, if too many are different."""
        if self._buckets is None and (at_once or len(self._counts) > MOST_DISTINCT):
            self._buckets, self._moments = Counter(), self._sums()
            for value, count in self._counts.items():
                self._buckets[_bucket(value)] += count
            self._counts.clear()

    def _sums(self) -> Moments:
        if self._buckets is None:
            found = Moments()
            found.extend(self._counts, self._counts.values())
            return found
        return self._moments

    @property
    def mean(self) -> float | None:
        """The mean; None of nothing."""
        return self._sums().mean

    @property
    def std(self) -> float | None:
        """The standard deviation of a sample, with n - 1 below the line; None of fewer than two."""
        return self._sums().std

    @property
    def two_values(self) -> tuple[float, float] | None:
        """The lower and the higher, if no more and no fewer than two different numbers were counted."""
        return (self.low, self.high) if self._buckets is None and len(self._counts) == 2 else None

    @property
    def median(self) -> float | None:
        """`sorted(numbers)[n // 2]`: of an even count the upper of the two in the middle; None of nothing."""
        if not self.n:
            return None
        if self._buckets is None:
            return _placed(self._counts, self.n // 2)
        return min(max(_middle(int(_placed(self._buckets, self.n // 2))), self.low), self.high)

    @property
    def error(self) -> float:
        """How far off the median can be, as a share of it."""
        return 0.0 if self._buckets is None else ERROR


def _placed(counts: Mapping[Any, int], place: int) -> float:
    """What stands at a place if everything counted stands in order."""
    found = 0.0
    for found in sorted(counts):
        place -= counts[found]
        if place < 0:
            break
    return found


def _bucket(value: float) -> int:
    if not value:
        return 0
    place = int(log(abs(value)) // _STEP) + 1 + _ZERO
    return place if value > 0 else -place


def _middle(bucket: int) -> float:
    """The number that is within `ERROR` of every other in its bucket."""
    if not bucket:
        return 0.0
    size = exp((abs(bucket) - _ZERO) * _STEP) * (1 - ERROR)
    return size if bucket > 0 else -size
