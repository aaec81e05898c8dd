"""Intervals: against every resample there is, against known quantiles, and against how often they hold the truth."""

from __future__ import annotations

import random
from itertools import product
from statistics import NormalDist, fmean

import pytest

from velodrome.read.intervals import MOST, Sampling, student


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (1, 12.7062),
        (2, 4.30265),
        (3, 3.18245),
        (4, 2.77645),
        (7, 2.36462),
        (10, 2.22814),
        (30, 2.04227),
        (499, 1.96473),
    ],
)
def test_student_s_t_has_the_quantiles_of_the_printed_tables(freedom: int, quantile: float):
    assert student(0.975, freedom) == pytest.approx(quantile, abs=1e-5)


def quantile(values: list[float], share: float) -> float:
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def exact(sums: list[float], counts: list[int], level: float) -> tuple[float, float]:
    """The interval from all n**n resamples, each as likely as the other."""
    n = len(sums)
    means = sorted(
        sum(sums[at] for at in draw) / sum(counts[at] for at in draw) for draw in product(range(n), repeat=n)
    )
    tail = NormalDist().cdf(-student(1 - (1 - level) / 2, n - 1) * (n / (n - 1)) ** 0.5)
    return quantile(means, tail), quantile(means, 1 - tail)


@pytest.mark.parametrize(
    ("sums", "counts"),
    [
        ([0.0, 1.0, 2.0, 4.0, 7.0], [1, 1, 1, 1, 1]),
        ([0.0, 1.5, 2.0, 4.0, 3.0, 1.0], [4, 2, 4, 4, 3, 1]),
    ],
)
def test_the_interval_is_that_of_every_resample_there_is(sums: list[float], counts: list[int]):
    want = exact(sums, counts, 0.8)
    found = Sampling(level=0.8, resamples=20_000).mean(sums, counts)
    width = want[1] - want[0]
    assert found == (pytest.approx(want[0], abs=0.03 * width), pytest.approx(want[1], abs=0.03 * width))


def test_the_same_seed_gives_the_same_interval_and_another_another():
    sums, counts = [float(place % 7) for place in range(60)], [1] * 60
    assert Sampling(seed=3).mean(sums, counts) == Sampling(seed=3).mean(sums, counts)
    assert Sampling(seed=3).mean(sums, counts) != Sampling(seed=4).mean(sums, counts)


def test_a_higher_level_is_a_longer_interval():
    sums, counts = [float(place % 7) for place in range(60)], [1] * 60
    lengths = []
    for level in (0.5, 0.8, 0.95, 0.99):
        low, high = Sampling(level=level).mean(sums, counts) or (0.0, 0.0)
        lengths.append(high - low)
    assert lengths == sorted(lengths)
    assert lengths[0] > 0


def test_where_there_is_nothing_to_say_there_is_no_interval():
    assert Sampling().mean([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1]) is None
    assert Sampling().mean([0.2 * 3] * 50, [3] * 50) is None
    assert Sampling(level=0).mean([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1] * 6) is None
    assert Sampling().mean([], []) is None


def test_an_entry_without_a_count_is_no_task():
    sums, counts = [0.0, 1.0, 2.0, 3.0, 5.0], [1, 1, 1, 1, 1]
    assert Sampling().mean([*sums, 0.0, 0.0], [*counts, 0, 0]) == Sampling().mean(sums, counts)


def test_tasks_that_all_pass_leave_room_for_those_that_were_not_drawn():
    low, high = Sampling().mean([1.0] * 20, [1] * 20, within=(0.0, 1.0)) or (0.0, 0.0)
    assert (low, high) == (pytest.approx(0.8316, abs=1e-4), 1.0)  # Clopper and Pearson's, for 20 of 20
    low, high = Sampling().mean([0.0] * 20, [1] * 20, within=(0.0, 1.0)) or (0.0, 0.0)
    assert (low, high) == (0.0, pytest.approx(0.1684, abs=1e-4))


def share_held(draw: object, truth: float, interval: object, rounds: int) -> float:
    held = 0
    for seed in range(rounds):
        found = interval(*draw(random.Random(seed)))  # type: ignore[operator]
        held += found is not None and found[0] <= truth <= found[1]
    return held / rounds


@pytest.mark.parametrize("tasks", [10, 40])
def test_the_interval_holds_the_truth_as_often_as_it_says(tasks: int):
    """Tasks of their own difficulty with 4 tries each: resampling tries would hold it far less often."""

    def draw(chance: random.Random) -> tuple[list[float], list[int]]:
        sums = []
        for _ in range(tasks):
            easy = chance.random()
            sums.append(float(sum(chance.random() < easy for _ in range(4))))
        return sums, [4] * tasks

    held = share_held(draw, 0.5, Sampling(resamples=300).mean, 400)
    assert 0.92 <= held <= 0.98


def test_the_interval_holds_where_tasks_have_different_numbers_of_tries():
    def draw(chance: random.Random) -> tuple[list[float], list[int]]:
        counts = [chance.choice((1, 2, 8)) for _ in range(40)]
        return [count * chance.gauss(2.0, 1.0) for count in counts], counts

    assert 0.92 <= share_held(draw, 2.0, Sampling(resamples=300).mean, 400) <= 0.98


def test_the_interval_of_a_difference_holds_the_truth_as_often_as_it_says():
    def draw(chance: random.Random) -> tuple[object, object]:
        a = [chance.gauss(0.0, 1.0) for _ in range(30)]
        b = [chance.gauss(0.5, 2.0) for _ in range(20)]
        return (a, [1] * 30), (b, [1] * 20)

    assert 0.92 <= share_held(draw, 0.5, Sampling(resamples=300).difference, 400) <= 0.985


def test_many_tasks_are_dealt_out_and_the_interval_is_as_long_as_that_of_all():
    chance = random.Random(5)
    sums = [chance.gauss(10.0, 3.0) for _ in range(20 * MOST)]
    low, high = Sampling().mean(sums, [1] * len(sums)) or (0.0, 0.0)
    assert low < fmean(sums) < high
    assert high - low == pytest.approx(2 * 1.96 * 3.0 / len(sums) ** 0.5, rel=0.12)
