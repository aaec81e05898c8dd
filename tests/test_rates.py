"""Requests and tokens per minute: the arithmetic by a simulated clock, and the waits of real rollouts."""

from __future__ import annotations

import asyncio
import heapq
import random
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from velodrome.errors import InputError
from velodrome.rates import (
    REQUESTS,
    TOKENS,
    LeasedRates,
    Lending,
    Permit,
    RateLimit,
    RunRates,
    counted,
    counted_below,
    counting,
    limited,
    repeated,
)
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.scope import Scope
from velodrome.serving.scripted import ScriptedServer
from velodrome.timing.spans import root

Json = dict[str, Any]


def minutes(events: list[tuple[float, float]]) -> Iterator[float]:
    """What every minute has that begins with an event, but those that the end of the events cuts off."""
    times = [at for at, _ in events]
    sums = [0.0, *accumulate(amount for _, amount in events)]
    for first, at in enumerate(times):
        if at + 60 > times[-1]:
            return
        yield sums[bisect_left(times, at + 60)] - sums[first]


def calls_of(limit: RateLimit, *, seconds: float, callers: int, latency_s: float, cost: Any) -> list[tuple[float, int]]:
    """So many callers, one call after another, who wait in turn: when each call was let through, and its tokens."""
    order, chance = count(), random.Random(1)
    flying: list[tuple[float, int, float, Permit]] = []
    calls: list[tuple[float, int]] = []
    waiting, now, next_try = callers, 0.0, 0.0
    while now < seconds:
        if waiting and (not flying or next_try <= flying[0][0]):
            now = max(now, next_try)
            wait_s, permit = limit.take(now)
            next_try = now + wait_s
            if not wait_s:
                waiting -= 1
                heapq.heappush(flying, (now + latency_s * chance.uniform(0.5, 1.5), next(order), now, permit))
        else:
            now, _, began, permit = heapq.heappop(flying)
            tokens = cost(now, chance)
            limit.settle(permit, tokens)
            calls.append((began, tokens))
            waiting += 1
    return sorted(calls)


@pytest.mark.parametrize("per_minute", [1, 7, 60, 500, 30_000])
def test_no_minute_has_more_requests_than_allowed_and_none_many_fewer(per_minute: int):
    limit, now, taken = RateLimit(per_minute, None), 1000.0, []
    while len(taken) < 4 * per_minute + 4:
        wait_s, _ = limit.take(now)
        if wait_s:
            now += wait_s
        else:
            taken.append((now, 1.0))
    counts = list(minutes(taken))
    assert max(counts) <= 1.02 * per_minute
    assert min(counts) >= 0.98 * per_minute


