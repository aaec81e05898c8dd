"""Sums are exact: they are compared with fractions, in any order and of any size."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from velodrome.stats.exact import Moments, TaskSums

CHANCE = random.Random(5)
KINDS = {
    "alike": [CHANCE.random() for _ in range(900)],
    "apart": [CHANCE.gauss(0, 1) * 10.0 ** CHANCE.randrange(-200, 200) for _ in range(900)],
    "largest": [CHANCE.choice((1.7e308, -1.7e308, 5e-324, 0.1)) for _ in range(900)],
    "zeros": [CHANCE.choice((0.0, -0.0)) for _ in range(900)],
}


def mean(values: list[float]) -> float:
    return float(sum(map(Fraction, values)) / len(values))


@pytest.mark.parametrize("kind", KINDS)
def test_means_are_rounded_once_in_any_order(kind: str):
    values = list(KINDS[kind])
    for _ in range(3):
        moments, tasks = Moments(values), TaskSums()
        places = [int(abs(value) * 1e6) % 7 if abs(value) < 1e300 else 0 for value in values]
        for value, place in zip(values, places, strict=True):
            tasks.add(value, place)
        by_task = {
            task: mean([value for value, place in zip(values, places, strict=True) if place == task])
            for task in set(places)
        }
        assert (moments.n, moments.mean) == (900, mean(values))
        assert tasks.means() == by_task
        CHANCE.shuffle(values)
