"""Requests and tokens per minute: the arithmetic by a simulated clock, and the waits of real rollouts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import velodrome as velo
from tests.http.coroutines import in_a_loop
from velodrome.errors import InputError
from velodrome.rates import (
    TOKENS,
    CallRates,
    counted,
    counted_below,
    counting,
    limited,
    repeated,
)
from velodrome.timing.spans import root

Json = dict[str, Any]


class SimulatedClock:
    """Time passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def rates_of(requests: int | None, tokens: int | None, clock: SimulatedClock) -> CallRates:
    return CallRates(requests, tokens, clock=lambda: clock.now, sleep=clock.sleep)


async def waited(rates: CallRates, clock: SimulatedClock, used: int | None) -> tuple[float, list[str]]:
    """How long one call that uses so many tokens waits, and for what."""
    began = clock.now
    with root("rollout", lambda: clock.now) as spans:
        rates.correct(await rates.take(), used)
    return round(clock.now - began, 6), [each.name for each in spans.children]


@in_a_loop
async def test_both_limits_hold_and_the_one_that_waits_is_named():
    clock = SimulatedClock()
    rates = rates_of(60, 6000, clock)
    assert await waited(rates, clock, 700) == (0.0, [])
    assert await waited(rates, clock, 700) == (7.0, ["limit:tokens_per_minute"])
    clock.now += 60
    assert [await waited(rates, clock, 1) for _ in range(2)][1] == (1.0, ["limit:requests_per_minute"])


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


@in_a_loop
async def test_what_counts_as_a_call():
    """A repeated call counts again; a call inside another does not; a model between is not one of its own."""

    clock, took = SimulatedClock(), []
    with limited(rates_of(1, None, clock)):
        await counting(Plain().respond)({})
        for respond in (Asked().respond, Plain().respond, Between().respond):
            began = clock.now
            await counting(respond)({})
            took.append(round((clock.now - began) / 60, 6))
    assert took == [2.0, 1.0, 1.0]


@in_a_loop
async def test_a_call_is_charged_what_it_used_and_a_failure_nothing():
    clock = SimulatedClock()
    rates = rates_of(None, 6000, clock)  # 100 a second, of which 50 are saved up
    waits = [(await waited(rates, clock, used))[0] for used in (10, None, 10, 150, 10)]
    # a call is expected to cost 10; after the fourth there is a debt of 120, and 17 are expected of the next
    assert waits == [0.0, 0.0, 0.0, 0.0, 1.37]


def test_a_wait_is_a_span_that_names_its_setting():
    async def run() -> Any:
        clock = SimulatedClock()
        with limited(rates_of(None, 600, clock)), root("rollout", lambda: clock.now) as spans:
            for _ in range(4):
                await counting(Plain().respond)({})
        return spans

    spans = asyncio.run(run())
    assert {(each.name, each.counts[TOKENS]) for each in spans.children} == {("limit:tokens_per_minute", 600)}


class Judged(velo.Environment):
    """A judge is a model too."""

    judge: velo.Model

    async def verify(self, task: Json, response: Any) -> Json:
        await self.judge.ask("good?")  # type: ignore[attr-defined]
        return {"reward": 1.0}


async def short_answer(request: Json) -> Json:
    return {"output": [{"type": "message", "content": "a"}], "usage": {"input_tokens": 1, "output_tokens": 1}}


def waits(run: Any) -> set[str]:
    """The parts of rollouts in which this run waited for its rate of requests."""
    parts = [node for row in run.rollouts for node in row["meta"]["timing"]["tree"]]
    return {part[0] for part in parts if "'limit:requests_per_minute'" in str(part)}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_rollouts_wait_for_the_limit_of_the_run(tmp_path: Path, workers: int):
    agent = velo.SimpleAgent(model=short_answer, environment=Judged(judge=Own()))
    tasks = [f"task {number}" for number in range(8)]
    run = asyncio.run(velo.collect(tasks, agent, requests_per_minute=600, workers=workers, parallel=64, progress=False))
    assert run.kept == 8
    assert waits(run) == {"model", "verify"}


class Own:
    """A model class of the user's, which knows nothing of limits."""

    async def respond(self, request: Json) -> Json:
        return await short_answer(request)

    async def aclose(self) -> None: ...


def test_answers_that_are_replayed_are_no_calls(tmp_path: Path):
    own = velo.recorded(Own())
    agent = velo.SimpleAgent(model=own, environment=Judged(judge=own))
    tasks, store = [f"task {number}" for number in range(70)], tmp_path / "answers"
    recorded = asyncio.run(velo.collect(tasks, agent, model_cache=store, progress=False))
    replayed = asyncio.run(
        velo.collect(tasks, agent, model_cache=store, model_cache_mode="replay", requests_per_minute=60, progress=False)
    )
    assert (recorded.kept, replayed.kept) == (70, 70)
    assert not waits(replayed)


def test_an_agent_that_runs_as_a_server_is_refused(tmp_path: Path):
    config = tmp_path / "agent.yaml"
    config.write_text("solo:\n  responses_api_agents:\n    simple_agent:\n      url: http://127.0.0.1:9\n")
    with pytest.raises(InputError, match="tokens_per_minute: solo is a server, which calls its model itself"):
        asyncio.run(velo.collect(["a"], "solo", config=config, tokens_per_minute=1000, progress=False))
