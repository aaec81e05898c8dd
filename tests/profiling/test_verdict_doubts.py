"""What the verdict must not say: numbers that nobody measured, a bound that is not one, advice that brings nothing."""

from __future__ import annotations

import heapq
import random
from math import exp
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_runs import START, Json, Made, Node, Planted, config, node, run, verdict

from velodrome.profiling.load_effect import LoadEffect, TimedCall, load_effect
from velodrome.profiling.observed import Observed
from velodrome.profiling.phrases import ms, number
from velodrome.profiling.sample import RecordedAttempt, RunSample
from velodrome.records.row_times import RowTimes

CONFIG = config()


def fixed(seed: int, least_s: float = 0.0495, late_s: float = 0.0147) -> Made:
    """A model that always sleeps 50 ms. Most answers are read at once, a few late, at a high load more of them."""
    chance = random.Random(seed)

    def made(start: float, at_once: int) -> Planted:
        late = late_s * chance.random() if chance.random() < at_once / 40 else 0.003 * chance.random()
        took = least_s + late
        return took, [node("model", 0.0, took)]

    return made


def test_a_model_that_always_takes_as_long_is_not_slow_however_late_its_answers_are_read():
    found = [verdict(run(fixed(seed))) for seed in range(8)]
    assert {each["bound"] for each in found} == {"concurrency"}
    assert not [each for each in found if "with few others in flight" in each["paragraph"]]
    predicted = [each["advice"][0]["predicted_rollouts_per_s"] for each in found]
    told = [each for each in predicted if each is not None]
    assert len(told) >= 4
    assert max(told) < 1.1 * min(told)


def by_load(extra_s: float) -> Made:
    def made(start: float, at_once: int) -> Planted:
        took = 0.05 + extra_s * at_once / 16
        return took, [node("model", 0.0, took)]

    return made


def test_what_a_late_event_loop_explains_is_not_the_models():
    late = verdict(run(by_load(0.045), stagger_s=0.02, lag_s=0.05))
    assert late["bound"] == "concurrency"
    assert "the model took no longer" in late["evidence"][-1]


def test_a_model_that_gets_somewhat_slower_is_told_by_its_times_and_nothing_is_predicted():
    slower = verdict(run(by_load(0.045), stagger_s=0.02))
    free = verdict(run(by_load(0.0), stagger_s=0.02))
    assert (slower["bound"], free["bound"]) == ("concurrency", "concurrency")
    (told,) = [each for each in slower["evidence"] if "with few others in flight" in each]
    assert told.startswith("a call took ")
    assert told.endswith(" ms with 16")
    assert [each["gain"] for each in slower["advice"]] == [None, None]
    assert "the model got slower with more at once" in slower["paragraph"]
    assert free["advice"][0]["gain"] == pytest.approx(2, rel=0.1)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 1), st.integers(1, 9)), min_size=8, max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_call_ever_took_less_or_more_than_is_told(calls: list[tuple[float, float, int]]):
    effect = load_effect([[TimedCall(start, start + took, work) for start, took, work in calls]])
    assert effect is not None
    mean = sum(work for _, _, work in calls) / len(calls)
    times = [took * mean / work for _, took, work in calls]
    assert min(times) * 0.999 <= effect.low_s <= max(times) * 1.001
    assert min(times) * 0.999 <= effect.high_s <= max(times) * 1.001


@pytest.mark.parametrize(("slots", "places"), [(8, 2), (16, 1), (64, 4)])
def test_a_server_with_a_queue_is_still_seen_with_few_slots_and_with_many(slots: int, places: int):
    servers = [0.0] * places

    def made(start: float, at_once: int) -> Planted:
        free = max(heapq.heappop(servers), start)
        heapq.heappush(servers, free + 0.05)
        return free + 0.05 - start, [node("model", 0.0, free + 0.05 - start)]

    assert verdict(run(made, 300, slots))["bound"] == "model"


def test_a_growth_counts_only_when_it_is_more_than_chance():
    def slows(growth: float | None, high_s: float) -> float:
        return LoadEffect(growth, 0.1, 16, 15.0, 0.1, high_s, 100.0).slows

    assert (slows(0.4, 0.2), slows(0.2, 0.2), slows(0.4, 0.12), slows(None, 0.2)) == (0.4, 0.0, 0.0, 0.0)


def quick(start: float, at_once: int) -> Planted:
    return 0.005, [node("model", 0.0, 0.005)]


def test_without_a_sample_of_the_cpu_none_is_told():
    rows = run(quick, count=3000, stagger_s=1e-4, cpu=None, lag_s=None)
    found = verdict(rows)
    assert found["rollouts_per_s"] > 2000
    assert found["bound"] == "concurrency"
    assert "CPU" not in found["paragraph"]
    assert "Python" not in found["paragraph"]


