"""Every bound, planted: rows as a run would have written them that is bound by one thing, and what is said of them.

What the advice really gives is measured in benchmarks/verdicts.py.
"""

from __future__ import annotations

import heapq
import os
import random
from collections.abc import Callable

import pytest
from planted_runs import START, Json, Made, Node, Planted, config, node, row, run, verdict, waiting

from velodrome.profiling.config_blocks import UNKNOWN, Block, Blocks, find_blocks
from velodrome.profiling.load_effect import TimedCall, load_effect
from velodrome.profiling.profile import Profile
from velodrome.profiling.sample import FEWEST
from velodrome.records.facts import RowFacts
from velodrome.settings.overrides import parse


def one_at_a_time(first_s: float, length_s: float, make: Callable[[float, float], list[Node]]) -> Made:
    """A rollout whose second half runs on an interpreter that has one use at a time."""
    free = 0.0

    def made(start: float, at_once: int) -> Planted:
        nonlocal free
        begun = max(start + first_s, free)
        free = begun + length_s
        return free - start, make(begun - start, free - start)

    return made


def test_too_low_a_limit_is_named_and_more_rollouts_at_once_are_predicted():
    found = verdict(run(waiting(), count=400, slots=16))
    assert (found["bound"], found["what"], found["part"]) == ("concurrency", "the concurrency limit", "model")
    assert found["rollouts_per_s"] == pytest.approx(16 / 0.21, rel=0.06)
    first, second = found["advice"]
    assert first["override"] == "+num_samples_in_parallel=32"  # twice what the model was seen to bear, and no more
    assert first["predicted_rollouts_per_s"] == pytest.approx(32 / 0.21, rel=0.1)
    assert first["gain"] == pytest.approx(first["predicted_rollouts_per_s"] / found["rollouts_per_s"])
    assert second == {
        "change": "let the collector find the number",
        "override": "+num_samples_in_parallel=auto",
        "predicted_rollouts_per_s": None,
        "gain": None,
    }
    assert found["evidence"][0].endswith("of 16 slots were in use")
    assert "bounded by the concurrency limit" in found["paragraph"]


def test_a_verify_that_waits_is_the_limit_with_verify_as_its_part():
    found = verdict(run(waiting(model_s=0.01, verify_s=0.3)))
    assert (found["bound"], found["part"]) == ("concurrency", "verify")
    assert found["advice"][0]["gain"] == pytest.approx(2, rel=0.1)


def test_without_a_varying_load_it_is_not_known_whether_the_model_can_take_more_and_no_number_is_told():
    def constant(start: float, at_once: int) -> Planted:
        return 0.2, [node("model", 0.0, 0.2)]

    found = verdict(run(constant, count=160, slots=16))
    assert found["bound"] == "concurrency"
    assert "not known: the load on the model did not vary" in found["paragraph"]
    assert "predicted" not in found["paragraph"]
    assert [(each["override"], each["predicted_rollouts_per_s"]) for each in found["advice"]] == [
        ("+num_samples_in_parallel=auto", None),
        ("+num_samples_in_parallel=32", None),
    ]


def test_the_models_own_limit_is_named_with_the_override_of_its_block():
    def made(start: float, at_once: int) -> Planted:
        return 0.4, [node("model", 0.0, 0.4, [node("queue", 0.0, 0.3)])]

    found = verdict(run(made), config({"max_concurrent": 4}))
    assert (found["bound"], found["part"]) == ("model_limit", "queue")
    (advice,) = found["advice"]
    assert advice["override"] == "++policy_model.responses_api_models.openai_model.max_concurrent=8"


def test_a_limit_that_no_config_tells_is_worked_out_from_what_was_in_use():
    def made(start: float, at_once: int) -> Planted:
        return 0.4, [node("model", 0.0, 0.4, [node("queue", 0.0, 0.3)])]

    found = verdict(run(made), {})
    assert "from 4 to 8" in found["advice"][0]["change"]
    assert found["advice"][0]["override"] == "++policy_model.responses_api_models.openai_model.max_concurrent=8"


