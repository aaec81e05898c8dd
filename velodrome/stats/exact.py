"""Sums that do not depend on the order of what is added, to the last digit, and that never overflow.

A float is a whole number of some power of 1/2, so sums of them are kept as whole numbers; a division at the end rounds
once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from math import inf, isfinite


class ExactSum:
    """The sum of finite numbers: `_whole` x 2 ** -`_bits`."""

    __slots__ = ("_bits", "_whole")

    def __init__(self) -> None:
        self._whole = self._bits = 0

    def add(self, numerator: int, bits: int) -> None:
        """Add numerator / 2 ** bits."""
        if bits > self._bits:
            self._whole <<= bits - self._bits
            self._bits = bits
        self._whole += numerator << (self._bits - bits)

    @property
    def fraction(self) -> Fraction:
        return Fraction(self._whole, 1 << self._bits)


class Moments:
    """The sums of finite numbers and of their squares: all that a mean and a standard deviation need."""

    __slots__ = ("_squares", "_sum", "n")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.n = 0
        self._sum, self._squares = ExactSum(), ExactSum()
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        numerator, denominator = value.as_integer_ratio()
        bits = denominator.bit_length() - 1
        self.n += 1
        self._sum.add(numerator, bits)
        self._squares.add(numerator * numerator, 2 * bits)

    @property
    def mean(self) -> float | None:
        return _as_float(self._sum.fraction / self.n) if self.n else None

    @property
    def std(self) -> float | None:
        """The standard deviation of a sample, with n - 1 below the line; None of fewer than two."""
        n, total = self.n, self._sum.fraction
        return _root((n * self._squares.fraction - total * total) / (n * (n - 1))) if n > 1 else None


def mean_of(values: Sequence[float]) -> float:
    """The mean of finite numbers, in any order and of any size."""
    return Moments(values).mean or 0.0


def _as_float(exact: Fraction) -> float:
    """The nearest float; infinite where no float can hold it."""
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def _root(exact: Fraction) -> float:
    """The square root of a fraction of any size; 0 if it is not positive."""
    return float((Decimal(exact.numerator) / exact.denominator).sqrt()) if exact > 0 else 0.0


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

    def add(self, value: float, place: int) -> None:
        short = place + 1 - len(self.counts)
        if short > 0:
            self.counts.frombytes(bytes(self.counts.itemsize * short))
            self._high.frombytes(bytes(8 * short))
            self._low.frombytes(bytes(8 * short))
        if self.counts[place]:
            self._add(place, value)
        else:
            self._high[place] = value
        self.counts[place] += 1

    def means(self) -> dict[int, float]:
        """The mean at every place that has any, rounded once."""
        means = {}
        for place, (count, high, low) in enumerate(zip(self.counts, self._high, self._low, strict=True)):
            if low or place in self._rest:
                exact = Fraction(high) + Fraction(low) + self._rest.get(place, 0)
                means[place] = _as_float(exact / count)
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
