"""How numbers are spread: count, mean, standard deviation, least, median, most, in one pass and in bounded memory.

The median is exact while there are few different numbers, as rewards and counts are; beyond that it is within `ERROR`
of the one that stands at its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from operator import mul
from typing import Any

MOST_DISTINCT = 4096
ERROR = 0.01
_STEP = log((1 + ERROR) / (1 - ERROR))
_ZERO = 100_000  # beyond the bucket of any float, so that the sign of a bucket is the sign of its numbers


class Spread:
    """Running sums over finite numbers."""

    __slots__ = ("_buckets", "_counts", "_shift", "_squares", "_sum", "high", "low", "n", "total")

    def __init__(self) -> None:
        self.n = 0
        self.total = 0.0
        self.low = self.high = 0.0
        self._shift = 0.0  # the first number: squares of distances from it lose no digits to a large mean
        self._sum = 0.0
        self._squares = 0.0
        self._counts: Counter[float] = Counter()
        self._buckets: Counter[int] | None = None

    def extend(self, values: Sequence[float]) -> None:
        """Count numbers, any but none."""
        low, high = min(values), max(values)
        if not self.n:
            self.low, self.high, self._shift = low, high, values[0]
        elif low < self.low:
            self.low = low
        if high > self.high:
            self.high = high
        self.n += len(values)
        shift = self._shift
        self.total = sum(values, self.total)
        distances = [value - shift for value in values]
        self._sum += sum(distances)
        self._squares += sum(map(mul, distances, distances))
        if self._buckets is None:
            self._counts.update(values)
            if len(self._counts) > MOST_DISTINCT:
                self._buckets = Counter()
                for value, count in self._counts.items():
                    self._buckets[_bucket(value)] += count
                self._counts.clear()
        else:
            self._buckets.update(map(_bucket, values))

    @property
    def mean(self) -> float | None:
        """The mean; None of nothing."""
        return self.total / self.n if self.n else None

    @property
    def std(self) -> float | None:
        """The standard deviation of a sample, with n - 1 below the line; None of fewer than two."""
        if self.n < 2:
            return None
        return sqrt(max(self._squares - self._sum * self._sum / self.n, 0.0) / (self.n - 1))

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