def queueing_model(places: int, alone_s: float) -> list[Json]:
    """A run against a server that answers so many at once; the others wait in line."""
    servers = [0.0] * places

    def made(start: float, at_once: int) -> Planted:
        free = max(heapq.heappop(servers), start)
        heapq.heappush(servers, free + alone_s)
        took = free + alone_s - start
        return took, [node("model", 0.0, took)]

    return run(made)


def sharing_model(strength: float, slots: int = 16, count: int = 300) -> list[Json]:
    """A run against a server that shares its strength: all calls get on equally fast, none faster than alone."""
    chance = random.Random(5)
    now, begun, rows = 0.0, 0, []
    active: list[list[float]] = []  # what is left of each, when it began, its tokens
    while begun < count or active:
        while begun < count and len(active) < slots:
            tokens = chance.randint(50, 150)
            active.append([tokens / 1000, now, tokens])
            begun += 1
        speed = min(1.0, strength / len(active))
        first = min(active)
        now += first[0] / speed
        for each in active:
            each[0] -= first[0] if each is not first else 0.0
        active.remove(first)
        took = now - first[1]
        tree = [node("model", 0.0, took, tokens=first[2])]
        rows.append(row(len(rows), START + now, took, tree, min(slots, count - len(rows)), slots, {}))
    return rows


@pytest.mark.parametrize("rows", [queueing_model(4, 0.05), sharing_model(4.0)], ids=["queues", "shares"])
def test_a_saturated_model_is_named_and_a_second_server_predicted_to_double_it(rows: list[Json]):
    found = verdict(rows)
    assert (found["bound"], found["part"]) == ("model", "model")
    (advice,) = found["advice"]
    assert advice["override"] == (
        "++policy_model.responses_api_models.openai_model.openai_base_url="
        "[http://127.0.0.1:8000/v1,<the second server>/v1]"
    )
    assert advice["gain"] == pytest.approx(2.0, rel=0.15)


def test_a_model_with_strength_to_spare_is_not_taken_for_a_saturated_one():
    found = verdict(sharing_model(100.0))
    assert found["bound"] == "concurrency"
    assert "took no longer with 16 calls in flight" in " ".join(found["evidence"])


def test_verification_that_burns_cpu_is_named_and_nothing_is_predicted():
    made = one_at_a_time(
        0.2,
        0.02,
        lambda begun, end: [node("model", 0.0, 0.2), node("verify", 0.2, end - 0.2, cpu_us=20_000)],
    )
    found = verdict(run(made, cpu=1.0, lag_s=0.03))
    assert (found["bound"], found["what"], found["part"]) == ("verify_cpu", "verification CPU", "verify")
    deferred, workers = found["advice"]
    assert deferred["override"] == "+defer_verification=true"
    assert deferred["predicted_rollouts_per_s"] is None
    assert workers["override"] == "++math.resources_servers.math.num_workers=2"
    assert workers["gain"] is None  # nobody knows whether there are idle cores


def test_a_tool_that_burns_cpu_is_named():
    def tree(begun: float, end: float) -> list[Node]:
        return [
            node("model", 0.0, 0.1),
            node("tools", 0.1, end - 0.1, [node("tool:solve", 0.1, end - 0.1, cpu_us=30_000)]),
        ]

    found = verdict(run(one_at_a_time(0.1, 0.03, tree), cpu=1.0, lag_s=0.03))
    assert (found["bound"], found["what"], found["part"]) == ("tool", "the tool solve", "tool:solve")
    assert found["advice"][0]["override"] == "++math.resources_servers.math.num_workers=2"


def test_threads_that_burn_more_than_one_core_do_not_wait_for_the_interpreter():
    def made(start: float, at_once: int) -> Planted:
        return 0.3, [node("model", 0.0, 0.2), node("verify", 0.2, 0.1, cpu_us=100_000)]

    assert verdict(run(made, cpu=5.5))["bound"] == "concurrency"


