"""The replay against cases that can be worked out by hand, and against what holds in every such system."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.profiling.replay import Capacity, Replayed, Stage, Step, replay

CALL = Stage("model", wait_s=1.0, limiter="model")


def rollouts(*steps: Step, count: int = 12) -> list[list[Step]]:
    return [list(steps)] * count


def seconds(found: list[list[Step]], limits: Capacity, count: int | None = None) -> float:
    return replay(found, limits, count).seconds


def test_rollouts_that_only_wait_take_as_many_turns_as_the_slots_make_necessary():
    found = rollouts((CALL,))
    assert [seconds(found, Capacity(slots)) for slots in (1, 4, 5, 12, 99)] == [12.0, 3.0, 3.0, 1.0, 1.0]


def test_a_limiter_lets_so_many_through_however_many_slots_there_are():
    found = rollouts((CALL,))
    assert [seconds(found, Capacity(12, {"model": places})) for places in (1, 3, 12)] == [12.0, 4.0, 1.0]


def test_stages_of_one_step_run_side_by_side_and_the_step_lasts_as_long_as_the_longest():
    step = (Stage("tool:a", 1.0), Stage("tool:b", 3.0))
    assert seconds(rollouts(step, (Stage("verify", 2.0),)), Capacity(12)) == 5.0


def test_stages_side_by_side_need_a_place_each():
    step = (Stage("tool:a", 1.0, limiter="threads"), Stage("tool:b", 1.0, limiter="threads"))
    assert seconds(rollouts(step, count=1), Capacity(1, {"threads": 1})) == 2.0


def test_time_on_the_event_loop_is_had_by_one_at_a_time():
    found = rollouts((Stage("model", 1.0),), (Stage("verify", held_s=0.5),))
    assert seconds(found, Capacity(12)) == 1.0 + 12 * 0.5


def test_cpu_in_threads_shares_the_one_interpreter_and_waiting_there_does_not():
    burning = rollouts((Stage("verify", cpu_s=0.5),))
    waiting = rollouts((Stage("verify", wait_s=0.5),))
    assert (seconds(burning, Capacity(12)), seconds(waiting, Capacity(12))) == (6.0, 0.5)


def test_a_server_has_an_interpreter_of_its_own_for_each_of_its_processes():
    found = rollouts((Stage("verify", cpu_s=0.5, where="math"),), (Stage("other", held_s=0.25),))
    assert seconds(found, Capacity(12, processes={"math": 1})) == 6.25
    assert seconds(found, Capacity(12, processes={"math": 2})) == 3.5
    assert seconds(found, Capacity(12, processes={"math": 12})) == 0.5 + 12 * 0.25


def test_a_saturated_model_answers_so_many_a_second():
    found = rollouts((Stage("model", 1.0),), count=100)
    assert seconds(found, Capacity(100, rates={"model": 10.0})) == pytest.approx(99 / 10 + 1.0)


def test_the_first_to_come_is_the_first_served():
    found = [[(Stage("model", float(n)),), (Stage("verify", held_s=10.0),)] for n in (3, 1, 2)]
    result = replay(found, Capacity(3))
    assert (result.seconds, result.total_s) == (31.0, pytest.approx((11 + 21 + 31) / 3))


def test_how_busy_and_how_full_it_was_is_told():
    found = rollouts((Stage("model", 0.5),), (Stage("verify", held_s=0.5),), count=4)
    assert replay(found, Capacity(1)) == Replayed(rollouts_per_s=1.0, seconds=4.0, total_s=1.0, in_flight=1.0)


def test_nothing_takes_no_time():
    assert replay([], Capacity(4)).rollouts_per_s == 0.0
    assert replay(rollouts((CALL,)), Capacity(4), 0).rollouts_per_s == 0.0
    assert replay([[]], Capacity(4), 10).rollouts_per_s == 0.0


def test_a_million_rollouts_are_told_from_a_few_thousand():
    found = rollouts((Stage("model", 0.1),), (Stage("verify", 0.05),), (Stage("other", held_s=0.0001),))
    result = replay(found, Capacity(16), 1_000_000)
    assert result.rollouts_per_s == pytest.approx(16 / 0.15, rel=0.02)


def test_what_comes_next_waits_its_turn_on_the_event_loop():
    found = rollouts((Stage("model", 1.0),), (Stage("verify", held_s=0.25),), count=8)
    # 4 answers come at once, each is verified in turn, and only then does the loop get to the next requests
    assert seconds(found, Capacity(4)) == 2 * (1.0 + 4 * 0.25)


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
def test_nothing_is_faster_than_each_of_its_bounds(found: list[list[Step]], slots: int, places: dict[str, int]):
    result = replay(found, Capacity(slots, places))
    stages = [stage for steps in found for step in steps for stage in step]
    alone = [sum(s.wait_s + s.cpu_s + s.held_s for step in steps for s in step) for steps in found]
    bounds = [max(alone), sum(alone) / slots]
    bounds += [sum(s.cpu_s + s.held_s for s in stages if s.where == where) for where in ("", "server")]
    bounds += [
        sum(s.wait_s + s.cpu_s + s.held_s for s in stages if s.limiter == name) / number
        for name, number in places.items()
    ]
    assert result.seconds >= max(bounds) - 1e-9
    assert result.seconds <= sum(alone) + 1e-9  # one after the other
    assert result.in_flight <= slots + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.3, 1.0]), min_size=1, max_size=30), st.integers(1, 8), st.integers(1, 8))
def test_fewer_slots_are_never_faster(waits: list[float], slots: int, more: int):
    found: list[list[Step]] = [[(Stage("model", 0.5),), (Stage("verify", 0.25),)] for _ in waits]
    assert seconds(found, Capacity(slots)) >= seconds(found, Capacity(slots + more)) - 1e-9
    limited = [seconds(found, Capacity(slots, {"model": places})) for places in (1, 2, 4)]
    assert limited == sorted(limited, reverse=True)


@settings(max_examples=40, deadline=None)
@given(ROLLOUTS, st.integers(1, 6), PLACES)
def test_rollouts_in_flight_are_their_rate_times_their_length(
    found: list[list[Step]], slots: int, places: dict[str, int]
):
    result = replay(found, Capacity(slots, places), 50)
    assert result.in_flight == pytest.approx(result.rollouts_per_s * result.total_s)
