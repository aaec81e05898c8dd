"""Numbers are described in one pass: exactly while few are different, within a stated error beyond that."""

from __future__ import annotations

from math import isclose
from statistics import mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.stats.spread import ERROR, MOST_DISTINCT, Spread

NUMBER = st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float)


def spread(*batches: list[float]) -> Spread:
    found = Spread()
    for batch in batches:
        found.extend(batch)
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(NUMBER, min_size=1, max_size=20), min_size=1, max_size=5))
def test_it_describes_what_a_list_of_all_numbers_would_however_they_come(batches: list[list[float]]):
    found = spread(*batches)
    numbers = [number for batch in batches for number in batch]
    assert (found.n, found.low, found.high) == (len(numbers), min(numbers), max(numbers))
    assert found.median == sorted(numbers)[len(numbers) // 2]
    assert found.mean == pytest.approx(mean(numbers), rel=1e-9, abs=1e-9)
    if len(numbers) > 1:
        assert found.std == pytest.approx(stdev(numbers), rel=1e-6, abs=1e-6)


def test_a_large_mean_does_not_swallow_a_small_deviation():
    numbers = [1e9 + offset for offset in (0.0, 1.0, 2.0)]
    assert spread(numbers).std == pytest.approx(1.0)


def test_nothing_has_no_mean_and_one_number_no_deviation():
    assert (Spread().mean, Spread().std, Spread().median) == (None, None, None)
    assert (spread([4.0]).mean, spread([4.0]).std, spread([4.0]).median) == (4.0, None, 4.0)


@pytest.mark.parametrize("shift", [-4000.0, 0.5, 1e5])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e200])
def test_with_many_different_numbers_the_median_is_within_its_error(shift: float, scale: float):
    count = MOST_DISTINCT + 1001
    numbers = [(shift + (place * 7919) % count) * scale for place in range(count)]
    found = spread(numbers[:5000], numbers[5000:])
    exact = sorted(numbers)[count // 2]
    assert found.error == ERROR
    assert found.median is not None
    assert isclose(found.median, exact, rel_tol=ERROR * 1.0001)
    assert (found.low, found.high) == (min(numbers), max(numbers))


def test_many_numbers_of_few_values_keep_an_exact_median():
    found = Spread()
    for _ in range(100):
        found.extend([0.0, 1.0, -0.5] * 50)
    assert (found.n, found.median, found.error) == (15_000, 0.0, 0.0)


def test_memory_is_bounded_however_many_numbers_differ():
    found = Spread()
    for start in range(0, 200_000, 1000):
        found.extend([(start + place) * 1.7 - 1e5 for place in range(1000)])
    assert found._buckets is not None
    assert len(found._buckets) + len(found._counts) < 2000
