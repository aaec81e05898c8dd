"""Confidence intervals of means over tasks, from the variation between tasks.

Rollouts of one task are similar, so a task is one observation, for any number of rollouts. Nothing is random, and the
order of tasks makes no difference. docs/metrics.md has the formulas and their measured coverage.
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

FEWEST = 10  # tasks, for a share: with fewer, the coverage of a 95% interval is above 97%
FEWEST_NUMBERS = 20  # tasks, for other numbers: with fewer, the coverage depends on the distribution
_FURTHEST = 3.0  # times the distance of an end for symmetric numbers
_NEARLY_NORMAL = 1e6  # degrees of freedom
_FEWEST_EQUAL = 5.0  # effective number of tasks

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
    `range_of`. None if there are too few tasks, or too few with different values.
    """
    if not level or len(values) < (FEWEST_NUMBERS if share_of is None else FEWEST):
        return None
    if share_of is not None:
        return _share_interval(values, weights, level, share_of)
    if max(Counter(values).values()) > len(values) - FEWEST or alike(values):
        return None
    return clipped(_number_interval(values, weights, level), within)


def range_of(low: float, high: float, *, amount: bool = False) -> Interval | None:
    """The range of the true mean of numbers from `low` to `high`. Numbers in [0, 1] are taken for shares."""
    if low < 0:
        return None
    return (0.0, inf) if amount else (0.0, 1.0) if high <= 1 else None


def clipped(interval: Interval | None, within: Interval | None) -> Interval | None:
    """The part of an interval that is possible, with the same coverage."""
    if interval is None or within is None:
        return interval
    return max(interval[0], within[0]), min(interval[1], within[1])


def paired_interval(differences: Sequence[float], level: float, *, furthest: float | None) -> Interval | None:
    """The interval of the mean difference, from one difference per task. `furthest`: the largest for shares."""
    if not level or len(differences) < (FEWEST_NUMBERS if furthest is None else FEWEST):
        return None
    if not all(map(isfinite, differences)):
        return None
    if alike(differences):
        value = differences[0]
        return _unseen(value, len(differences), level, (-furthest, furthest)) if furthest and value else None
    interval = _number_interval(differences, [1] * len(differences), level, skewed=False)  # alike runs: symmetric
    if interval is None or furthest is None:
        return interval
    return max(interval[0], -furthest), min(interval[1], furthest)


def unpaired_interval(a: float, a_within: Interval, b: float, b_within: Interval) -> Interval:
    """The interval of `b - a` for independent tasks, from the intervals of a and b.

    The distances to their ends add up as variances do (Zou and Donner 2008).
    """
    difference = b - a
    low = difference - hypot(b - b_within[0], a_within[1] - a)
    return low, difference + hypot(b_within[1] - b, a - a_within[0])


def _share_interval(
    values: Sequence[float], weights: Sequence[float], level: float, share_of: Interval
) -> Interval | None:
    """Wilson's score interval, with an effective number of observations from the variance between tasks."""
    low, high = share_of
    if alike(values):
        return _unseen(values[0], len(values), level, share_of)
    shares = (np.asarray(values, float) - low) / (high - low)
    share, variance, effective_tasks = _moments(shares, np.asarray(weights, float))
    if effective_tasks < _FEWEST_EQUAL:
        return None
    largest_variance = share * (1 - share)
    normal = NormalDist().inv_cdf((1 + level) / 2)
    if all(value in share_of for value in values):  # the mean alone gives the variance
        spread = normal * normal / effective_tasks
    else:
        end = low if share < 0.5 else high
        tasks_off_end = sum(
            value != end for value in values
        )  # if nearly all tasks are at one end, the variance is a guess
        spread = (
            student((1 + level) / 2, min(effective_tasks - 1, tasks_off_end + 2.5)) ** 2 * variance / largest_variance
        )
    middle = (share + spread / 2) / (1 + spread)
    half_width = sqrt(spread * largest_variance + spread * spread / 4) / (1 + spread)
    return low + max(middle - half_width, 0.0) * (high - low), low + min(middle + half_width, 1.0) * (high - low)