def test_a_verify_that_blocks_the_event_loop_is_named_and_deferring_it_predicted():
    made = one_at_a_time(
        0.2,
        0.02,
        lambda begun, end: [node("model", 0.0, begun), node("verify", begun, 0.02, held_us=20_000)],
    )
    found = verdict(run(made, lag_s=0.15))
    assert (found["bound"], found["part"]) == ("event_loop", "verify")
    deferred, moved = found["advice"]
    assert deferred["override"] == "+defer_verification=true"
    assert deferred["predicted_rollouts_per_s"] == pytest.approx(16 / 0.2, rel=0.1)
    assert (moved["override"], moved["change"][:19]) == ("", "write verify as def")
    assert "it waits without await" in found["evidence"][0]


def test_an_async_verify_that_computes_is_not_helped_by_a_thread():
    made = one_at_a_time(
        0.2,
        0.02,
        lambda begun, end: [node("model", 0.0, begun), node("verify", begun, 0.02, held_us=20_000)],
    )
    found = verdict(run(made, lag_s=0.15, cpu=0.98))
    assert (found["bound"], [each["override"] for each in found["advice"]]) == (
        "event_loop",
        ["+defer_verification=true"],
    )
    assert "it computes without await" in found["evidence"][0]


def test_a_tool_that_blocks_the_event_loop_is_named_and_writing_it_as_def_predicted():
    def tree(begun: float, end: float) -> list[Node]:
        tool = node("tool:look", begun, 0.02, held_us=20_000)
        return [node("model", 0.0, begun), node("tools", begun, 0.02, [tool])]

    found = verdict(run(one_at_a_time(0.2, 0.02, tree), lag_s=0.15))
    assert (found["bound"], found["part"]) == ("event_loop", "tool:look")
    (advice,) = found["advice"]
    assert advice["change"] == "write the tool look as def, not async def: then it runs in a thread"
    assert advice["predicted_rollouts_per_s"] == pytest.approx(16 / 0.22, rel=0.1)


def test_a_collector_that_needs_all_of_its_interpreter_says_so():
    def made(start: float, at_once: int) -> Planted:
        return 0.016, [node("model", 0.0, 0.015)]

    found = verdict(run(made, count=2000, cpu=0.97, lag_s=0.004))
    assert (found["bound"], found["part"]) == ("event_loop", "other")
    assert [(each["override"], each["gain"]) for each in found["advice"]] == [("", None)]


@pytest.mark.parametrize(("slots", "cpu"), [(1, 1.9), (4, 1.9), (16, 0.98), (4, 0.3)])
def test_a_model_that_computes_in_the_process_is_the_bound_and_nothing_is_predicted(slots: int, cpu: float):
    local = config()
    local["policy_model"] = {"responses_api_models": {"local_model": {}}}
    found = verdict(run(waiting(), slots=slots, cpu=cpu), local)
    assert (found["bound"], found["part"]) == ("model", "model")
    assert [(each["override"], each["predicted_rollouts_per_s"]) for each in found["advice"]] == [("", None)]
    assert "num_samples_in_parallel" not in found["paragraph"]


def test_a_model_in_the_process_is_known_by_its_cpu_where_no_config_tells():
    in_process = verdict(run(waiting(), cpu=1.9), {})
    assert (in_process["bound"], in_process["part"]) == ("model", "model")

    def behind_http(start: float, at_once: int) -> Planted:
        return 0.016, [node("model", 0.0, 0.015, first_byte_us=14_000)]

    assert verdict(run(behind_http, count=2000, cpu=0.97), {})["bound"] == "event_loop"


def test_a_model_in_the_process_that_never_lets_go_of_the_event_loop_is_the_bound_however_little_cpu_it_gets():
    free = 0.0

    def made(start: float, at_once: int) -> Planted:
        return 0.1, [node("model", 0.0, 0.1)]

    rows = []
    for number in range(40):
        total, tree = made(free, 1)
        free += total
        rows.append(row(number, START + free, total, tree, 4, 4, {"cpu": 0.3}))
    found = verdict(rows, {})
    assert (found["bound"], found["part"]) == ("model", "model")
    assert not [each for each in found["advice"] if each["predicted_rollouts_per_s"] is not None]