def holding(start: float, at_once: int) -> Planted:
    return 0.2, [node("model", 0.0, 0.19), node("verify", 0.19, 0.01, held_us=10_000)]


def test_a_loop_that_is_held_by_code_that_sleeps_is_held_and_python_does_not_run():
    found = verdict(run(holding, count=400, stagger_s=0.0, cpu=0.05, lag_s=0.1))
    assert found["bound"] == "event_loop"
    assert found["evidence"] == [
        "verify is async and kept the event loop for 10 ms per rollout: it waits without await",
        "the event loop was held 80% of the time",
        "the event loop was 100 ms late",
    ]


def test_whether_what_holds_the_loop_computes_is_not_known_without_a_sample_of_the_cpu():
    found = verdict(run(holding, count=400, stagger_s=0.0, cpu=None, lag_s=0.1))
    assert found["evidence"][0].endswith("whether it computes or waits meanwhile is not known")
    assert [(each["override"], each["gain"] is None) for each in found["advice"]] == [
        ("+defer_verification=true", False),
        ("", True),
    ]


def test_a_run_that_is_over_at_once_tells_nothing():
    found = verdict(run(quick, count=600, stagger_s=0.0))
    assert (found["bound"], found["advice"]) == ("unknown", [])
    assert found["paragraph"] == ("What bounds throughput is not known: the run took 0.2 s: too short to tell.")


def waits(start: float, at_once: int) -> Planted:
    chance = random.Random(start)
    took = 0.2 * (0.9 + 0.2 * chance.random())
    return took, [node("model", 0.0, took, tokens=50)]


def growing(count: int) -> list[Json]:
    """auto: 4 at once at first, twice as many every so often."""
    rows: list[Json] = []
    at = 0.0
    for limit in (4, 8, 16, 32, 64):
        part = run(waits, count=count, slots=limit)
        begun = rows[-1]["meta"]["finished_at"] - START if rows else at
        for row in part:
            row["meta"]["finished_at"] += begun
            row["meta"]["timing"]["in_flight"] = limit
        rows += part
    return rows


def test_a_limit_that_was_still_growing_is_not_too_few_tasks():
    found = verdict(growing(60))
    assert found["bound"] == "concurrency"
    assert "the limit was still changing: auto went from 4 to 64" in found["evidence"]
    (advice,) = found["advice"]
    assert advice["override"] == "+num_samples_in_parallel=64"
    assert advice["gain"] > 1.5


def noisy(seed: int) -> Made:
    """A model whose times say little: they grow with the load, and by chance."""
    chance = random.Random(seed)

    def made(start: float, at_once: int) -> Planted:
        took = 0.01 * at_once * exp(chance.gauss(0.0, 1.2))
        return took, [node("model", 0.0, took)]

    return made


def test_times_that_say_little_promise_nothing():
    found = verdict(run(noisy(8), stagger_s=0.02))
    assert [each["gain"] for each in found["advice"]] == [None, None]
    assert "What that gives is not known: whether the model gets slower with more at once." in found["paragraph"]


def test_places_that_are_as_many_as_the_slots_are_told_when_more_slots_alone_bring_nothing():
    full = {**CONFIG, "policy_model": {"responses_api_models": {"openai_model": {"max_concurrent": 16}}}}
    found = verdict(run(waits), full)
    assert (found["bound"], found["advice"]) == ("unknown", [])
    assert found["evidence"][0].startswith("more rollouts at once need more places (max_concurrent), too: 15.")


@pytest.mark.parametrize(("repeats", "override"), [(None, "+num_repeats=16"), (4, "+num_repeats=64")])
def test_how_many_repeats_are_enough_is_a_number(repeats: int | None, override: str):
    chance = random.Random(3)

    def made(start: float, at_once: int) -> Planted:
        took = chance.expovariate(5.0)
        return took, [node("model", 0.0, took)]

    rows = run(made, count=40, slots=32)
    found = verdict(rows, CONFIG if repeats is None else {**CONFIG, "num_repeats": repeats})
    assert (found["bound"], found["advice"][0]["override"]) == ("input", override)
    assert verdict(rows, {})["advice"][0]["override"] == ""


def served(math: float | None, agent: float | None = None, pids: int = 1, folded: int = 1) -> Made:
    def made(start: float, at_once: int) -> Planted:
        def counts(pct: float | None, pid: int) -> Json:
            return {"pid": pid} | ({} if pct is None else {"busy_pct": pct})

        inner = node("@math", 0.16, 0.04, **counts(math, 7 + int(start * 1e4) % pids))
        if folded > 1:
            inner[3] |= {"folded": folded, "busy_pct": folded * (math or 0.0)}
        took, (model,) = waits(start, at_once)
        tree = [model, node("verify", took, 0.04, [inner])]
        return took + 0.04, [node("@agent", 0.0, took + 0.04, tree, **counts(agent, 3))]

    return made


