"""The times at which something was running."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import fsum


class Stretches:
    """Stretches of time, merged if the gap between them is at most `gap_s`; `lo` to `hi` is the latest.

    They may be added in any order.
    """

    def __init__(self, *, gap_s: float = 1.0) -> None:
        self._gap_s = gap_s
        self._starts: list[float] = []  # of earlier stretches, disjoint and sorted
        self._ends: list[float] = []
        self.lo = self.hi = -1e18  # before any clock: nothing ran yet
        self.before_s = 0.0  # the length of the stretch before the latest

    def add(self, start: float, end: float) -> bool:
        """Add a stretch. Returns whether it starts a new latest stretch."""
        gap_s = self._gap_s
        if self.lo <= start <= self.hi + gap_s:
            if end > self.hi:
                self.hi = end
            return False
        if start > self.hi:
            if self.hi > -1e18:
                self.before_s = self.hi - self.lo
                self._insert(self.lo, self.hi)
            self.lo, self.hi = start, end
            return True
        if end >= self.lo - gap_s:
            self.lo, self.hi = start, max(self.hi, end)
            while self._ends and self._ends[-1] >= self.lo - gap_s:
                self.lo = min(self.lo, self._starts.pop())
                self._ends.pop()
        else:
            self._insert(start, end)
        return False

    def _insert(self, start: float, end: float) -> None:
        first = bisect_left(self._ends, start - self._gap_s)
        last = bisect_right(self._starts, end + self._gap_s)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def holds(self, time: float) -> bool:
        if self.lo <= time <= self.hi:
            return True
        place = bisect_right(self._starts, time) - 1
        return place >= 0 and time <= self._ends[place]

    @property
    def seconds(self) -> float:
        return fsum([self.hi - self.lo, *(end - start for start, end in zip(self._starts, self._ends, strict=True))])