def _unseen(value: float, tasks: int, level: float, within: Interval) -> Interval:
    """The interval if all tasks have the same value: a small share of tasks with other values may exist unseen."""
    normal = NormalDist().inv_cdf((1 + level) / 2)
    share = normal * normal / (tasks + normal * normal)
    low, high = within
    return value - share * (value - low), value + share * (high - value)


def _number_interval(
    values: Sequence[float], weights: Sequence[float], level: float, *, skewed: bool = True
) -> Interval | None:
    """Student's interval. If values can be `skewed`, its ends are corrected for it."""
    scale = frexp(max(map(abs, values)))[1]  # so that squares neither overflow nor underflow
    scaled, task_weights = np.ldexp(values, -scale), np.asarray(weights, float)
    mean, variance, _ = _moments(scaled, task_weights)
    freedom = _sum(task_weights**2) ** 2 / _sum(task_weights**4) - 1  # Satterthwaite's degrees of freedom
    if freedom < _FEWEST_EQUAL - 1 or not variance > 0:
        return None
    quantile, error = student((1 + level) / 2, freedom), sqrt(variance)
    skewness = _skewness(scaled, task_weights, mean) if skewed else 0.0
    low, high = (mean - error * _corrected(end, skewness, len(values)) for end in (quantile, -quantile))
    try:
        return ldexp(low, scale), ldexp(high, scale)
    except OverflowError:
        return None


def _skewness(values: Array, weights: Array, mean: float) -> float:
    """The skewness to correct for. The constants are chosen by simulation.

    Small samples underestimate skewness. If the kurtosis is close to its minimum for this skewness, tasks have about
    two values, and no correction is needed.
    """
    tasks = len(values)
    deviations = weights * (values - mean)
    second, third, fourth = (_sum(deviations**power) / tasks for power in (2, 3, 4))
    skewness: float = third / second**1.5
    excess_kurtosis = max(fourth / second**2 - 1 - skewness * skewness, 0.0)
    correction: float = sqrt(tasks * (tasks - 1)) / (tasks - 2) * (1 + 16 / tasks)
    return skewness * correction * excess_kurtosis / (excess_kurtosis + 0.75)


def _corrected(end: float, skewness: float, tasks: int) -> float:
    """The distance of an end in standard errors, by Hall's (1992) cubic transformation, if that is longer.

    The other side is not shortened: samples with heavy tails can be skewed by chance.
    """
    if abs(skewness) < 1e-6:
        return end
    width = sqrt(tasks)
    corrected_end = width * (cbrt(1 + skewness * (end / width - skewness / (6 * tasks))) - 1) * 3 / skewness
    return min(max(corrected_end / end, 1.0), _FURTHEST) * end


def _moments(values: Array, weights: Array) -> tuple[float, float, float]:
    """The weighted mean, its variance, and the effective number of tasks."""
    total, second, third = (_sum(weights**power) for power in (1, 2, 3))
    mean = _sum(values * weights) / total
    squares = _sum((weights * (values - mean)) ** 2)
    bias = 2 * third / (total * second) - second / (total * total)  # a heavy task pulls the mean to itself
    return mean, squares / (total * total) / max(1 - bias, 1e-9), total * total / second


def _sum(values: Array) -> float:
    """The sum, rounded once, so that it does not depend on the order of tasks."""
    return fsum(values.tolist())


def alike(values: Sequence[float]) -> bool:
    """Whether all numbers are equal, except for rounding."""
    low, high = min(values), max(values)
    return high - low <= 2e-12 * max(abs(low), abs(high))


@lru_cache(maxsize=4096)
def student(share: float, freedom: float) -> float:
    """The quantile of Student's t distribution for this share, from one half on."""
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
