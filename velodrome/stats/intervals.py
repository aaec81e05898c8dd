"""How far a mean over tasks could be off: confidence intervals from how much tasks differ.

Rollouts of one task are alike, so a task is one observation, however many rollouts it has. Nothing here is drawn at
random and nothing depends on the order of tasks. docs/metrics.md has the formulas, and how often they hold the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import cbrt, exp, frexp, fsum, hypot, inf, isfinite, ldexp, lgamma, log, log1p, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST = 10  # tasks, of a share: with fewer the interval of a 95% level holds the truth more than 97% of the time
FEWEST_NUMBERS = 20  # tasks, of other numbers: with fewer it depends on their distribution how often that is
_FURTHEST = 3.0  # times the distance that an end of symmetric numbers has
_NEARLY_NORMAL = 1e6  # degrees of freedom
_FEWEST_EQUAL = 5.0  # tasks of equal weight that tasks of different weights amount to

Interval = tuple[float, float]


def mean_interval(
    values: Sequence[float],
    weights: Sequence[float],
    level: float,
    *,
    share_of: Interval | None = None,
    within: Interval | None = None,
) -> Interval | None:
    """The interval of the weighted mean of tasks' values; a task's weight is the number of its rollouts.

    `share_of`: the two values that rollouts can have, or the bounds of a rate. `within`: where the true mean is, see
    `range_of`. None where there is nothing to say: too few tasks, or too few that differ from all others.
    """
    if not level or len(values) < (FEWEST_NUMBERS if share_of is None else FEWEST):
        return None
    if share_of is not None:
        return _share_interval(values, weights, level, share_of)
    if max(Counter(values).values()) > len(values) - FEWEST or alike(values):
        return None
    return clipped(_number_interval(values, weights, level), within)


def range_of(low: float, high: float, *, amount: bool = False) -> Interval | None:
    """Where the true mean of numbers between these two is. Numbers of which all are in [0, 1] are taken for shares."""
    if low < 0:
        return None
    return (0.0, inf) if amount else (0.0, 1.0) if high <= 1 else None


def clipped(interval: Interval | None, within: Interval | None) -> Interval | None:
    """The part of an interval where the truth can be, so it holds the truth as often."""
    if interval is None or within is None:
        return interval
    return max(interval[0], within[0]), min(interval[1], within[1])


def paired_interval(differences: Sequence[float], level: float, *, furthest: float | None) -> Interval | None:
    """The interval of the mean of differences, one of each task; `furthest`: the most that shares can be apart."""
    if not level or len(differences) < (FEWEST_NUMBERS if furthest is None else FEWEST):
        return None
    if not all(map(isfinite, differences)):
        return None
    if alike(differences):
        seen = differences[0]
        return _unseen(seen, len(differences), level, (-furthest, furthest)) if furthest and seen else None
    interval = _number_interval(differences, [1] * len(differences), level, skewed=False)  # alike runs: symmetric
    if interval is None or furthest is None:
        return interval
    return max(interval[0], -furthest), min(interval[1], furthest)


def unpaired_interval(a: float, a_within: Interval, b: float, b_within: Interval) -> Interval:
    """The interval of `b - a`, of tasks that have nothing to do with each other, from those of a and b.

    The distances to the ends of both add up as variances do (Zou and Donner 2008).
    """
    difference = b - a
    low = difference - hypot(b - b_within[0], a_within[1] - a)
    return low, difference + hypot(b_within[1] - b, a - a_within[0])


def _share_interval(
    values: Sequence[float], weights: Sequence[float], level: float, share_of: Interval
) -> Interval | None:
    """Wilson's score interval with as many observations as the variance between tasks amounts to."""
    low, high = share_of
    if alike(values):
        return _unseen(values[0], len(values), level, share_of)
    shares = (np.asarray(values, float) - low) / (high - low)
    share, variance, equal = _moments(shares, np.asarray(weights, float))
    if equal < _FEWEST_EQUAL:
        return None
    most = share * (1 - share)
    normal = NormalDist().inv_cdf((1 + level) / 2)
    if all(value in share_of for value in values):  # the mean alone gives the variance
        spread = normal * normal / equal
    else:
        end = low if share < 0.5 else high
        telling = sum(value != end for value in values)  # if nearly all tasks are at one end, the variance is a guess
        spread = student((1 + level) / 2, min(equal - 1, telling + 2.5)) ** 2 * variance / most
    middle = (share + spread / 2) / (1 + spread)
    reach = sqrt(spread * most + spread * spread / 4) / (1 + spread)
    return low + max(middle - reach, 0.0) * (high - low), low + min(middle + reach, 1.0) * (high - low)


