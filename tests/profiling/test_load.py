"""How the time of calls depends on their load, and what of a hostile tree counts."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted_runs import START, Node, node, two_turns, verdict
from velodrome.profiling.load import LoadEffect, TimedCall, load_effect
from velodrome.profiling.observed import Observed
from velodrome.profiling.sample import RecordedAttempt, RunSample
from velodrome.records.row_times import RowTimes


def effect_of(calls: list[TimedCall]) -> LoadEffect:
    effect = load_effect([calls])
    assert effect is not None
    return effect


def test_what_does_not_show_in_the_times_is_not_known():
    assert load_effect([[TimedCall(0.0, 1.0)] * 3]) is None
    steady = effect_of([TimedCall(0.0, 1.0)] * 50)
    assert (steady.growth, steady.saturated) == (None, None)
    mixed = effect_of([TimedCall(n * 0.01, n * 0.01 + 0.1 * (1 + n % 2)) for n in range(100)])
    assert mixed.saturated is not True


def test_longer_answers_are_not_taken_for_a_slower_model():
    calls, chance = [], random.Random(1)
    for number in range(200):
        tokens = chance.choice([10, 100])
        burst = number % 40 < 20
        start = (number // 40) * 10.0 + (number % 40) * (0.001 if burst else 0.4)
        calls.append(TimedCall(start, start + tokens * 0.003, float(tokens)))
    assert effect_of(calls).saturated is False


@pytest.mark.parametrize(("low_s", "high_s"), [((0.1, 0.1), (0.3, 0.3)), ((0.05, 0.2), (0.1, 0.5))])
def test_a_delay_that_is_the_same_at_every_load_is_not_called_slower_with_load(
    low_s: tuple[float, float], high_s: tuple[float, float]
):
    """The last calls of a run are second turns, of twice the tokens, and meet few others."""
    for seed in range(4):
        uniform = random.Random(seed).uniform
        result = verdict(two_turns(lambda turn, uniform=uniform: uniform(low_s[turn], high_s[turn])))
        assert (result["bound"], "took no longer with 32 calls" in result["paragraph"]) == ("concurrency", True), seed


def test_two_turns_of_a_model_that_cannot_answer_more_are_named():
    chance = random.Random(1)
    result = verdict(two_turns(lambda turn: chance.uniform(0.1, 0.3), places=8))
    assert (result["bound"], "few others in flight and" in result["paragraph"]) == ("model", True)


def test_chance_is_called_slower_in_fewer_than_three_of_a_hundred_runs():
    def effect(chance: random.Random) -> LoadEffect:
        free, calls = [0.0] * 16, []
        for _ in range(200):
            start = heapq.heappop(free)
            calls.append(TimedCall(start, start + chance.expovariate(5.0)))
            heapq.heappush(free, calls[-1].end)
        return effect_of(calls)

    effects = [effect(random.Random(seed)) for seed in range(150)]
    assert sum(each.slows > 0 for each in effects) < 0.03 * len(effects)


def test_calls_that_take_about_as_long_as_the_quickest_are_not_slowed_down():
    chance = random.Random(2)
    effect = effect_of([TimedCall(n * 0.003, n * 0.003 + 0.05 + 0.01 * chance.random()) for n in range(300)])
    assert (effect.growth, effect.saturated) == (0.0, False)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 1), st.integers(1, 9)), min_size=8, max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_call_ever_took_less_or_more_than_is_reported(calls: list[tuple[float, float, int]]):
    effect = effect_of([TimedCall(start, start + took, tokens) for start, took, tokens in calls])
    times = [took for _, took, _ in calls]
    assert min(times) * 0.999 <= effect.low_s <= max(times) * 1.001
    assert min(times) * 0.999 <= effect.high_s <= max(times) * 1.001


def observed(*tree: Node) -> Observed:
    sample = RunSample()
    for _ in range(30):
        sample.add(RecordedAttempt(START, RowTimes({"total_s": 0.3, "tree": list(tree)}), True))
    return Observed(sample, 2.0)


def test_folded_calls_count_each_and_a_process_id_that_is_not_a_number_is_none():
    seen = observed(node("model", 0.0, 0.3, folded=5))
    assert (seen.calls["model"], seen.model) == (pytest.approx(5.0), None)  # its time is not that of a call
    for pid in ([1], {"a": 1}, "x", None, float("nan"), -1):
        seen = observed(node("@math", 0.0, 0.3, [node("model", 0.0, 0.3)], pid=pid, busy_pct=pid))
        assert (seen.processes, seen.shares) == ({}, {"math": 0.0})
