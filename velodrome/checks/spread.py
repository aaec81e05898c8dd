"""How numbers are spread: counts in buckets whose edges grow by a tenth, on both sides of zero.

A quantile is within 10% of the number that stands at its place, however many there are and whatever their scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

_PER_STEP = 1 / log(1.1)
_OFFSET = 400  # buckets below 1
_NOTHING = 1e-16


class Spread:
    """Counts of finite numbers."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets: dict[int, int] = {}

    def add(self, number: float, times: int) -> None:
        """Count one number, several times."""
        bucket = bucket_of(number)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times

    def extend(self, numbers: Sequence[float]) -> None:
        """Count numbers."""
        buckets, read, offset = self._buckets, self._buckets.get, _OFFSET
        for number in numbers:
            bucket = int(log(number) * _PER_STEP + offset) if number > _NOTHING else bucket_of(number)
            buckets[bucket] = read(bucket, 0) + 1
        self.count += len(numbers)

    def quantile(self, share: float) -> float:
        """The number at place `int(share * n)` of n in order; 0 if there is nothing."""
        return _quantile([(middle(bucket), count) for bucket, count in sorted(self._buckets.items())], share)

    def deviation(self) -> float:
        """The median distance from the median."""
        median = self.quantile(0.5)
        return _quantile(sorted((abs(middle(each) - median), count) for each, count in self._buckets.items()), 0.5)

    def outside(self, low: float, high: float) -> int:
        """How many are below or above."""
        return sum(count for bucket, count in self._buckets.items() if not low <= middle(bucket) <= high)


def bucket_of(number: float) -> int:
    """The bucket of a number; sorted, they are in the order of what is in them."""
    if -_NOTHING <= number <= _NOTHING:
        return 0
    if number > 0:
        return int(log(number) * _PER_STEP + _OFFSET)
    return -int(log(-number) * _PER_STEP + _OFFSET)


def middle(bucket: int) -> float:
    """The number a bucket stands for."""
    if bucket == 0:
        return 0.0
    size = exp((abs(bucket) + 0.5 - _OFFSET) / _PER_STEP)
    return size if bucket > 0 else -size


def _quantile(rising: list[tuple[float, int]], share: float) -> float:
    whole = sum(count for _, count in rising)
    wanted = min(whole - 1, int(share * whole))
    for number, count in rising:
        wanted -= count
        if wanted < 0:
            return number
    return 0.0
