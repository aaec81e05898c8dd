"""The replay against cases that can be worked out by hand, and against what holds in every such system."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.profiling.replay import Capacity, Stage, Step, replay

CALL = Stage("model", wait_s=1.0, limiter="model")
TWO_TOOLS = (Stage("tool:a", 1.0, limiter="threads"), Stage("tool:b", 0.5, limiter="threads"))
BURN = Stage("verify", cpu_s=0.5, where="math")
HOLD = Stage("other", held_s=0.25)


@pytest.mark.parametrize(
    ("steps", "count", "capacity", "seconds"),
    [
        ([(CALL,)], 12, Capacity(1), 12.0),
        ([(CALL,)], 12, Capacity(5), 3.0),
        ([(CALL,)], 12, Capacity(99), 1.0),
        ([(CALL,)], 12, Capacity(12, {"model": 1}), 12.0),
        ([(CALL,)], 12, Capacity(12, {"model": 3}), 4.0),
        ([TWO_TOOLS], 1, Capacity(1), 1.0),  # side by side
        ([TWO_TOOLS], 1, Capacity(1, {"threads": 1}), 1.5),  # each needs a place
        ([(Stage("model", 1.0),), (Stage("verify", held_s=0.5),)], 12, Capacity(12), 1.0 + 12 * 0.5),
        ([(Stage("verify", cpu_s=0.5),)], 12, Capacity(12), 6.0),  # threads share one interpreter
        ([(Stage("verify", wait_s=0.5),)], 12, Capacity(12), 0.5),
        ([(BURN,), (HOLD,)], 12, Capacity(12, processes={"math": 1}), 6.25),
        ([(BURN,), (HOLD,)], 12, Capacity(12, processes={"math": 2}), 3.5),
        ([(BURN,), (HOLD,)], 12, Capacity(12, processes={"math": 12}), 0.5 + 12 * 0.25),
        ([(Stage("model", 1.0),)], 100, Capacity(100, rates={"model": 10.0}), 99 / 10 + 1.0),
        # 4 answers come at once, each is verified in turn, and only then does the loop get to the next requests
        ([(Stage("model", 1.0),), (Stage("verify", held_s=0.25),)], 8, Capacity(4), 2 * (1.0 + 4 * 0.25)),
        ([], 10, Capacity(4), 0.0),
        ([(CALL,)], 0, Capacity(4), 0.0),
        # of a million a few thousand are run
        ([(Stage("model", 0.1),), (Stage("verify", 0.05),)], 1_000_000, Capacity(16), 1_000_000 * 0.15 / 16),
    ],
)
def test_a_case_that_can_be_worked_out_by_hand(steps: list[Step], count: int, capacity: Capacity, seconds: float):
    assert replay([steps], capacity, count) == pytest.approx(seconds, rel=0.001)


def test_the_first_to_come_is_the_first_served():
    rollouts = [[(Stage("model", float(n)),), (Stage("verify", held_s=10.0),)] for n in (3, 1, 2)]
    assert replay(rollouts, Capacity(3)) == 31.0


STAGE = st.builds(
    Stage,
    st.sampled_from(["model", "tool:a", "verify"]),
    wait_s=st.sampled_from([0.0, 0.1, 0.25, 1.0]),
    cpu_s=st.sampled_from([0.0, 0.05]),
    held_s=st.sampled_from([0.0, 0.02]),
    limiter=st.sampled_from([None, "model", "threads"]),
    where=st.sampled_from(["", "server"]),
)
ROLLOUTS = st.lists(st.lists(st.tuples(STAGE), min_size=1, max_size=4), min_size=1, max_size=12)
PLACES = st.fixed_dictionaries({"model": st.integers(1, 4), "threads": st.integers(1, 4)})


@settings(max_examples=60, deadline=None)
@given(ROLLOUTS, st.integers(1, 8), PLACES)
def test_nothing_is_faster_than_each_of_its_bounds(rollouts: list[list[Step]], slots: int, places: dict[str, int]):
    seconds = replay(rollouts, Capacity(slots, places))
    stages = [stage for steps in rollouts for step in steps for stage in step]
    alone = [sum(s.wait_s + s.cpu_s + s.held_s for step in steps for s in step) for steps in rollouts]
    bounds = [max(alone), sum(alone) / slots]
    bounds += [sum(s.cpu_s + s.held_s for s in stages if s.where == where) for where in ("", "server")]
    bounds += [
        sum(s.wait_s + s.cpu_s + s.held_s for s in stages if s.limiter == name) / number
        for name, number in places.items()
    ]
    assert max(bounds) - 1e-9 <= seconds <= sum(alone) + 1e-9  # at most one after the other


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 8))
def test_fewer_slots_are_never_faster(count: int, slots: int, more: int):
    rollouts: list[list[Step]] = [[(Stage("model", 0.5, limiter="model"),), (Stage("verify", 0.25),)]] * count
    assert replay(rollouts, Capacity(slots)) >= replay(rollouts, Capacity(slots + more)) - 1e-9
    limited = [replay(rollouts, Capacity(slots, {"model": places})) for places in (1, 2, 4)]
    assert limited == sorted(limited, reverse=True)
