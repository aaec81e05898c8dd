"""Quantiles of any numbers, in one pass and in bounded memory.

Numbers are counted exactly while few of them differ, as in rewards and small samples. Beyond that they are counted in
buckets whose edges grow by a constant factor. A quantile is then within `ERROR` of the number at its place in the
sorted list. The order of the numbers makes no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log

ERROR = 0.01
EXACT = 1000  # different numbers that are counted exactly
_STEP = log((1 + ERROR) / (1 - ERROR))
_PER_STEP = 1 / _STEP
_ONE = 100_000  # the bucket of 1; buckets of positive floats are positive
_MIDDLE = 1 + ERROR  # times a bucket's lower edge: within ERROR of every number in it


class Quantiles:
    """Counts of finite numbers. `exact` is the number of different ones that are counted exactly."""

    __slots__ = ("_bucketed", "_counts", "_exact", "count", "high", "low", "sum")

    def __init__(self, exact: int = EXACT) -> None:
        self.count = 0
        self.sum = self.low = self.high = 0.0
        self._exact = exact
        self._bucketed = False
        self._counts: Counter[float] = Counter()  # of numbers, or of buckets

    def add(self, number: float, times: int = 1) -> None:
        """Count one number, once or several times."""
        key = _bucket(number) if self._bucketed else number
        self._counts[key] = self._counts.get(key, 0) + times
        self._update_totals(times, number * times, number, number)

    def extend(self, numbers: Sequence[float]) -> None:
        """Count many numbers at once, which is several times faster."""
        if numbers:
            self._counts.update(map(_bucket, numbers) if self._bucketed else numbers)
            self._update_totals(len(numbers), sum(numbers), min(numbers), max(numbers))

    def merge(self, other: Quantiles) -> None:
        """Add all counts of another."""
        if other.count:
            if other._bucketed and not self._bucketed:
                self._fold()
            self._counts.update(other._buckets() if self._bucketed else other._counts)
            self._update_totals(other.count, other.sum, other.low, other.high)

    def _update_totals(self, count: int, total: float, low: float, high: float) -> None:
        """Update the totals after an addition to `_counts`, which becomes buckets if it is too large."""
        if not self.count or low < self.low:
            self.low = low
        if not self.count or high > self.high:
            self.high = high
        self.count += count
        self.sum += total
        if not self._bucketed and len(self._counts) > self._exact:
            self._fold()

    @property
    def mean(self) -> float:
        """The mean; 0 if there are no numbers."""
        return self.sum / (self.count or 1)

    @property
    def error(self) -> float:
        """How far off a quantile can be, as a share of it."""
        return ERROR if self._bucketed else 0.0

    @property
    def distinct(self) -> Mapping[float, int] | None:
        """How often each number was counted; None once there are too many different ones."""
        return None if self._bucketed else self._counts

    def quantile(self, share: float) -> float:
        """The number at place `int(share * count)` in sorted order; 0 if there are none."""
        return self._clamped(_placed(self._counts, share)) if self.count else 0.0

    def deviation(self) -> float:
        """The median distance from the median."""
        median = self.quantile(0.5)
        distances: Counter[float] = Counter()
        for each, times in self._counts.items():
            distances[abs(self._clamped(each) - median)] += times
        return _placed(distances, 0.5)

    def outside(self, low: float, high: float) -> int:
        """How many numbers are below `low` or above `high`."""
        return sum(times for each, times in self._counts.items() if not low <= self._clamped(each) <= high)

    def bins(self, most: int = 40, smallest: float = 1e-6) -> tuple[list[float], list[int]]:
        """Edges and the counts between them, for a histogram of at most `most` bins of equal ratio.

        Everything below `smallest` is in one bin that begins at 0.
        """
        if not self.count:
            return [], []
        floor = _bucket(smallest) - 1
        counts: Counter[int] = Counter()
        for bucket, times in self._buckets().items():
            counts[max(int(bucket), floor)] += times
        first, last = min(counts), max(counts)
        width = -(-(last - first + 1) // most)
        bins = [0] * (-(-(last - first + 1) // width))
        for bucket, times in counts.items():
            bins[(bucket - first) // width] += times
        places = [first + width * index for index in range(len(bins) + 1)]
        return [0.0 if place == floor else _edge(place) for place in places], bins

    def _fold(self) -> None:
        self._counts, self._bucketed = self._buckets(), True

    def _buckets(self) -> Counter[float]:
        if self._bucketed:
            return self._counts
        buckets: Counter[float] = Counter()
        for number, times in self._counts.items():
            buckets[_bucket(number)] += times
        return buckets

    def _clamped(self, key: float) -> float:
        """The number for a key of `_counts`."""
        if not self._bucketed:
            return key + 0.0
        return min(max(_middle(int(key)), self.low), self.high)


def _bucket(number: float) -> int:
    if number > 0:
        return int(log(number) * _PER_STEP + _ONE)
    return -int(log(-number) * _PER_STEP + _ONE) if number else 0


def _edge(bucket: int) -> float:
    return exp((bucket - _ONE) * _STEP)


def _middle(bucket: int) -> float:
    if not bucket:
        return 0.0
    return _edge(bucket) * _MIDDLE if bucket > 0 else -_edge(-bucket) * _MIDDLE


def _placed(counts: Mapping[float, int], share: float) -> float:
    """The number at place `int(share * n)` of the n counted numbers, sorted."""
    total = sum(counts.values())
    place = min(total - 1, int(share * total))
    number = 0.0
    for number in sorted(counts):
        place -= counts[number]
        if place < 0:
            break
    return number