def _unseen(value: float, tasks: int, level: float, within: Interval) -> Interval:
    """Where every task gave the same: what other tasks, a share too small to have been met, could change."""
    normal = NormalDist().inv_cdf((1 + level) / 2)
    share = normal * normal / (tasks + normal * normal)
    low, high = within
    return value - share * (value - low), value + share * (high - value)


def _number_interval(
    values: Sequence[float], weights: Sequence[float], level: float, *, skewed: bool = True
) -> Interval | None:
    """Student's interval; where values can be `skewed`, its ends are corrected for that."""
    scale = frexp(max(map(abs, values)))[1]  # so that no square overflows and none vanishes
    scaled, weighed = np.ldexp(values, -scale), np.asarray(weights, float)
    mean, variance, _ = _moments(scaled, weighed)
    freedom = _sum(weighed**2) ** 2 / _sum(weighed**4) - 1  # Satterthwaite's: heavy tasks tell most of the variance
    if freedom < _FEWEST_EQUAL - 1 or not variance > 0:
        return None
    reach, error = student((1 + level) / 2, freedom), sqrt(variance)
    skewness = _skewness(scaled, weighed, mean) if skewed else 0.0
    low, high = (mean - error * _corrected(end, skewness, len(values)) for end in (reach, -reach))
    try:
        return ldexp(low, scale), ldexp(high, scale)
    except OverflowError:
        return None


def _skewness(values: Array, weights: Array, mean: float) -> float:
    """The skewness to correct for. The constants are chosen by simulation.

    A sample shows less skewness than there is, the more so the smaller it is. Where the kurtosis is hardly above the
    least that the skewness allows, tasks have about two values, and there is nothing to correct.
    """
    tasks = len(values)
    apart = weights * (values - mean)
    second, third, fourth = (_sum(apart**power) / tasks for power in (2, 3, 4))
    skewness: float = third / second**1.5
    room = max(fourth / second**2 - 1 - skewness * skewness, 0.0)
    growth: float = sqrt(tasks * (tasks - 1)) / (tasks - 2) * (1 + 16 / tasks)
    return skewness * growth * room / (room + 0.75)


def _corrected(end: float, skewness: float, tasks: int) -> float:
    """How many standard errors away an end is: Hall's (1992) cubic transformation, where it lengthens the interval.

    A sample of heavy tails shows a skewness by chance; to shorten the other side by it would be wrong too often.
    """
    if abs(skewness) < 1e-6:
        return end
    width = sqrt(tasks)
    moved = width * (cbrt(1 + skewness * (end / width - skewness / (6 * tasks))) - 1) * 3 / skewness
    return min(max(moved / end, 1.0), _FURTHEST) * end


def _moments(values: Array, weights: Array) -> tuple[float, float, float]:
    """The weighted mean, the variance of that mean, and how many tasks of equal weight they amount to."""
    whole, second, third = (_sum(weights**power) for power in (1, 2, 3))
    mean = _sum(values * weights) / whole
    squares = _sum((weights * (values - mean)) ** 2)
    pulled = 2 * third / (whole * second) - second / (whole * whole)  # a heavy task pulls the mean to itself
    return mean, squares / (whole * whole) / max(1 - pulled, 1e-9), whole * whole / second


def _sum(values: Array) -> float:
    """The sum, rounded once, so that the order of tasks makes no difference."""
    return fsum(values.tolist())


def alike(values: Sequence[float]) -> bool:
    """Whether all are one number, but for rounding."""
    low, high = min(values), max(values)
    return high - low <= 2e-12 * max(abs(low), abs(high))


@lru_cache(maxsize=4096)
def student(share: float, freedom: float) -> float:
    """The number below which this share, from one half on, of Student's t distribution is."""
    if freedom > _NEARLY_NORMAL:
        return NormalDist().inv_cdf(share)
    low, high = 0.0, 1.0
    while _above(high, freedom) > 1 - share:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _above(middle, freedom) > 1 - share else (low, middle)
    return high


def _above(t: float, freedom: float) -> float:
    """The share of Student's t distribution above t: half a regularised incomplete beta function."""
    x, a, b = freedom / (freedom + t * t), freedom / 2, 0.5
    if x >= 1:
        return 0.5
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the continued fraction converges quickly
        return front * _continued(x, a, b) / a / 2
    return (1 - front * _continued(1 - x, b, a) / b) / 2


def _continued(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            c, d = 1 + term / c, 1 / (1 + term * d)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
