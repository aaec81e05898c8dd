"""Sums that do not depend on the order of what is added, to the last digit, and that never overflow.

Fractions are added exactly; the division at the end rounds once.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import fsum, isfinite

_AT_ONCE = 256


def exact_sum(values: Sequence[float]) -> Fraction:
    """The sum of finite numbers without rounding: what `fsum` rounds off is summed again, until nothing is left."""
    rest, total = list(values), Fraction(0)
    try:
        while part := fsum(rest):
            total += Fraction(part)
            rest.append(-part)
    except OverflowError:
        return sum(map(Fraction, values), Fraction(0))
    return total


def as_float(exact: Fraction) -> float:
    """The nearest float; infinite where no float can hold it."""
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def root(exact: Fraction) -> float:
    """The square root, whatever its size; 0 of what is not positive."""
    return float((Decimal(exact.numerator) / exact.denominator).sqrt()) if exact > 0 else 0.0


def mean_of(values: Sequence[float]) -> float:
    """The mean of finite numbers, whatever their order and size."""
    return as_float(exact_sum(values) / len(values))


class Mean:
    """The mean of finite numbers that come one by one; many are added at once, which takes a third of the time."""

    __slots__ = ("_fresh", "_sum", "_summed")

    def __init__(self) -> None:
        self._sum = Fraction(0)
        self._summed = 0
        self._fresh: list[float] = []

    def add(self, value: float) -> None:
        self._fresh.append(value)
        if len(self._fresh) >= _AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        self._summed += len(self._fresh)
        self._sum += exact_sum(self._fresh)
        self._fresh.clear()

    @property
    def count(self) -> int:
        return self._summed + len(self._fresh)

    @property
    def value(self) -> float | None:
        self._settle()
        return as_float(self._sum / self._summed) if self._summed else None


class Moments:
    """The sums of finite numbers and of their squares: all that a mean and a standard deviation need."""

    __slots__ = ("_squares", "_sum", "n")

    def __init__(self) -> None:
        self.n = 0
        self._sum = self._squares = Fraction(0)

    def extend(self, values: Sequence[float]) -> None:
        """Whole numbers of one unit are added, which is quicker than fractions."""
        counted = [(*value.as_integer_ratio(), count) for value, count in Counter(values).items()]
        unit = max(denominator for _, denominator, _ in counted)
        wholes = [(numerator * (unit // denominator), count) for numerator, denominator, count in counted]
        self._sum += Fraction(sum([whole * count for whole, count in wholes]), unit)
        self._squares += Fraction(sum([whole * whole * count for whole, count in wholes]), unit * unit)
        self.n += len(values)

    @property
    def mean(self) -> float | None:
        return as_float(self._sum / self.n) if self.n else None

    @property
    def std(self) -> float | None:
        """The standard deviation of a sample, with n - 1 below the line; None of fewer than two."""
        n = self.n
        return root((n * self._squares - self._sum * self._sum) / (n * (n - 1))) if n > 1 else None


class TaskSums:
    """One exact sum and one count for each place, in twenty bytes.

    A sum is a float, what its rounding left out, and of the few that do not fit in two floats the rest as a fraction.
    """

    __slots__ = ("_high", "_low", "_rest", "counts")

    def __init__(self) -> None:
        self.counts = array("I")
        self._high = array("d")
        self._low = array("d")
        self._rest: dict[int, Fraction] = {}

    def extend(self, values: Sequence[float], places: Sequence[int]) -> None:
        short = max(places) + 1 - len(self.counts)
        if short > 0:
            self.counts.frombytes(bytes(self.counts.itemsize * short))
            self._high.frombytes(bytes(8 * short))
            self._low.frombytes(bytes(8 * short))
        counts, high = self.counts, self._high
        for place, value in zip(places, values, strict=True):
            if counts[place]:
                self._add(place, value)
            else:
                high[place] = value
            counts[place] += 1

    def means(self) -> dict[int, float]:
        """The mean at every place that has any, rounded once."""
        means = {}
        for place, (count, high, low) in enumerate(zip(self.counts, self._high, self._low, strict=True)):
            if low or place in self._rest:
                exact = Fraction(high) + Fraction(low) + self._rest.get(place, 0)
                means[place] = as_float(exact / count)
            elif count:
                means[place] = high / count + 0.0  # -0.0 is 0
        return means

    def _add(self, place: int, value: float) -> None:
        high, rest = _two_sum(self._high[place], value)
        if not isfinite(high):
            self._rest[place] = self._rest.get(place, Fraction(0)) + Fraction(value)
            return
        self._high[place] = high
        if rest:
            self._low[place], left = _two_sum(self._low[place], rest)
            if left:
                self._rest[place] = self._rest.get(place, Fraction(0)) + Fraction(left)


def _two_sum(a: float, b: float) -> tuple[float, float]:
    """The sum, rounded, and what the rounding left out (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
