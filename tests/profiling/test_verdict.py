"""Every bound, planted: rows as a run would have written them that is bound by one thing, and what is said of them.

What the advice really gives is measured in benchmarks/verdicts.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from math import exp
from typing import Any, NamedTuple

import pytest

from tests.support.planted_runs import (
    START,
    Json,
    Made,
    Node,
    Planted,
    always,
    call,
    config,
    connected,
    node,
    one_at_a_time,
    profiled,
    queueing_model,
    row,
    run,
    sharing_model,
    verdict,
    waiting,
)
from velodrome.profiling.case import ms
from velodrome.profiling.config_blocks import UNKNOWN, Block, Blocks, find_blocks
from velodrome.profiling.profile import Profile
from velodrome.profiling.sample import FEWEST
from velodrome.records.facts import RowFacts
from velodrome.settings.overrides import parse

MORE, AUTO, DEFER = "+num_samples_in_parallel=32", "+num_samples_in_parallel=auto", "+defer_verification=true"
MODEL = "++policy_model.responses_api_models.openai_model."
MATH, JUDGED = "++math.resources_servers.math.", "++math.resources_servers.math_with_judge."
SECOND_SERVER = f"{MODEL}openai_base_url=[http://127.0.0.1:8000/v1,<the second server>/v1]"
LOCAL = config(model_implementation="local_model")
TWICE = (1.8, 2.2)
Gain = tuple[float, float] | None  # within these; None: nothing is predicted


class Case(NamedTuple):
    """A run, what bounds it, the part it shows in, each advice with its gain, and what is said."""

    rows: Callable[[], list[Json]]
    bound: str
    part: str | None = None
    advice: dict[str, Gain] | None = None  # by override
    says: tuple[str, ...] = ()
    not_says: tuple[str, ...] = ()
    of: Json | None = None


def planted(made: Made, **options: Any) -> Callable[[], list[Json]]:
    return lambda: run(made, **options)


def in_tools(*below: Node) -> Made:
    return always(0.5, node("model", 0.0, 0.1), node("tools", 0.1, 0.4, list(below)))


def in_verify(*below: Node) -> Made:
    return always(0.5, node("model", 0.0, 0.1), node("verify", 0.1, 0.4, list(below)))


def burning(name: str, seconds: float) -> Made:
    """Code in a thread that needs the interpreter."""

    def tree(begun: float, end: float) -> list[Node]:
        burned = node(name, 0.1, end - 0.1, cpu_us=seconds * 1e6)
        inner = burned if name == "verify" else node("tools", 0.1, end - 0.1, [burned])
        return [node("model", 0.0, 0.1), inner]

    return one_at_a_time(0.1, seconds, tree)


def holding(name: str) -> Made:
    """Async code that keeps the event loop for 20 ms."""

    def tree(begun: float, end: float) -> list[Node]:
        held = node(name, begun, 0.02, held_us=20_000)
        return [node("model", 0.0, begun), held if name == "verify" else node("tools", begun, 0.02, [held])]

    return one_at_a_time(0.2, 0.02, tree)


def on_a_server(begun: float, end: float) -> list[Node]:
    inner = node("@math", 0.1, end - 0.1, pid=7, cpu_us=20_000)
    return [node("@agent", 0.0, end, [node("model", 0.0, 0.1), node("verify", 0.1, end - 0.1, [inner])], pid=1)]


def writing(seconds: float) -> Made:
    """A disk that takes so long for a line, while nothing else runs."""
    free = 0.0

    def took(start: float, at_once: int) -> float:
        nonlocal free
        answered = max(start + 0.1, free)
        free = answered + seconds
        return answered - start

    return call(took)


def one_after_the_other() -> list[Json]:
    tree = [node("model", 0.0, 0.1)]
    return [row(n, START + 0.1 * (n + 1), 0.1, tree, 4, 4, {"cpu": 0.3}) for n in range(40)]


def slowly_read() -> list[Json]:
    tree = [node("model", 0.0, 0.1)]
    return [row(n, START + 0.05 * (n + 1) + 0.1, 0.1, tree, 3, 16, {"read_s": 0.05}) for n in range(100)]


def with_a_straggler() -> list[Json]:
    slow = iter([False] * 50 + [True] + [False] * 100)
    return run(call(lambda start, at_once: 6.0 if next(slow) else 0.1), count=100, slots=8)


def few_that_vary() -> list[Json]:
    chance = random.Random(3)
    return run(call(lambda start, at_once: chance.expovariate(5.0)), count=40, slots=32)


def without_trees() -> list[Json]:
    rows = run(waiting(), count=100)
    kept = ("queue_s", "model_s", "tools_s", "verify_s", "total_s", "model_calls")
    for each in rows:
        each["meta"]["timing"] = {name: each["meta"]["timing"][name] for name in kept}
    return rows


def varied(low_s: float, high_s: float) -> Callable[[int], float]:
    chance = random.Random(1)
    return lambda others: low_s + (high_s - low_s) * chance.random()


def slowing() -> Callable[[int], float]:
    chance = random.Random(1)
    return lambda others: 0.02 * (1 + others) * (0.5 + chance.random())


def by_load(extra_s: float) -> Made:
    return call(lambda start, at_once: 0.05 + extra_s * at_once / 16)


def noisy() -> Made:
    chance = random.Random(8)
    return call(lambda start, at_once: 0.01 * at_once * exp(chance.gauss(0.0, 1.2)))


def long_tailed() -> Made:
    chance = random.Random(6)
    return call(lambda start, at_once: 0.01 + chance.expovariate(4.0))


def refused(share: float) -> Made:
    """A provider that refuses so many, whatever the load."""
    chance = random.Random(4)

    def made(start: float, at_once: int) -> Planted:
        retries, begun, took_s = 0, 0.0, chance.uniform(0.3, 0.4)
        waits = []
        while chance.random() < share:
            waits.append(node("backoff", begun, 1.0))
            retries, begun = retries + 1, begun + 1.0
        counts = {"retries": retries, "rate_limited": retries} if retries else {}
        return begun + took_s, [node("model", 0.0, begun + took_s, waits, tokens=50, **counts)]

    return made


def even(start: float, at_once: int) -> float:
    return 0.2 * (0.9 + 0.2 * random.Random(start).random())


def growing() -> list[Json]:
    """auto: 4 at once at first, twice as many every so often."""
    rows: list[Json] = []
    for limit in (4, 8, 16, 32, 64):
        begun = rows[-1]["meta"]["finished_at"] - START if rows else 0.0
        for each in run(call(even, tokens=50), count=60, slots=limit):
            each["meta"]["finished_at"] += begun
            each["meta"]["timing"]["in_flight"] = limit
            rows.append(each)
    return rows


def served(math: float | None, agent: float | None = None, pids: int = 1) -> Made:
    """Behind servers whose processes report how much of a core they need."""

    def counts(pct: float | None, pid: int) -> Json:
        return {"pid": pid} | ({} if pct is None else {"busy_pct": pct})

    def made(start: float, at_once: int) -> Planted:
        took = even(start, at_once)
        inner = node("@math", 0.16, 0.04, **counts(math, 7 + int(start * 1e4) % pids))
        tree = [node("model", 0.0, took, tokens=50), node("verify", took, 0.04, [inner])]
        return took + 0.04, [node("@agent", 0.0, took + 0.04, tree, **counts(agent, 3))]

    return made


def busy_model_server(start: float, at_once: int) -> Planted:
    took = even(start, at_once)
    return took, [node("model", 0.0, took, [node("@policy_model", 0.0, took, pid=5, busy_pct=190)], tokens=50)]


QUEUED = always(0.4, node("model", 0.0, 0.4, [node("queue", 0.0, 0.3)]))
LIMITED = always(0.4, node("model", 0.0, 0.4, [node("limit:model", 0.0, 0.3, max_concurrent=4)]))
SANDBOXED = node("run_code", 0.1, 0.4, [node("limit:sandbox", 0.1, 0.3, sandbox_slots=3)])
LIBRARY = in_verify(node("library", 0.1, 0.4, [node("queue", 0.1, 0.35)]))
QUICK = always(0.005, node("model", 0.0, 0.005))
BEHIND_HTTP = always(0.016, node("model", 0.0, 0.015, first_byte_us=14_000))
PER_HOST = "global_aiohttp_connector_limit_per_host"

CASES = {
    "too low a limit": Case(
        planted(waiting(), count=400),
        "concurrency",
        "model",
        {MORE: TWICE},  # twice what the model was seen to bear, and no more
        ("bounded by the concurrency limit: ", "of 16 slots were in use"),
    ),
    "a load that does not vary": Case(
        planted(always(0.2, node("model", 0.0, 0.2)), count=160),
        "concurrency",
        "model",
        {AUTO: None},
        ("not known: the load on the model did not vary",),
        ("predicted",),
    ),
    "rows without a tree": Case(without_trees, "concurrency", "model", None, ("of 16 slots were in use",)),
    "the model's own limit": Case(
        planted(QUEUED), "model_limit", "queue", {f"{MODEL}max_concurrent=8": TWICE}, of=config({"max_concurrent": 4})
    ),
    "a limit that its span names": Case(planted(LIMITED), "model_limit", "queue", {f"{MODEL}max_concurrent=8": TWICE}),
    "any limiter": Case(
        planted(in_tools(node("tool:python", 0.1, 0.4, [SANDBOXED]))),
        "sandbox_limit",
        "queue",
        {f"{MATH}sandbox_slots=6": TWICE},
        ("one of 3 places (sandbox_slots)",),
    ),
    "a limiter without a setting": Case(
        planted(always(0.4, node("verify", 0.0, 0.4, [node("limit:oracle", 0.0, 0.3, places=4)]))),
        "oracle_limit",
        "queue",
        {"": TWICE},
        ('the limit of Limiter("oracle", 4) from 4 to 8',),
        ("max_concurrent", "(places"),
    ),
    "too few threads": Case(
        planted(in_tools(node("tool:look", 0.1, 0.4, [node("queue", 0.1, 0.35)]))),
        "threads",
        "queue",
        {f"{MATH}threads=4": TWICE},
        ("from 2 to 4",),
        of=config(environment={"threads": 2}),
    ),
    "the judge's limit": Case(
        planted(in_verify(node("judge", 0.1, 0.4, [node("queue", 0.1, 0.3)]))),
        "judge_limit",
        "queue",
        {f"{JUDGED}judge_max_concurrent=6": TWICE},
        ("from 3 to 6",),
        of=config(environment={"judge_max_concurrent": 3}, implementation="math_with_judge"),
    ),
    "a limit per minute of the run": Case(
        planted(
            always(0.5, node("model", 0.0, 0.5, [node("limit:requests_per_minute", 0.0, 0.3, requests_per_minute=60)]))
        ),
        "requests_per_minute_limit",
        "queue",
        {"+requests_per_minute=120": None},
        (
            "waiting for requests_per_minute=60",
            "model calls were made in ",
            "What that gives is not known: what the provider allows",
        ),
        ("one of 60 places", "per minute"),
    ),
    "connections per host": Case(
        planted(connected("limit_per_host", 4, lambda others: 0.2), slots=60, count=300),
        "connection_limit",
        "connection",
        {f"+{PER_HOST}=60": None},
        (f"waiting for one of 4 connections ({PER_HOST})", "the model was not asked more than 4 at once"),
    ),
    "half the connections, and a model that bears more": Case(
        planted(connected("limit_per_host", 8, varied(0.15, 0.25)), count=300),
        "connection_limit",
        "connection",
        {f"+{PER_HOST}=16": TWICE},
    ),
    "half the connections, and a model that gets slower": Case(
        planted(connected("limit_per_host", 8, slowing()), count=300),
        "connection_limit",
        "connection",
        {f"+{PER_HOST}=16": None},
        ("the model got slower with more at once",),
    ),
    "a model with a queue": Case(planted(queueing_model(4, 0.05)), "model", "model", {SECOND_SERVER: (1.7, 2.3)}),
    "a model that shares its strength": Case(lambda: sharing_model(4.0), "model", "model", {SECOND_SERVER: (1.7, 2.3)}),
    "a model with strength to spare": Case(
        lambda: sharing_model(100.0), "concurrency", says=("took no longer with 16 calls in flight",)
    ),
    "a model that gets somewhat slower": Case(
        planted(by_load(0.045), stagger_s=0.02),
        "concurrency",
        "model",
        {AUTO: None},
        ("with few others in flight and ", "the model got slower with more at once"),
    ),
    "answers that a late event loop reads late": Case(
        planted(by_load(0.045), stagger_s=0.02, lag_s=0.05), "concurrency", says=("the model took no longer",)
    ),
    "times that say little": Case(
        planted(noisy(), stagger_s=0.02),
        "concurrency",
        "model",
        {AUTO: None},
        ("What that gives is not known: whether the model gets slower with more at once.",),
    ),
    "a model that computes here": Case(
        planted(waiting(), cpu=0.98), "model", "model", {"": None}, (), ("num_samples_in_parallel",), LOCAL
    ),
    "a model here that keeps the event loop": Case(one_after_the_other, "model", "model", {"": None}, of={}),
    "a local model with little to do": Case(planted(waiting(0.2, 0.3), slots=1, count=40), "concurrency", of=LOCAL),
    "a local model that uses all cores of its server": Case(planted(busy_model_server), "model", of=LOCAL),
    "a model's server that needs all of its process": Case(planted(busy_model_server), "server"),
    "CPU of the collector itself, its model behind HTTP": Case(
        planted(BEHIND_HTTP, count=2000, cpu=0.97), "event_loop", "other", {"+num_workers=2": None}, of={}
    ),
    "no sample of the CPU": Case(
        planted(QUICK, count=3000, cpu=None, lag_s=None), "concurrency", not_says=("CPU", "Python")
    ),
    "verification that burns CPU": Case(
        planted(burning("verify", 0.02), cpu=1.0, lag_s=0.03),
        "verify_cpu",
        "verify",
        {DEFER: None, f"{MATH}executor=process": None},  # nobody knows whether there are idle cores
        ("bounded by verification CPU",),
    ),
    "a tool that burns CPU": Case(
        planted(burning("tool:solve", 0.03), cpu=1.0, lag_s=0.03),
        "tool",
        "tool:solve",
        {f"{MATH}executor=process": None},
        ("bounded by the tool solve",),
    ),
    "threads that burn more than one core": Case(
        planted(always(0.3, node("model", 0.0, 0.2), node("verify", 0.2, 0.1, cpu_us=100_000)), cpu=5.5), "concurrency"
    ),
    "verification that burns CPU on a server": Case(
        planted(one_at_a_time(0.1, 0.02, on_a_server)), "verify_cpu", "verify", {f"{MATH}num_workers=2": None}
    ),
    "a verify that keeps the event loop and waits": Case(
        planted(holding("verify"), lag_s=0.15),
        "event_loop",
        "verify",
        {DEFER: None, "": None},
        ("it waits without await",),
    ),
    "a verify that keeps the event loop and computes": Case(
        planted(holding("verify"), lag_s=0.15, cpu=0.98),
        "event_loop",
        "verify",
        {DEFER: None},
        ("it computes without await",),
    ),
    "a tool that keeps the event loop": Case(
        planted(holding("tool:look"), lag_s=0.15),
        "event_loop",
        "tool:look",
        {"": None},
        ("write the tool look as def, not async def: then it runs in a thread",),
    ),
    "a slow disk": Case(
        planted(writing(0.02), write_s=0.02, lag_s=0.1),
        "disk",
        "write",
        {"+output_jsonl_fpath=<a faster disk>/rollouts.jsonl": None},
    ),
    "a slow input": Case(
        slowly_read,
        "slow_input",
        None,
        {"+input_jsonl_fpath=<a faster disk>/tasks.jsonl": None},
        ("bounded by reading the tasks",),
    ),
    "429s most of the time, that came at one load": Case(
        planted(always(0.8, node("model", 0.0, 0.8, [node("backoff", 0.0, 0.7)])), slots=32, rate_limited=3, retries=3),
        "rate_limit",
        "backoff",
        {"": None},
        ("75% of the calls were answered with 429; ", "not known: whether the provider answers more"),
        ("more of them", "num_samples_in_parallel"),
    ),
    "429s that do not depend on the load": Case(
        planted(refused(0.15), slots=32, count=600),
        "concurrency",
        "model",
        {"+num_samples_in_parallel=64": (1.5, 2.2)},
        (),
        ("rate limits", "429"),
    ),
    "a few 429s, too few to tell": Case(
        planted(refused(0.004), slots=32, count=600),
        "concurrency",
        "model",
        {AUTO: None},
        ("not known: whether more calls at once would be answered with 429.",),
    ),
    "too few tasks": Case(few_that_vary, "input", None, {"+num_repeats=16": (1.2, 9.0)}),
    "one rollout that ran alone": Case(
        with_a_straggler,
        "straggler",
        "model",
        {"": (4.0, 5.0)},
        ("50/0 took 6.0 s, where no other took more than 100 ms",),
    ),
    "a limit that was still growing": Case(
        growing,
        "concurrency",
        None,
        {"+num_samples_in_parallel=64": (1.5, 9.0)},
        ("the limit was still changing: auto went from 4 to 64",),
    ),
    "as many places as slots": Case(
        planted(call(even, tokens=50)),
        "unknown",
        None,
        {},
        ("more rollouts at once need more places (max_concurrent), too: 15.",),
        of=config({"max_concurrent": 16}),
    ),
    "a server's process that needs a core": Case(
        planted(served(95)),
        "server",
        "model",
        {f"{MATH}num_workers=2": None},
        ("the process of math needed 95% of a core", "give it to velo run."),
    ),
    "a server of two processes": Case(
        planted(served(85, pids=2)),
        "server",
        None,
        {f"{MATH}num_workers=4": None},
        ("each of the 2 processes of math needed 85% of a core",),
    ),
    "a server that is half busy": Case(
        planted(served(60)), "concurrency", None, {AUTO: None}, ("a server is half busy already",)
    ),
    "few rollouts": Case(
        planted(waiting(), count=FEWEST - 1), "unknown", None, {}, (f"{FEWEST - 1} rollouts are too few",)
    ),
    "a run that is over at once": Case(
        planted(QUICK, count=600, stagger_s=0.0), "unknown", None, {}, ("the run took 0.2 s: too short to tell.",)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_bounds_a_run_is_named_with_what_to_change(name: str):
    case = CASES[name]
    result = verdict(case.rows(), case.of)
    assert result["bound"] == case.bound, result["paragraph"]
    assert case.part in (None, result["part"])
    if case.advice is not None:
        gains = {each["override"]: each["gain"] for each in result["advice"]}
        assert list(gains) == list(case.advice)
        for override, expected in case.advice.items():
            gain = gains[override]
            assert (gain is None) if expected is None else expected[0] <= gain <= expected[1], (override, gain)
    said = "; ".join([result["paragraph"], *result["evidence"], *(each["change"] for each in result["advice"])])
    assert [text for text in case.says if text not in said] == [], said
    assert [text for text in case.not_says if text in said] == [], said


def test_a_prediction_is_the_observed_throughput_times_the_gain():
    result = verdict(run(waiting(), count=400))
    assert result["rollouts_per_s"] == pytest.approx(16 / 0.21, rel=0.06)
    for advice in result["advice"][:1]:
        assert advice["predicted_rollouts_per_s"] == pytest.approx(advice["gain"] * result["rollouts_per_s"])


def in_workers(name: str) -> Made:
    wait = node("limit:workers", 0.1, 0.35, worker_processes=2)
    return always(0.5, node("model", 0.0, 0.1), node(name, 0.1, 0.4, [wait], worker_cpu_us=50_000))


@pytest.mark.parametrize(
    ("cores", "made", "processes", "bound", "override"),
    [
        (3, LIBRARY, 2, "verify_cpu", f"{JUDGED}verify_processes=3"),
        (64, LIBRARY, 2, "verify_cpu", f"{JUDGED}verify_processes=4"),
        (1, LIBRARY, None, "verify_cpu", DEFER),
        (4, in_workers("verify"), 2, "verify_cpu", f"{JUDGED}worker_processes=4"),
        (2, in_workers("verify"), 2, "verify_cpu", DEFER),
        (2, in_workers("tool:solve"), 2, "tool", ""),
    ],
)
def test_no_more_processes_are_advised_than_cores_and_nothing_is_promised(
    monkeypatch: pytest.MonkeyPatch, cores: int, made: Made, processes: int | None, bound: str, override: str
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    settings = {"verify_processes": processes} if processes and made is LIBRARY else {}
    result = verdict(run(made, slots=8 if cores == 1 else 16), config(None, settings, "math_with_judge"))
    advice = [(each["override"], each["gain"]) for each in result["advice"]]
    assert (result["bound"], advice) == (bound, [(override, None)])
    setting = "verify_processes" if made is LIBRARY else "worker_processes"
    waited_for = "one of 2 places" if processes else "the one place"
    assert f"350 ms of it waiting for {waited_for} ({setting})" in result["evidence"][0]


@pytest.mark.parametrize(
    ("made", "part", "doing"),
    [
        (refused(0.04), "model", "waiting for the model"),
        (connected("limit_per_host", 4, varied(0.1, 0.9)), "connection", "waiting for one of 4 connections"),
    ],
)
def test_the_times_of_the_evidence_are_those_of_the_tree(made: Made, part: str, doing: str):
    report = profiled(run(made, slots=24, count=1500), config())
    tree = {line["part"]: line["mean_ms"] / 1e3 for line in report["tree"]}
    said = f"a rollout took {ms(tree['total'])}, {ms(tree[part])} of it {doing}"
    assert said in report["verdict"]["paragraph"]


def test_failed_attempts_use_slots_but_are_not_throughput():
    profile = Profile()
    for place, each in enumerate(run(waiting(), count=200)):
        profile.add(RowFacts({**each["meta"], "error": "x"}, failed=True) if place % 2 else RowFacts(each))
    result = profile.report(config())["verdict"]
    assert " ms (100 of 200 failed), 2" in result["evidence"][1]
    assert result["rollouts_per_s"] == pytest.approx(8 / 0.21, rel=0.1)


def test_the_names_of_the_blocks_come_from_the_agent_that_ran():
    two = config({"max_concurrent": 3})
    two["other_model"] = {"responses_api_models": {"scripted_model": {}}}
    two["other"] = {"responses_api_agents": {"simple_agent": {"model_server": {"type": "x", "name": "other_model"}}}}
    settings = two["policy_model"]["responses_api_models"]["openai_model"]
    model = Block("policy_model", "responses_api_models", "openai_model", settings)
    assert find_blocks(two, "agent") == Blocks(model, Block("math", "resources_servers", "math", {}))
    assert find_blocks(two, "other").model == Block("other_model", "responses_api_models", "scripted_model", {})
    assert find_blocks(two, None) == find_blocks(None, "agent") == find_blocks({}, None) == UNKNOWN


def test_an_override_is_one_that_the_command_line_takes():
    problems: list[str] = []
    overrides = {each for case in CASES.values() for each in case.advice or {} if each and "<" not in each}
    changes, _ = parse([*sorted(overrides), f"{MODEL}openai_base_url=[http://a:1/v1,http://b:2/v1]"], problems)
    assert (problems, len(changes)) == ([], len(overrides) + 1)
    assert changes[-1].value == ["http://a:1/v1", "http://b:2/v1"]
