"""Sums that do not depend on the order of what is added, to the last digit, and that never overflow.

A float is a whole number of some 2**-n. Whole numbers of Python are added exactly; one division at the end rounds once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from math import fsum, isfinite, ldexp, sqrt

_AT_ONCE = 256


class Exact:
    """The sum of finite floats, as a whole number of `1 / unit`."""

    __slots__ = ("unit", "whole")

    def __init__(self) -> None:
        self.whole = 0
        self.unit = 1

    def add(self, value: float, times: int = 1) -> None:
        """Add a number, several times."""
        numerator, denominator = value.as_integer_ratio()
        self.add_ratio(numerator * times, denominator)

    def add_ratio(self, numerator: int, denominator: int) -> None:
        """Add `numerator / denominator`; the latter is a power of two."""
        if denominator > self.unit:
            self.whole *= denominator // self.unit
            self.unit = denominator
        self.whole += numerator * (self.unit // denominator)

    def over(self, count: int) -> float:
        """The sum divided by a count, rounded once; infinite where no float can hold it."""
        return ratio(self.whole, count * self.unit)


class Mean:
    """The mean of finite floats that come one by one; many are added at once, which takes a third of the time."""

    __slots__ = ("_fresh", "_sum", "_summed")

    def __init__(self) -> None:
        self._sum = Exact()
        self._summed = 0
        self._fresh: list[float] = []

    def add(self, value: float) -> None:
        """Count a number."""
        self._fresh.append(value)
        if len(self._fresh) >= _AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        self._summed += len(self._fresh)
        for value in summands(self._fresh):
            self._sum.add(value)
        self._fresh.clear()

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return self._summed + len(self._fresh)

    @property
    def value(self) -> float | None:
        """The mean; None of nothing."""
        self._settle()
        return self._sum.over(self._summed) if self._summed else None


class Moments:
    """The sums of finite floats and of their squares: all that a mean and a standard deviation need."""

    __slots__ = ("_squares", "_sum", "n")

    def __init__(self) -> None:
        self.n = 0
        self._sum = Exact()
        self._squares = Exact()

    def extend(self, values: Iterable[float], times: Iterable[int] = repeat(1)) -> None:
        """Add numbers, each so many times."""
        counted = [(*value.as_integer_ratio(), count) for value, count in zip(values, times, strict=False)]
        unit = max((denominator for _, denominator, _ in counted), default=1)
        wholes = [(numerator * (unit // denominator), count) for numerator, denominator, count in counted]
        self._sum.add_ratio(sum([whole * count for whole, count in wholes]), unit)
        self._squares.add_ratio(sum([whole * whole * count for whole, count in wholes]), unit * unit)
        self.n += sum([count for _, count in wholes])

    def merge(self, other: Moments) -> None:
        """Add the sums of another."""
        self.n += other.n
        self._sum.add_ratio(other._sum.whole, other._sum.unit)
        self._squares.add_ratio(other._squares.whole, other._squares.unit)

    @property
    def mean(self) -> float | None:
        """The mean; None of nothing."""
        return self._sum.over(self.n) if self.n else None

    @property
    def std(self) -> float | None:
        """The standard deviation of a sample, with n - 1 below the line; None of fewer than two."""
        if self.n < 2:
            return None
        total, squares = self._sum, self._squares
        apart = self.n * squares.whole * total.unit * total.unit - total.whole * total.whole * squares.unit
        return root(apart, self.n * (self.n - 1) * total.unit * total.unit * squares.unit)


class TaskSums:
    """One exact sum and one count for each place, in twelve bytes, or twenty once sums do not fit in one float.

    A sum is a float and what its rounding left out. The few that do not fit in two floats are whole numbers.
    """

    __slots__ = ("_beyond", "_rests", "_sums", "counts")

    def __init__(self) -> None:
        self.counts = array("I")
        self._sums = array("d")
        self._rests: array[float] | None = None
        self._beyond: dict[int, Exact] = {}

    def extend(self, values: Sequence[float], places: Sequence[int]) -> None:
        """Add numbers, each at the place beside it."""
        self._reach(max(places))
        sums, counts = self._sums, self.counts
        for place, value in zip(places, values, strict=True):
            if counts[place]:
                self._add(place, value)
            else:
                sums[place] = value
            counts[place] += 1

    def merge(self, other: TaskSums, places: Sequence[int]) -> None:
        """Add the sums of another, whose places are these here."""
        if not other.counts:
            return
        self._reach(max(places[: len(other.counts)]))
        for theirs, (place, count) in enumerate(zip(places, other.counts, strict=False)):
            self.counts[place] += count
            if theirs in other._beyond:
                total = other._beyond[theirs]
                self._spill(place).add_ratio(total.whole, total.unit)
                continue
            self._add(place, other._sums[theirs])
            if other._rests is not None:
                self._add(place, other._rests[theirs])

    def means(self) -> dict[int, float]:
        """The mean at every place that has any."""
        return {place: self._mean(place, count) for place, count in enumerate(self.counts) if count}

    def all_means(self) -> array[float]:
        """The same without the places."""
        if self._rests is None and not self._beyond:  # as of single repeats and of whole numbers
            summed = zip(self._sums, self.counts, strict=True)
            return array("d", [total / count + 0.0 for total, count in summed if count])
        return array("d", (self._mean(place, count) for place, count in enumerate(self.counts) if count))

    def _mean(self, place: int, count: int) -> float:
        """The quotient, rounded once in each of its three ways."""
        if place in self._beyond:
            return self._beyond[place].over(count)
        if self._rests is None or not self._rests[place]:
            return self._sums[place] / count + 0.0  # -0.0 is 0
        return self._whole(place).over(count)

    def _add(self, place: int, value: float) -> None:
        if place in self._beyond:
            self._beyond[place].add(value)
            return
        total, rest = _two_sum(self._sums[place], value)
        if rest or (self._rests is not None and self._rests[place]):
            if self._rests is None:
                self._rests = array("d", bytes(8 * len(self._sums)))
            rest, left = _two_sum(self._rests[place], rest)
            if left or not isfinite(total):
                self._spill(place).add(value)
                return
            total, self._rests[place] = _two_sum(total, rest)
        self._sums[place] = total

    def _spill(self, place: int) -> Exact:
        if place not in self._beyond:
            self._beyond[place] = self._whole(place)
        return self._beyond[place]

    def _whole(self, place: int) -> Exact:
        whole = Exact()
        whole.add(self._sums[place])
        if self._rests is not None:
            whole.add(self._rests[place])
        return whole

    def _reach(self, place: int) -> None:
        short = place + 1 - len(self._sums)
        if short > 0:
            self.counts.extend([0] * short)
            for each in (self._sums, self._rests):
                if each is not None:
                    each.frombytes(bytes(8 * short))


def _two_sum(a: float, b: float) -> tuple[float, float]:
    """The sum, rounded, and what the rounding left out (Knuth); that is NaN where the sum is infinite."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def summands(values: Sequence[float]) -> Sequence[float]:
    """A few floats with exactly the sum of many: the sum rounded, what the rounding left out rounded, and so on."""
    rest = list(values)
    few: list[float] = []
    try:
        while part := fsum(rest):
            few.append(part)
            rest.append(-part)
    except OverflowError:
        return values
    return few


def ratio(numerator: int, denominator: int) -> float:
    """The quotient, rounded once; infinite where no float can hold it."""
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


def root(numerator: int, denominator: int) -> float:
    """The square root of a quotient, whatever its size."""
    if numerator <= 0:
        return 0.0
    places = (numerator.bit_length() - denominator.bit_length()) // 2
    numerator, denominator = numerator << max(-2 * places, 0), denominator << max(2 * places, 0)
    try:
        return ldexp(sqrt(numerator / denominator), places)
    except OverflowError:
        return float("inf")


def mean_of(values: Sequence[float]) -> float:
    """The mean of finite numbers, whatever their order and size."""
    try:
        return fsum(values) / len(values)
    except OverflowError:
        total = Exact()
        for value in values:
            total.add(value)
        return total.over(len(values))