@pytest.mark.parametrize("folded", [1, 3])
def test_a_servers_process_that_uses_a_core_by_itself_is_named(folded: int):
    found = verdict(run(served(95, folded=folded)))
    assert (found["bound"], found["what"], found["part"]) == ("server", "the server math", "model")
    assert found["evidence"][0] == "the process of math needed 95% of a core, and one process runs one thing at a time"
    (advice,) = found["advice"]
    assert advice == {
        "change": "run math in 2 processes, if there are idle cores",
        "override": "++math.resources_servers.math.num_workers=2",
        "predicted_rollouts_per_s": None,
        "gain": None,
    }
    assert found["paragraph"].endswith("Servers read it when they start: give it to velo run.")


def test_the_busiest_server_is_named_with_its_own_block_and_all_of_its_processes():
    found = verdict(run(served(85, agent=90)))
    assert found["advice"][0]["override"] == "++agent.responses_api_agents.simple_agent.num_workers=2"
    two = verdict(run(served(85, pids=2)))
    assert two["evidence"][0] == "each of the 2 processes of math needed 85% of a core, and runs one thing at a time"
    assert two["advice"][0]["override"] == "++math.resources_servers.math.num_workers=4"


@pytest.mark.parametrize(("share", "promised"), [(None, True), (60, False)])
def test_nothing_is_promised_of_more_rollouts_while_a_server_is_half_busy(share: float | None, promised: bool):
    found = verdict(run(served(share)))
    assert found["bound"] == "concurrency"
    assert (found["advice"][0]["predicted_rollouts_per_s"] is not None) is promised
    assert ("a server is half busy already" in found["paragraph"]) is not promised


def test_what_a_server_cannot_know_in_the_first_second_does_not_count():
    rows = run(served(100))
    for row in rows:
        if row["meta"]["finished_at"] < START + 0.9:
            del row["meta"]["timing"]["tree"][0][4][1][4][0][3]["busy_pct"]
    assert "needed 100% of a core" in verdict(rows)["evidence"][0]


def test_a_local_model_that_uses_all_the_cores_of_its_server_is_the_bound_and_not_its_process():
    def made(start: float, at_once: int) -> Planted:
        took, (model,) = waits(start, at_once)
        model[4] = [node("@policy_model", 0.0, took, pid=5, busy_pct=190)]
        return took, [model]

    local = {**CONFIG, "policy_model": {"responses_api_models": {"local_model": {}}}}
    assert verdict(run(made))["bound"] == "server"
    assert verdict(run(made), local)["bound"] == "model"


def test_two_parts_that_take_about_as_long_are_both_named():
    def made(start: float, at_once: int) -> Planted:
        return 0.203, [node("model", 0.0, 0.102), node("verify", 0.102, 0.101)]

    found = verdict(run(made))
    assert "a rollout took 203 ms, 102 ms of it waiting for the model and 101 ms being verified" in found["evidence"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1653.7, "1,650"), (999.6, "1,000"), (416.4, "416"), (76.14, "76.1"), (7.4, "7.4"), (12_345_678, "12,300,000")],
)
def test_numbers_are_shown_without_exponents(value: float, shown: str):
    assert number(value) == shown


def test_times_are_shown_in_the_unit_that_suits_them():
    assert [ms(0.0005), ms(0.0512), ms(0.9999), ms(4000.0)] == ["0.5 ms", "51.2 ms", "1 s", "4,000 s"]
    assert number(134.0, 2) == "130"


def recorded(tree: list[Node]) -> RunSample:
    found = RunSample()
    for _ in range(30):
        found.add(RecordedAttempt(START, RowTimes({"total_s": 0.3, "tree": tree}), True, 3))
    return found


def test_calls_that_were_folded_into_one_span_count_each_and_their_times_are_not_those_of_calls():
    facts = Observed(recorded([node("model", 0.0, 0.3, folded=5)]), 2.0)
    assert facts is not None
    assert (facts.calls["model"], facts.model) == (pytest.approx(5.0), None)


@pytest.mark.parametrize("pid", [[1], {"a": 1}, "x", None, float("nan"), -1])
def test_a_process_id_that_is_no_number_is_none(pid: Any):
    facts = Observed(recorded([node("@math", 0.0, 0.3, [node("model", 0.0, 0.3)], pid=pid, busy_pct=pid)]), 2.0)
    assert facts is not None
    assert (facts.processes, facts.shares) == ({}, {"math": 0.0})


def test_the_quickest_and_the_usual_call_decide_before_any_fit():
    chance = random.Random(2)
    calls = [TimedCall(n * 0.003, n * 0.003 + 0.05 + 0.01 * chance.random()) for n in range(300)]
    effect = load_effect([calls])
    assert effect is not None
    assert (effect.growth, effect.saturated) == (0.0, False)
    assert median(call.end - call.start for call in calls) < 1.25 * 0.05
