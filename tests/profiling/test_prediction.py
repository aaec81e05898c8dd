"""The time of a run by arithmetic: cases that can be worked out by hand."""

from __future__ import annotations

import pytest

from velodrome.profiling.prediction import Capacity, Demand, run_time


@pytest.mark.parametrize(
    ("demand", "count", "capacity", "seconds"),
    [
        (Demand(1.0, {"model": 1.0}), 12, Capacity(12), 11 / 12 + 1),  # slots
        (Demand(1.0, {"model": 1.0}), 12, Capacity(12, {"model": 3}), 11 / 3 + 1),  # places of a limiter
        (Demand(1.0, {"threads": 1.5}), 1, Capacity(1, {"threads": 1}), 1.5),  # two side by side, each needs a place
        (Demand(1.5, cpu_s={"": 0.5}), 12, Capacity(12), 11 * 0.5 + 1.5),  # code of one process shares its interpreter
        (Demand(0.75, cpu_s={"math": 0.5, "": 0.25}), 12, Capacity(12, processes={"math": 2}), 11 * 0.25 + 0.75),
        (Demand(1.0, calls={"model": 1.0}), 100, Capacity(100, rates={"model": 10.0}), 99 / 10 + 1.0),
        (Demand(0.15), 1_000_000, Capacity(16), 999_999 * 0.15 / 16 + 0.15),
    ],
)
def test_a_run_takes_as_long_as_what_is_used_up_first(demand: Demand, count: int, capacity: Capacity, seconds: float):
    assert run_time(demand, capacity, count)[0] == pytest.approx(seconds)