def test_a_local_model_that_has_little_to_do_is_not_the_bound():
    local = config()
    local["policy_model"] = {"responses_api_models": {"local_model": {}}}
    rows = run(waiting(model_s=0.2, verify_s=0.3), slots=1, count=40)
    assert verdict(rows, local)["bound"] == "concurrency"


def test_too_few_threads_are_named_with_the_override_of_the_environment():
    def made(start: float, at_once: int) -> Planted:
        tool = node("tool:look", 0.1, 0.4, [node("queue", 0.1, 0.35)])
        return 0.5, [node("model", 0.0, 0.1), node("tools", 0.1, 0.4, [tool])]

    found = verdict(run(made), config(environment={"threads": 2}))
    assert (found["bound"], found["part"]) == ("threads", "queue")
    assert found["advice"][0]["override"].startswith("++math.resources_servers.math.threads=")
    assert "from 2 to 4" in found["advice"][0]["change"]


def test_a_short_wait_for_one_of_many_threads_is_not_a_bound():
    def made(start: float, at_once: int) -> Planted:
        return 0.3, [node("model", 0.0, 0.2), node("verify", 0.2, 0.1, [node("queue", 0.2, 0.03)])]

    assert verdict(run(made))["bound"] == "concurrency"


def test_the_judges_limit_is_named():
    def made(start: float, at_once: int) -> Planted:
        judge = node("judge", 0.1, 0.4, [node("queue", 0.1, 0.3)])
        return 0.5, [node("model", 0.0, 0.1), node("verify", 0.1, 0.4, [judge])]

    of = config(environment={"judge_max_concurrent": 3}, implementation="math_with_judge")
    found = verdict(run(made), of)
    assert found["bound"] == "judge_limit"
    assert found["advice"][0]["override"].startswith("++math.resources_servers.math_with_judge.judge_max_concurrent=")
    assert "from 3 to 6" in found["advice"][0]["change"]


@pytest.mark.parametrize("served", [False, True])
def test_any_limiter_is_named_by_its_span_with_the_setting_and_the_places_that_the_span_gives(served: bool):
    def made(start: float, at_once: int) -> Planted:
        wait = node("limit:sandbox", 0.1, 0.3, sandbox_slots=3)
        run_code = node("run_code", 0.1, 0.4, [wait])
        if served:
            run_code = node("@math", 0.1, 0.4, [run_code], pid=1)
        return 0.5, [node("model", 0.0, 0.1), node("tools", 0.1, 0.4, [node("tool:python", 0.1, 0.4, [run_code])])]

    found = verdict(run(made))
    assert (found["bound"], found["part"]) == ("sandbox_limit", "queue")
    (advice,) = found["advice"]
    assert advice["override"] == "++math.resources_servers.math.sandbox_slots=6"
    assert "one of 3 places (sandbox_slots)" in found["evidence"][0]


def test_a_limiter_that_gives_no_setting_is_named_without_an_override():
    def made(start: float, at_once: int) -> Planted:
        return 0.4, [node("verify", 0.0, 0.4, [node("limit:oracle", 0.0, 0.3)])]

    found = verdict(run(made))
    assert found["bound"] == "oracle_limit"
    assert [(each["override"], "from 4 to 8" in each["change"]) for each in found["advice"]] == [("", True)]


def test_a_wait_for_the_model_s_limiter_is_known_in_older_and_in_newer_rows():
    def made(start: float, at_once: int) -> Planted:
        return 0.4, [node("model", 0.0, 0.4, [node("limit:model", 0.0, 0.3, max_concurrent=4)])]

    (advice,) = verdict(run(made))["advice"]
    assert advice["override"] == "++policy_model.responses_api_models.openai_model.max_concurrent=8"


def queued_for_the_library(start: float, at_once: int) -> Planted:
    library = node("library", 0.1, 0.4, [node("queue", 0.1, 0.35)])
    return 0.5, [node("model", 0.0, 0.1), node("verify", 0.1, 0.4, [library])]


