from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.timing.percentiles import ERROR, Quantiles

NUMBERS = st.floats(-1e300, 1e300) | st.floats(0, 1e-6) | st.sampled_from([0.0, -0.0, 5e-324, 1e-6, 1.0, 3600.0, -1.0])
MANY = st.lists(NUMBERS, min_size=1, max_size=200)
SECONDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)
EXACT = st.sampled_from([0, 3, 1000])  # different numbers that are kept apart
SHARES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)


def counted(numbers: list[float], exact: int = 1000) -> Quantiles:
    result = Quantiles(exact)
    for each in numbers:
        result.add(each)
    return result


def state(result: Quantiles) -> tuple[object, ...]:
    quantiles = [result.quantile(share) for share in SHARES]
    return result.count, pytest.approx(result.sum), result.low, result.high, result.bins(), quantiles, result.error


@settings(max_examples=120, deadline=None)
@given(MANY, st.floats(0, 1), EXACT)
def test_a_quantile_is_exact_while_few_numbers_differ_and_then_within_one_percent(
    numbers: list[float], share: float, exact: int
):
    at_its_place = sorted(numbers)[min(len(numbers) - 1, int(share * len(numbers)))]
    result = counted(numbers, exact)
    assert result.error == (ERROR if len(set(numbers)) > exact else 0.0)
    assert abs(result.quantile(share) - at_its_place) <= result.error * abs(at_its_place) * (1 + 1e-9) + 5e-324
    assert min(numbers) <= result.quantile(share) <= max(numbers)


@settings(max_examples=80, deadline=None)
@given(SECONDS, SECONDS, EXACT)
def test_numbers_count_the_same_one_by_one_at_once_merged_and_in_any_order(
    first: list[float], second: list[float], exact: int
):
    merged = counted(first, exact)
    merged.merge(counted(second, exact))
    at_once = Quantiles(exact)
    for part in (second, first, []):
        at_once.extend(part)
    assert state(merged) == state(at_once) == state(counted(first + second, exact))
    count, total = len(first + second), pytest.approx(math.fsum(first + second))
    assert (merged.count, merged.sum, merged.mean * count) == (count, total, total)


@settings(max_examples=40, deadline=None)
@given(SECONDS, st.integers(1, 50), EXACT)
def test_bins_are_few_in_order_and_hold_everything(seconds: list[float], most: int, exact: int):
    edges, counts = counted(seconds, exact).bins(most)
    assert len(edges) == len(counts) + 1 <= most + 1
    assert sum(counts) == len(seconds)
    assert edges == sorted(edges)
    assert edges[0] <= min(seconds) * (1 + 1e-9)
    assert max(seconds) <= edges[-1] * (1 + 1e-9)


def test_memory_does_not_grow_with_the_numbers():
    result = counted([1e-6 * 1.0001**power for power in range(200_000)])
    assert (result.count, result.distinct) == (200_000, None)
    assert len(result._counts) < 2000


@pytest.mark.parametrize("exact", [0, 1000])
def test_outliers_are_counted_by_their_distance_from_the_median(exact: int):
    result = counted([-100.0, 9.0, 10.0, 10.0, 11.0, 12.0, 500.0], exact)
    assert result.deviation() == pytest.approx(1.0, abs=2 * ERROR * 12)
    assert (result.outside(0.0, 20.0), result.outside(-200.0, 20.0), result.outside(-200.0, 600.0)) == (2, 1, 0)


def test_without_numbers_everything_is_zero_and_one_can_be_counted_many_times_at_once():
    result = Quantiles()
    result.merge(Quantiles())
    assert (result.count, result.mean, result.quantile(0.5), result.deviation()) == (0, 0, 0, 0)
    assert result.bins() == ([], [])
    result.add(2.0, 1000)
    assert (result.count, result.sum, result.quantile(0.5), result.distinct) == (1000, 2000.0, 2.0, {2.0: 1000})
