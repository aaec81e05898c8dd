"""When anything was running."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import fsum


class Stretches:
    """When anything at all was running. Stretches no further apart than `gap_s` are one; `lo` to `hi` is the latest.

    The order they come in makes no difference.
    """

    def __init__(self, *, gap_s: float = 1.0) -> None:
        self._gap_s = gap_s
        self._starts: list[float] = []  # of the earlier ones, which do not touch, rising; so are their ends
        self._ends: list[float] = []
        self.lo = self.hi = -1e18  # before any clock: nothing ran yet
        self.before_s = 0.0  # how long the one was that was the latest until this one came

    def add(self, start: float, end: float) -> bool:
        """Count one stretch. True if it begins a new one that is later than all others."""
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