@pytest.mark.parametrize(("cores", "processes"), [(3, 3), (64, 4)])
def test_too_few_processes_for_the_library_are_verification_cpu_and_no_more_are_advised_than_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    of = config(environment={"verify_processes": 2}, implementation="math_with_judge")
    found = verdict(run(queued_for_the_library), of)
    assert found["bound"] == "verify_cpu"
    (advice,) = found["advice"]
    assert advice["override"] == f"++math.resources_servers.math_with_judge.verify_processes={processes}"
    assert advice["gain"] is None


@pytest.mark.parametrize(
    ("cores", "settings", "waited_for"), [(2, {"verify_processes": 2}, "one of 2 places"), (1, {}, "the one place")]
)
def test_where_every_core_has_its_process_verification_is_left_for_later_and_nothing_promised(
    monkeypatch: pytest.MonkeyPatch, cores: int, settings: Json, waited_for: str
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    rows = run(queued_for_the_library, slots=16 if cores == 2 else 8)
    found = verdict(rows, config(environment=settings, implementation="math_with_judge"))
    assert found["bound"] == "verify_cpu"
    assert found["evidence"][0] == f"a rollout took 500 ms, 350 ms of it waiting for {waited_for} (verify_processes)"
    (advice,) = found["advice"]
    assert (advice["override"], advice["predicted_rollouts_per_s"]) == ("+defer_verification=true", None)
    assert "Its work is left for velo verify, not saved." in found["paragraph"]


def test_a_slow_disk_is_named():
    free = 0.0

    def made(start: float, at_once: int) -> Planted:
        nonlocal free
        answered = max(start + 0.1, free)
        free = answered + 0.02
        return answered - start, [node("model", 0.0, answered - start)]

    found = verdict(run(made, write_s=0.02, lag_s=0.1))
    assert (found["bound"], found["part"]) == ("disk", "write")
    assert found["advice"][0]["override"].startswith("+output_jsonl_fpath=")
    assert found["advice"][0]["gain"] > 1.5


def test_rate_limits_are_named_and_how_many_rollouts_are_enough():
    def made(start: float, at_once: int) -> Planted:
        return 0.8, [node("model", 0.0, 0.8, [node("backoff", 0.0, 0.7)])]

    found = verdict(run(made, slots=32, rate_limited=3, retries=3))
    assert (found["bound"], found["part"]) == ("rate_limit", "backoff")
    fewer, more = found["advice"]
    assert fewer["override"] == "+num_samples_in_parallel=5"  # 40 calls/s of 0.1 s each are 4 at once
    assert fewer["gain"] == pytest.approx(1.0, rel=0.2)
    assert (more["override"], more["predicted_rollouts_per_s"]) == ("", None)
    assert "only a higher rate helps" in found["paragraph"]


def test_too_few_tasks_for_so_many_slots_are_named():
    chance = random.Random(3)

    def made(start: float, at_once: int) -> Planted:
        took = chance.expovariate(5.0)
        return took, [node("model", 0.0, took)]

    found = verdict(run(made, count=40, slots=32))
    assert found["bound"] == "input"
    assert found["advice"][0]["gain"] > 1.2


def test_few_tasks_that_all_begin_and_end_together_are_named():
    rows = run(lambda start, at_once: (0.3, [node("model", 0.0, 0.3)]), count=36, slots=32)
    for each in rows[:32]:  # each sees the others, which end at the same moment
        each["meta"]["timing"]["in_flight"] = 32
    assert verdict(rows)["bound"] == "input"


def connected(name: str, places: int) -> Made:
    """Calls that wait for one of so many connections."""
    free = [0.0] * places

    def made(start: float, at_once: int) -> Planted:
        begun = max(heapq.heappop(free), start)
        heapq.heappush(free, begun + 0.2)
        took = begun + 0.2 - start
        wait = node("connection", 0.0, begun - start, **{name: float(places)})
        return took, [node("model", 0.0, took, [wait] if begun > start else [], first_byte_us=199_000)]

    return made


@pytest.mark.parametrize("name", ["limit", "limit_per_host"])
def test_a_wait_for_connections_is_the_collectors_own_limit_and_not_the_models(name: str):
    found = verdict(run(connected(name, 4), slots=60, count=300))
    key = f"global_aiohttp_connector_{name}"
    assert (found["bound"], found["what"], found["part"]) == (
        "connection_limit",
        f"the connection limit ({key})",
        "connection",
    )
    assert f"waiting for one of 4 connections ({key})" in found["evidence"][0]
    assert [(each["override"], each["gain"]) for each in found["advice"]] == [(f"+{key}=60", None)]
    assert "the model was not asked more than 4 at once" in found["paragraph"]


def test_what_is_gained_by_twice_the_connections_is_predicted_where_the_model_was_seen_to_bear_the_load():
    chance = random.Random(1)
    free = [0.0] * 8

    def made(start: float, at_once: int) -> Planted:
        begun = max(heapq.heappop(free), start)
        took = begun + 0.15 + 0.1 * chance.random() - start
        heapq.heappush(free, start + took)
        wait = node("connection", 0.0, begun - start, limit_per_host=8.0)
        return took, [node("model", 0.0, took, [wait] if begun > start else [])]

    found = verdict(run(made, slots=16, count=300))
    assert found["bound"] == "connection_limit"
    assert found["advice"][0]["gain"] == pytest.approx(2.0, rel=0.1)


def test_a_wait_for_connections_is_named_without_a_gain_where_the_model_got_slower_with_more_at_once():
    chance = random.Random(1)
    free = [0.0] * 8

    def made(start: float, at_once: int) -> Planted:
        begun = max(heapq.heappop(free), start)
        others = sum(end > begun for end in free)
        took = begun + 0.02 * (1 + others) * (0.5 + chance.random()) - start
        heapq.heappush(free, start + took)
        wait = node("connection", 0.0, begun - start, limit_per_host=8.0)
        return took, [node("model", 0.0, took, [wait] if begun > start else [])]

    found = verdict(run(made, slots=16, count=300))
    assert (found["bound"], found["advice"][0]["gain"]) == ("connection_limit", None)
    assert "the model got slower with more at once" in found["paragraph"]


def test_one_rollout_that_ran_alone_at_the_end_is_named_with_its_key():
    slow = iter([False] * 50 + [True] + [False] * 100)

    def made(start: float, at_once: int) -> Planted:
        took = 6.0 if next(slow) else 0.1
        return took, [node("model", 0.0, took)]

    found = verdict(run(made, count=100, slots=8))
    assert (found["bound"], found["what"], found["part"]) == ("straggler", "one slow rollout", "model")
    assert found["evidence"][0] == "50/0 took 6 s, where no other took more than 100 ms"
    assert found["advice"][0]["predicted_rollouts_per_s"] == pytest.approx(100 / 1.4, rel=0.1)  # with one slot fewer


def test_a_slow_input_is_named():
    read = 0.0

    def made(start: float, at_once: int) -> Planted:
        return 0.1, [node("model", 0.0, 0.1)]

    rows = []
    for number in range(100):
        read += 0.05
        total, tree = made(read, 1)
        rows.append(row(number, START + read + total, total, tree, 3, 16, {"read_s": 0.05}))
    found = verdict(rows)
    assert (found["bound"], found["what"]) == ("slow_input", "reading the tasks")
    assert found["advice"][0]["override"].startswith("+input_jsonl_fpath=")
    assert found["advice"][0]["gain"] > 3


@pytest.mark.parametrize("count", [1, FEWEST - 1])
def test_few_rollouts_tell_nothing(count: int):
    found = verdict(run(waiting(), count=count))
    assert (found["bound"], found["advice"]) == ("unknown", [])
    assert f"{count} rollout" in found["paragraph"]


def test_a_servers_busy_process_is_seen_and_more_of_them_advised():
    def tree(begun: float, end: float) -> list[Node]:
        inner = node("@math", 0.1, end - 0.1, pid=7, cpu_us=20_000)
        return [node("@agent", 0.0, end, [node("model", 0.0, 0.1), node("verify", 0.1, end - 0.1, [inner])], pid=1)]

    found = verdict(run(one_at_a_time(0.1, 0.02, tree)))
    assert (found["bound"], found["part"]) == ("verify_cpu", "verify")
    (advice,) = found["advice"]
    assert advice["override"] == "++math.resources_servers.math.num_workers=2"
    assert advice["gain"] is None  # nobody knows whether there are idle cores


def test_rows_without_a_tree_still_have_a_verdict():
    rows = run(waiting(), count=100)
    for each in rows:
        kept = ("queue_s", "model_s", "tools_s", "verify_s", "total_s", "model_calls")
        each["meta"]["timing"] = {name: each["meta"]["timing"][name] for name in kept}
    found = verdict(rows)
    assert (found["bound"], found["part"]) == ("concurrency", "model")
    assert found["evidence"][0].endswith("of 16 slots were in use")


def test_failed_attempts_use_slots_but_are_not_throughput():
    rows = run(waiting(), count=200)
    profile = Profile()
    for number, each in enumerate(rows):
        if number % 2:
            profile.add(RowFacts({**each["meta"], "error": "x"}, failed=True))
        else:
            profile.add(RowFacts(each))
    found = profile.report(config())["verdict"]
    assert found["evidence"][1].startswith("an attempt, kept or failed, took 2")
    assert " ms (100 of 200 failed), 2" in found["evidence"][1]
    assert found["rollouts_per_s"] == pytest.approx(8 / 0.21, rel=0.1)
    assert found["advice"][0]["predicted_rollouts_per_s"] == pytest.approx(
        found["rollouts_per_s"] * found["advice"][0]["gain"]
    )


def test_the_names_of_the_blocks_come_from_the_agent_that_ran():
    two = config({"max_concurrent": 3})
    two["other_model"] = {"responses_api_models": {"scripted_model": {}}}
    two["other"] = {"responses_api_agents": {"simple_agent": {"model_server": {"type": "x", "name": "other_model"}}}}
    assert find_blocks(two, "agent") == Blocks(
        Block(
            "policy_model",
            "responses_api_models",
            "openai_model",
            two["policy_model"]["responses_api_models"]["openai_model"],
        ),
        Block("math", "resources_servers", "math", {}),
    )
    assert find_blocks(two, "other").model == Block("other_model", "responses_api_models", "scripted_model", {})
    assert find_blocks(two, None) == find_blocks(None, "agent") == find_blocks({}, None) == UNKNOWN


def test_the_time_of_calls_by_load_tells_a_queue_a_shared_server_and_a_free_one_apart():
    free = [TimedCall(n * 0.01, n * 0.01 + 0.1 * (1 + n % 2)) for n in range(100)]
    effect = load_effect([free])
    assert effect is not None
    assert effect.saturated is not True
    assert load_effect([free[:3]]) is None
    steady = load_effect([[TimedCall(0.0, 1.0)] * 50])
    assert steady is not None
    assert (steady.growth, steady.saturated) == (None, None)


def test_longer_answers_are_not_taken_for_a_slower_model():
    calls, chance = [], random.Random(1)
    for number in range(200):
        tokens = chance.choice([10, 100])
        burst = number % 40 < 20
        start = (number // 40) * 10.0 + (number % 40) * (0.001 if burst else 0.4)
        calls.append(TimedCall(start, start + tokens * 0.003, float(tokens)))
    effect = load_effect([calls])
    assert effect is not None
    assert effect.saturated is False


def test_an_override_is_one_that_the_command_line_takes():
    block = Block("m", "responses_api_models", "openai_model")
    texts = [block.override("max_concurrent", 8), block.override("openai_base_url", "[http://a:1/v1,http://b:2/v1]")]
    problems: list[str] = []
    changes, _ = parse([*texts, "+num_samples_in_parallel=8", "+defer_verification=true"], problems)
    assert (problems, [(change.path[-1], change.value) for change in changes]) == (
        [],
        [
            ("max_concurrent", 8),
            ("openai_base_url", ["http://a:1/v1", "http://b:2/v1"]),
            ("num_samples_in_parallel", 8),
            ("defer_verification", True),
        ],
    )
