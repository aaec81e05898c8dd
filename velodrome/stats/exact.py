"""Exact sums: independent of the order of the numbers, and without overflow.

Every float is an integer times a power of 1/2, so a sum is kept as an integer. The division at the end rounds once.
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
    """The sums of finite numbers and of their squares, for the mean and the standard deviation."""

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
        """The sample standard deviation, with the divisor n - 1; None for fewer than two numbers."""
        n, total = self.n, self._sum.fraction
        return _root((n * self._squares.fraction - total * total) / (n * (n - 1))) if n > 1 else None


def mean_of(values: Sequence[float]) -> float:
    """The mean of finite numbers, in any order and of any size."""
    return Moments(values).mean or 0.0


def _as_float(exact: Fraction) -> float:
    """The nearest float; infinite if the number is too large for a float."""
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def _root(exact: Fraction) -> float:
    """The square root of a fraction of any size; 0 if it is not positive."""
    return float((Decimal(exact.numerator) / exact.denominator).sqrt()) if exact > 0 else 0.0


class TaskSums:
    """One exact sum and one count for each place, in twenty bytes.

    A sum is a float and its rounding error. The few sums that need more keep the remainder as a fraction.
    """

    __slots__ = ("_high", "_low", "_rest", "counts")

    def __init__(self) -> None:
        self.counts = array("I")
        self._high = array("d")
        self._low = array("d")
        self._rest: dict[int, Fraction] = {}

    def add(self, value: float, place: int) -> None:
        missing = place + 1 - len(self.counts)
        if missing > 0:
            self.counts.frombytes(bytes(self.counts.itemsize * missing))
            self._high.frombytes(bytes(8 * missing))
            self._low.frombytes(bytes(8 * missing))
        if self.counts[place]:
            self._add(place, value)
        else:
            self._high[place] = value
        self.counts[place] += 1

    def means(self) -> dict[int, float]:
        """The mean at every place that has values, rounded once."""
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
            self._low[place], remainder = _two_sum(self._low[place], rest)
            if remainder:
                self._rest[place] = self._rest.get(place, Fraction(0)) + Fraction(remainder)


def _two_sum(a: float, b: float) -> tuple[float, float]:
    """The rounded sum, and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
