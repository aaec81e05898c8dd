from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.timing.percentiles import ERROR, Histogram

SECONDS = st.floats(1e-6, 1e6) | st.floats(0, 1e-6) | st.sampled_from([0.0, 1e-6, 1.0, 3600.0])
MANY = st.lists(SECONDS, min_size=1, max_size=200)


def counted(seconds: list[float]) -> Histogram:
    found = Histogram()
    for each in seconds:
        found.add(each)
    return found


def told(histogram: Histogram) -> tuple[object, ...]:
    shares = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
    return (
        histogram.count,
        pytest.approx(histogram.sum),
        histogram.least,
        histogram.most,
        histogram.drawn(),
        [histogram.quantile(share) for share in shares],
    )


@settings(max_examples=300, deadline=None)
@given(MANY, st.floats(0, 1))
def test_a_quantile_is_within_two_percent_of_the_value_at_its_place(seconds: list[float], share: float):
    exact = sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]
    found = counted(seconds).quantile(share)
    assert abs(found - exact) <= max(ERROR * exact * (1 + 1e-9), 1e-6)
    assert min(seconds) <= found <= max(seconds)


@settings(max_examples=100, deadline=None)
@given(MANY)
def test_count_sum_and_mean_are_exact(seconds: list[float]):
    found = counted(seconds)
    assert (found.count, found.sum) == (len(seconds), pytest.approx(math.fsum(seconds)))
    assert found.mean == pytest.approx(math.fsum(seconds) / len(seconds))


@settings(max_examples=100, deadline=None)
@given(MANY, MANY)
def test_many_at_once_merged_or_one_by_one_is_all_the_same(first: list[float], second: list[float]):
    merged = counted(first)
    merged.merge(counted(second))
    at_once = Histogram()
    at_once.extend(first)
    at_once.extend(second)
    at_once.extend([])
    assert told(merged) == told(at_once) == told(counted(first + second))


@settings(max_examples=100, deadline=None)
@given(MANY, st.integers(1, 50))
def test_a_picture_has_few_bins_that_rise_and_hold_everything(seconds: list[float], most: int):
    edges, counts = counted(seconds).drawn(most)
    assert len(edges) == len(counts) + 1 <= most + 1
    assert sum(counts) == len(seconds)
    assert edges == sorted(edges)
    assert edges[0] <= min(seconds) * (1 + 1e-9)
    assert max(seconds) <= edges[-1] * (1 + 1e-9)


def test_the_same_duration_many_times_is_one_addition():
    found = Histogram()
    found.add(2.0, 1000)
    assert (found.count, found.sum, found.quantile(0.5)) == (1000, 2000.0, 2.0)


def test_memory_does_not_grow_with_the_number_of_durations():
    found = counted([1e-6 * 1.0001**power for power in range(300_000)])
    assert found.count == 300_000
    assert len(found._counts) < 1000


def test_the_largest_of_few_are_in_their_percentiles():
    two, eighty = counted([1.0, 3.0]), counted([*[0.1] * 79, 60.0])
    found = [two.quantile(share) for share in (0.0, 0.5, 0.9, 0.99)]
    assert found == pytest.approx([1.0, 3.0, 3.0, 3.0], rel=ERROR)
    assert eighty.quantile(0.99) == pytest.approx(60.0, rel=ERROR)


def test_nothing_has_no_quantile_and_no_picture():
    found = Histogram()
    assert (found.count, found.mean, found.quantile(0.5), found.drawn()) == (0, 0.0, 0.0, ([], []))
