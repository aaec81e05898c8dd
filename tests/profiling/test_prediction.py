"""The time of a run by arithmetic: cases that can be worked out by hand."""

from __future__ import annotations

import pytest

from velodrome.profiling.attempts import Stage
from velodrome.profiling.prediction import Capacity, Step, run_time

CALL = Stage("model", wait_s=1.0, limiter="model")
TWO_TOOLS = (Stage("tool:a", 1.0, limiter="threads"), Stage("tool:b", 0.5, limiter="threads"))
BURN = Stage("verify", cpu_s=0.5, where="math")
HOLD = Stage("other", held_s=0.25)


@pytest.mark.parametrize(
    ("steps", "count", "capacity", "seconds"),
    [
        ([(CALL,)], 12, Capacity(12), 11 / 12 + 1),  # slots
        ([(CALL,)], 12, Capacity(12, {"model": 3}), 11 / 3 + 1),  # places of a limiter
        ([TWO_TOOLS], 1, Capacity(1), 1.0),  # side by side
        ([TWO_TOOLS], 1, Capacity(1, {"threads": 1}), 1.5),  # each needs a place
        ([(Stage("model", 1.0),), (Stage("verify", held_s=0.5),)], 12, Capacity(12), 11 * 0.5 + 1.5),
        ([(Stage("verify", cpu_s=0.5),)], 12, Capacity(12), 6.0),  # threads share one interpreter
        ([(BURN,), (HOLD,)], 12, Capacity(12, processes={"math": 2}), 11 * 0.25 + 0.75),
        ([(Stage("model", 1.0),)], 100, Capacity(100, rates={"model": 10.0}), 99 / 10 + 1.0),
        ([(Stage("model", 0.1),), (Stage("verify", 0.05),)], 1_000_000, Capacity(16), 999_999 * 0.15 / 16 + 0.15),
    ],
)
def test_a_run_takes_as_long_as_what_is_used_up_first(
    steps: list[Step], count: int, capacity: Capacity, seconds: float
):
    assert run_time([steps], capacity, count)[0] == pytest.approx(seconds)
