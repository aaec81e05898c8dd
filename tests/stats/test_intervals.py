"""Intervals: known quantiles and formulas, and how often they hold the truth."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest
from scipy.special import stdtrit

from tests.support.simulated import (
    NUMBERS,
    ROWS,
    SHARES,
    coverage,
    number,
)
from velodrome.stats.intervals import FEWEST, FEWEST_NUMBERS, mean_interval, paired_interval, student, unpaired_interval


def test_the_interval_of_a_share_is_wilson_s():
    interval = mean_interval([1.0] * 15 + [0.0] * 5, [1] * 20, 0.95, share_of=(0.0, 1.0))
    assert interval == (pytest.approx(0.5313, abs=1e-4), pytest.approx(0.8881, abs=1e-4))
    scaled = mean_interval([5.0] * 15 + [-5.0] * 5, [1] * 20, 0.95, share_of=(-5.0, 5.0))
    assert scaled == (pytest.approx(10 * 0.5313 - 5, abs=1e-3), pytest.approx(10 * 0.8881 - 5, abs=1e-3))


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_the_interval_of_symmetric_numbers_is_student_s(level: float):
    values = [float(place) for place in range(-15, 16)]
    reach = student((1 + level) / 2, 30) * sqrt(31 * 32 / 12 / 31)
    assert mean_interval(values, [1] * 31, level) == (pytest.approx(-reach), pytest.approx(reach))
    assert student(0.975, 30) == pytest.approx(2.04227, abs=1e-5)  # as printed tables have it


@pytest.mark.parametrize("freedom", [1, 1.5, 4, 9.7, 30, 1234.5, 1e6, 1e9])
def test_student_s_quantiles_are_those_of_scipy(freedom: float):
    for share in (0.75, 0.9, 0.975, 0.995, 0.9995):
        assert student(share, freedom) == pytest.approx(
            float(stdtrit(freedom, share)), rel=1e-5 if freedom > 1e6 else 1e-9
        )


def test_rare_large_values_make_an_interval_longer_on_their_side_and_at_most_three_times_as_long():
    values = [1.0, 2.0, 3.0] * 10 + [60.0]
    low, high = mean_interval(values, [1] * 31, 0.95) or (0.0, 0.0)
    mean = sum(values) / 31
    reach = student(0.975, 30) * float(np.std(values, ddof=1)) / sqrt(31)
    assert mean - low == pytest.approx(reach)
    assert reach < high - mean <= 3 * reach * (1 + 1e-9)


def test_a_number_that_few_tasks_have_another_value_of_has_no_interval():
    assert mean_interval([0.0] * 31 + [1.0, 2.0, 5.0] * 3, [1] * 40, 0.95) is None
    assert mean_interval([0.0] * 30 + [1.0, 2.0, 5.0] * 3 + [1.0], [1] * 40, 0.95) is not None


def test_where_there_is_nothing_to_say_there_is_no_interval():
    some = [0.0, 1.0] * FEWEST_NUMBERS
    few = some[: FEWEST_NUMBERS - 1]
    assert mean_interval(few, [1] * len(few), 0.95) is None
    assert mean_interval(some[: FEWEST - 1], [1] * (FEWEST - 1), 0.95, share_of=(0.0, 1.0)) is None
    assert mean_interval(some, [1] * len(some), 0.0) is None
    assert mean_interval([0.2] * 50, [3] * 50, 0.95) is None
    assert mean_interval([], [], 0.95) is None
    assert paired_interval([0.0] * 50, 0.95, furthest=1.0) is None
    assert paired_interval([inf] * 25, 0.95, furthest=None) is None
    one_is_nearly_all = [100_000] + [1] * 39
    assert mean_interval(some, one_is_nearly_all, 0.95) is None
    assert mean_interval(some, one_is_nearly_all, 0.95, share_of=(0.0, 1.0)) is None


def test_tasks_that_all_pass_leave_room_for_those_that_were_not_met():
    assert mean_interval([1.0] * 20, [1] * 20, 0.95, share_of=(0.0, 1.0)) == (pytest.approx(0.8389, abs=1e-4), 1.0)
    assert mean_interval([0.0] * 20, [1] * 20, 0.95, share_of=(0.0, 1.0)) == (0.0, pytest.approx(0.1611, abs=1e-4))
    assert paired_interval([1.0] * 20, 0.95, furthest=1.0) == (pytest.approx(0.6778, abs=1e-4), 1.0)


def test_a_difference_of_other_tasks_adds_the_distances_of_both_sides():
    assert unpaired_interval(1.0, (0.7, 1.4), 2.0, (1.6, 2.3)) == (
        pytest.approx(1 - sqrt(0.4**2 + 0.4**2)),
        pytest.approx(1 + sqrt(0.3**2 + 0.3**2)),
    )


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_no_scale_is_too_small_or_too_large(scale: float):
    values = [float(place * place % 31) for place in range(40)]
    low, high = mean_interval(values, [1] * 40, 0.95) or (0.0, 0.0)
    scaled = mean_interval([value * scale for value in values], [1] * 40, 0.95)
    assert scaled == (pytest.approx(low * scale, rel=1e-9), pytest.approx(high * scale, rel=1e-9))


def pooled(rounds: int, *samples: object) -> float:
    """The share of intervals that hold the truth, over several kinds of data sets."""
    draw = np.random.default_rng(11)
    counted = [coverage(draw, rounds, one) for one in samples]  # type: ignore[arg-type]
    return sum(held for held, _ in counted) / sum(printed for _, printed in counted)


@pytest.mark.parametrize(("tasks", "rounds"), [(10, 400), (100, 150)])
def test_intervals_of_shares_rates_and_their_differences_hold_the_truth_as_often_as_they_say(tasks: int, rounds: int):
    held = pooled(rounds, *(lambda draw, one=ROWS[name]: one(draw, tasks) for name in SHARES))
    assert 0.93 <= held <= 0.97


@pytest.mark.parametrize(("tasks", "rounds"), [(20, 300), (100, 150)])
def test_intervals_of_numbers_and_their_differences_hold_the_truth_as_often_as_they_say(tasks: int, rounds: int):
    held = pooled(rounds, *(lambda draw, one=one: one(draw, tasks) for name, one in ROWS.items() if name not in SHARES))
    assert 0.93 <= held <= 0.97


def test_tasks_with_different_numbers_of_rollouts_are_weighed_and_the_interval_still_holds():
    kinds = [kind for kind in NUMBERS if kind != "log-normal, σ = 1"]
    held = pooled(200, *(lambda draw, kind=kind: number(draw, 40, "mixed", kind) for kind in kinds))
    assert 0.93 <= held <= 0.97