@pytest.mark.parametrize("latency_s", [0.2, 5.0, 20.0])
@pytest.mark.parametrize("mean", [40, 400, 1500])
def test_no_minute_has_more_tokens_than_allowed_and_none_many_fewer(latency_s: float, mean: int):
    """What a call costs is known seconds later, so the first minute may have fewer, and all vary as the costs do."""
    calls = calls_of(
        RateLimit(None, 600_000),
        seconds=300,
        callers=1000,
        latency_s=latency_s,
        cost=lambda now, chance: chance.randint(3 * mean // 4, 5 * mean // 4),
    )
    calls = [each for each in calls if each[0] < 260]  # those after it are not all answered
    assert max(minutes(calls)) <= 1.02 * 600_000
    if mean * 1000 / latency_s * 60 > 1_200_000:  # else so many callers cannot use it up
        assert min(minutes([each for each in calls if each[0] > 5 + 3 * latency_s])) >= 0.98 * 600_000


def test_calls_that_get_dearer_stay_within_the_limit_on_the_whole():
    per_minute = 60_000
    calls = calls_of(
        RateLimit(None, per_minute),
        seconds=600,
        callers=50,
        latency_s=2.0,
        cost=lambda now, chance: 100 if now < 300 else 800,
    )
    assert sum(tokens for _, tokens in calls) == pytest.approx(600 * per_minute / 60, rel=0.02)


def test_both_limits_hold_and_the_one_that_waits_is_named():
    limit = RateLimit(60, 6000)
    _, permit = limit.take(0.0)
    assert limit.take(0.0) == (1.0, Permit(0.0, REQUESTS))
    limit.settle(permit, 700)
    wait_s, refused = limit.take(0.0)
    assert (round(wait_s, 6), refused.waited_for) == (7.0, TOKENS)


class SimulatedClock:
    """Time passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def test_workers_together_keep_the_limit_in_every_minute():
    """Two workers of many callers, over frames as they go between processes."""
    per_minute, clock, taken = 3000, SimulatedClock(), []

    async def run() -> None:
        rates = RunRates(RateLimit(per_minute, None), clock=lambda: clock.now, sleep=clock.sleep)

        def worker() -> LeasedRates:
            def send(permits: list[Permit]) -> None:
                leased.grant([Permit(*each) for each in orjson.loads(orjson.dumps(list(map(tuple, permits))))])

            lending = Lending(rates, send)
            leased = LeasedRates(rates.limits, lending.ask, rates.settle)
            return leased

        async def call(leased: LeasedRates) -> None:
            while clock.now < 200:
                leased.settle(await leased.take(), 5)
                taken.append((clock.now, 1.0))

        workers = [worker(), worker()]
        await asyncio.gather(*(call(each) for each in workers for _ in range(20)))

    asyncio.run(run())
    counts = list(minutes(taken))
    assert max(counts) <= 1.02 * per_minute
    assert min(counts) >= 0.98 * per_minute


def test_a_worker_that_ends_takes_no_more_permits():
    async def run() -> list[Permit]:
        clock, sent = SimulatedClock(), []
        rates = RunRates(RateLimit(60, None), clock=lambda: clock.now, sleep=clock.sleep)
        lending = Lending(rates, sent.extend)
        lending.ask(1)
        await asyncio.sleep(0)
        lending.ask(1000)
        lending.close()
        await asyncio.sleep(0)
        assert rates.take_at_once() is None
        await clock.sleep(1.0)
        assert rates.take_at_once() is not None
        return sent

    assert len(asyncio.run(run())) == 1


class Asked:
    """A model that counts its calls itself, and asks again inside."""

    @counted
    async def respond(self, request: Json) -> Json:
        await repeated()
        return await Plain().respond({})


class Plain:
    async def respond(self, request: Json) -> Json:
        return {"output": [], "usage": {"input_tokens": 3, "output_tokens": 4}}


class Between:
    @counted_below
    async def respond(self, request: Json) -> Json:
        return await counting(Plain().respond)(request)


def test_what_counts_as_a_call():
    """A repeated call counts again; a call inside another does not; a model between is not one of its own."""

    async def run() -> list[float]:
        limit, clock, left = RateLimit(6000, None), SimulatedClock(), []
        with limited(RunRates(limit, clock=lambda: clock.now, sleep=clock.sleep)):
            for respond in (Asked().respond, Plain().respond, Between().respond):
                before = limit._requests.level  # type: ignore[union-attr]
                await counting(respond)({})
                left.append(before - limit._requests.level)  # type: ignore[union-attr]
        return left

    assert asyncio.run(run()) == [2.0, 1.0, 1.0]


def test_a_call_is_charged_what_it_used_and_a_failure_nothing():
    limit = RateLimit(None, 6000)
    now = 0.0
    for _ in range(20):
        _, permit = limit.take(now)
        limit.settle(permit, 10)
        now += 1
    waits = []
    for used in (10, 200, None, 10):
        wait_s, permit = limit.take(now)
        waits.append(wait_s)
        if wait_s:
            _, permit = limit.take(now := now + wait_s)
        limit.settle(permit, used)
    # 190 were left of 200; then there is a debt of 10, and the next is expected to cost as much as the mean does now
    assert waits == pytest.approx([0.0, 0.0, (10 + 10 + 190 / 22) / 100, 0.0])


def test_a_wait_is_a_span_that_names_its_setting():
    async def run() -> Any:
        clock = SimulatedClock()
        rates = RunRates(RateLimit(None, 600), clock=lambda: clock.now, sleep=clock.sleep)
        with limited(rates), root("rollout", lambda: clock.now) as spans:
            for _ in range(4):
                await counting(Plain().respond)({})
        return spans

    spans = asyncio.run(run())
    assert {(each.name, each.counts[TOKENS]) for each in spans.children} == {("limit:tokens_per_minute", 600)}


class Anything(velo.Environment):
    def verify(self, task: Json, response: Any) -> Json:
        return {"reward": 1.0}


async def short_answer(request: Json) -> Json:
    return {"output": [{"type": "message", "content": "a"}], "usage": {"input_tokens": 1, "output_tokens": 1}}


def waits(run: Any) -> list[dict[str, float]]:
    """The counts of the waits for a rate in all rollouts of a run."""
    trees = [row["meta"]["timing"]["tree"] for row in run.rollouts]
    return [
        wait[3]
        for tree in trees
        for node in tree
        for wait in node[4]
        if wait[0].startswith("limit:requests_per_minute")
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_rollouts_wait_for_the_limit_of_the_run(tmp_path: Path, workers: int):
    agent = velo.SimpleAgent(model=short_answer, environment=Anything())
    tasks = [f"task {number}" for number in range(130)]
    run = asyncio.run(
        velo.collect(tasks, agent, requests_per_minute=6000, workers=workers, parallel=64, progress=False)
    )
    assert run.kept == 130
    assert {REQUESTS: 6000} in waits(run)


def test_two_collections_at_once_have_limits_of_their_own():
    agent = velo.SimpleAgent(model=short_answer, environment=Anything())
    tasks = [f"task {number}" for number in range(130)]

    async def both() -> Any:
        limited_run = velo.collect(tasks, agent, requests_per_minute=6000, parallel=64, progress=False)
        return await asyncio.gather(limited_run, velo.collect(tasks, agent, parallel=64, progress=False))

    first, second = asyncio.run(both())
    assert waits(first)
    assert not waits(second)


class Own:
    """A model class of the user's, which knows nothing of limits."""

    async def respond(self, request: Json) -> Json:
        return await short_answer(request)

    async def aclose(self) -> None: ...


def test_a_call_that_is_sent_again_counts_again():
    async def run() -> int:
        limit = RateLimit(6000, None)
        faults = [{"kind": "status", "status": 503, "times": 2}]
        async with ScriptedServer(ScriptedModel(answers=["a"], faults=faults)) as server, Scope():
            clock = SimulatedClock()
            with limited(RunRates(limit, clock=lambda: clock.now, sleep=clock.sleep)):
                model = velo.OpenAI(server.url, "m", backoff_s=0.0, endpoint="responses")
                await model.respond({"input": "a"})
        return round(50 - limit._requests.level)  # type: ignore[union-attr]

    assert asyncio.run(run()) == 3


def test_answers_that_are_replayed_are_no_calls(tmp_path: Path):
    agent = velo.SimpleAgent(model=Own(), environment=Anything())
    tasks, store = [f"task {number}" for number in range(130)], tmp_path / "answers"
    recorded = asyncio.run(velo.collect(tasks, agent, model_cache=store, progress=False))
    replayed = asyncio.run(
        velo.collect(tasks, agent, model_cache=store, model_cache_mode="replay", requests_per_minute=60, progress=False)
    )
    assert (recorded.kept, replayed.kept) == (130, 130)
    assert not waits(replayed)


def test_a_judge_is_a_model_too():
    class Judged(velo.Environment):
        judge: velo.Model

        async def verify(self, task: Json, response: Any) -> Json:
            await self.judge.ask("good?")  # type: ignore[attr-defined]
            return {"reward": 1.0}

    agent = velo.SimpleAgent(model=short_answer, environment=Judged(judge=Own()))
    run = asyncio.run(
        velo.collect([f"{n}" for n in range(80)], agent, requests_per_minute=6000, parallel=64, progress=False)
    )
    nodes = [node for row in run.rollouts for node in row["meta"]["timing"]["tree"] if node[0] == "verify"]
    assert "limit:requests_per_minute" in orjson.dumps(nodes).decode()


def test_an_agent_that_runs_as_a_server_is_refused(tmp_path: Path):
    config = tmp_path / "agent.yaml"
    config.write_text("solo:\n  responses_api_agents:\n    simple_agent:\n      url: http://127.0.0.1:9\n")
    with pytest.raises(InputError, match="tokens_per_minute: solo is a server, which calls its model itself"):
        asyncio.run(velo.collect(["a"], "solo", config=config, tokens_per_minute=1000, progress=False))
