"""Percentiles of durations, in one pass and in bounded memory.

Durations fall into buckets whose edges grow by a constant factor, so that a quantile is within `ERROR` of the value
at its place in the sorted list, however many there are. Below a microsecond the error is up to a microsecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log

ERROR = 0.02
_SHORTEST_S = 1e-6
_LONGEST_S = 1e9
_STEP = log((1 + ERROR) / (1 - ERROR))
_PER_STEP = 1 / _STEP
_PER_S = 1 / _SHORTEST_S
_SHORTER = -1  # the bucket of what is too short to tell apart
_MIDDLE = 1 - ERROR  # from a bucket's upper edge to the value that is within ERROR of both its edges


class Histogram:
    """Counts of durations in seconds, each finite and not negative."""

    __slots__ = ("_counts", "least", "most", "sum")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.sum = 0.0
        self.least = _LONGEST_S
        self.most = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count one duration, or several that are the same."""
        counts = self._counts
        bucket = int(log(seconds * _PER_S) * _PER_STEP) if seconds > _SHORTEST_S else _SHORTER
        counts[bucket] = counts.get(bucket, 0) + times
        self.sum += seconds if times == 1 else seconds * times
        if seconds > self.most:
            self.most = seconds
        if seconds < self.least:
            self.least = seconds

    def extend(self, durations: Sequence[float]) -> None:
        """Count many at once, which takes a third of the time."""
        if not durations:
            return
        most = max(durations)
        if most > _SHORTEST_S:
            floor, per_s, per_step, shorter = _SHORTEST_S, _PER_S, _PER_STEP, _SHORTER
            self._counts.update([int(log(each * per_s) * per_step) if each > floor else shorter for each in durations])
        else:
            self._counts[_SHORTER] += len(durations)
        self.sum += sum(durations)
        self.most = max(self.most, most)
        self.least = min(self.least, min(durations))

    def merge(self, other: Histogram) -> None:
        """Count everything another histogram has counted."""
        self._counts.update(other._counts)
        self.sum += other.sum
        self.most = max(self.most, other.most)
        self.least = min(self.least, other.least)

    @property
    def count(self) -> int:
        """How many there are. Added up here and not as they come, which is the hot path."""
        return sum(self._counts.values())

    @property
    def mean(self) -> float:
        """The mean in seconds; 0 if there is nothing."""
        return self.sum / (self.count or 1)

    def quantile(self, share: float) -> float:
        """The duration at place `int(share * n)` of n in order, so that of few the last ones count; 0 of nothing."""
        count = self.count
        if not count:
            return 0.0
        wanted = min(count - 1, int(share * count))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen > wanted:
                break
        found = 0.0 if bucket == _SHORTER else _edge(bucket + 1) * _MIDDLE
        return min(max(found, self.least), self.most)

    def drawn(self, most: int = 40) -> tuple[list[float], list[int]]:
        """Edges in seconds and the counts between them, for a picture: at most so many bins of equal ratio."""
        if not self._counts:
            return [], []
        first, last = min(self._counts), max(self._counts)
        width = -(-(last - first + 1) // most)
        bins = [0] * (-(-(last - first + 1) // width))
        for bucket, count in self._counts.items():
            bins[(bucket - first) // width] += count
        return [_edge(first + width * index) for index in range(len(bins) + 1)], bins


def _edge(bucket: int) -> float:
    return 0.0 if bucket == _SHORTER else _SHORTEST_S * exp(bucket * _STEP)
