"""Rates with uneven calls, among workers, in simulated time: the real waits, leases and permits.

A minute has at most 2% more than the limit, and with enough demand at least 98% of it. Tokens are known only when a
call is answered: what the calls that run at once cost together must not vary by more than that.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest

import velodrome as velo
from velodrome.rates import (
    TOKENS,
    LeasedRates,
    Lending,
    Permit,
    RateLimit,
    RunRates,
    counted_stream,
    counting,
    limited,
    repeated,
)
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.scope import Scope
from velodrome.serving.scripted import ScriptedServer

Json = dict[str, Any]
Loop = asyncio.AbstractEventLoop


class Skipping(selectors.DefaultSelector):
    """Waits for nothing: the time passes at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def in_simulated_time(main: Callable[[Loop], Awaitable[Any]]) -> Any:
    selector = Skipping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


def minutes(events: list[tuple[float, float]], begin: float, end: float) -> Iterator[float]:
    """What each minute has that begins with an event between these times."""
    times = [at for at, _ in events]
    sums = [0.0, *accumulate(amount for _, amount in events)]
    for first, at in enumerate(times):
        if begin <= at <= end - 60:
            yield sums[bisect_left(times, at + 60)] - sums[first]


class Work:
    """Two workers whose callers ask all the time; `requests` and `tokens` are what a provider counts, and when."""

    SECONDS = 150.0

    def __init__(self, limit: RateLimit, mean: float, *, failing: float, late_s: float, dies_s: float | None) -> None:
        self.limit = limit
        self.requests: list[tuple[float, float]] = []
        self.tokens: list[tuple[float, float]] = []
        self._mean, self._failing, self._late_s, self._dies_s = mean, failing, late_s, dies_s
        self._chance = random.Random(1)

    async def run(self, loop: Loop) -> None:
        self._loop = loop
        rates = RunRates(self.limit, clock=loop.time)
        callers = [caller for number in range(2) for caller in self._worker(rates, number)]
        await asyncio.gather(*callers, return_exceptions=True)

    def _worker(self, rates: RunRates, number: int) -> list[asyncio.Task[None]]:
        """What goes between the processes takes a millisecond; a worker that is killed sends nothing more."""
        alive = True

        def later(call: Callable[..., None], *args: Any) -> None:
            if alive:
                self._loop.call_later(0.001, call, *args)

        def kill() -> None:
            nonlocal alive
            alive = False
            lending.close()
            for caller in callers:
                caller.cancel()

        lending = Lending(rates, lambda permits: later(leased.grant, [Permit(*each) for each in permits]))
        leased = LeasedRates(
            rates.limits, lambda count: later(lending.ask, count), lambda *used: later(rates.settle, *used)
        )
        callers = [asyncio.ensure_future(self._calls(leased, number * self._late_s)) for _ in range(60)]
        if self._dies_s is not None and number == 0:
            self._loop.call_later(self._dies_s, kill)
        return callers

    async def _calls(self, leased: LeasedRates, begin_s: float) -> None:
        await asyncio.sleep(begin_s)
        with limited(leased):
            while self._loop.time() < self.SECONDS:
                await counting(self._respond)({})

    async def _respond(self, request: Json) -> Json:
        """Answers cost from a 25th of the mean to twice as much, one to fifty."""
        took_s = self._chance.uniform(0.25, 0.75)
        self.requests.append((self._loop.time(), 1.0))
        while self._chance.random() < self._failing:
            await asyncio.sleep(0.2 * took_s)
            await repeated()
            self.requests.append((self._loop.time(), 1.0))
        tokens = round(self._chance.uniform(2 / 51, 100 / 51) * self._mean)
        self.tokens.append((self._loop.time(), tokens))
        await asyncio.sleep(took_s)
        return {"usage": {"total_tokens": tokens}}


CASES: dict[str, Json] = {
    "uneven": {},
    "sent again": {"failing": 0.2},
    "a worker starts late": {"late_s": 40.0},
    "a worker is killed": {"dies_s": 70.0},
}


def work(limit: RateLimit, mean: float, case: str) -> Work:
    made = Work(limit, mean, **{"failing": 0.0, "late_s": 0.0, "dies_s": None, **CASES[case]})
    in_simulated_time(made.run)
    return made


@pytest.mark.parametrize("case", CASES)
def test_tokens_of_a_minute_are_within_two_percent(case: str):
    made = work(RateLimit(None, 600_000), 400, case)
    assert max(minutes(made.tokens, 0, 150)) <= 1.02 * 600_000
    assert min(minutes(made.tokens, 10, 150)) >= 0.98 * 600_000


@pytest.mark.parametrize("case", CASES)
def test_requests_of_a_minute_are_within_two_percent(case: str):
    made = work(RateLimit(1200, None), 400, case)
    assert max(minutes(made.requests, 0, 150)) <= 1.02 * 1200
    assert min(minutes(made.requests, 1, 150)) >= 0.98 * 1200


def test_calls_that_are_more_than_two_percent_of_a_minute_stay_within_one_call():
    """The largest is 3% of the minute: nobody knows which is next."""
    made = work(RateLimit(None, 60_000), 1000, "uneven")
    largest = 100 / 51 * 1000
    assert max(minutes(made.tokens, 0, 150)) <= 1.02 * 60_000 + largest
    assert min(minutes(made.tokens, 30, 150)) >= 0.98 * 60_000 - 3 * largest


def test_a_permit_of_a_cancelled_call_is_given_back():
    async def run(loop: Loop) -> list[tuple[Permit, int | None]]:
        used: list[tuple[Permit, int | None]] = []
        leased = LeasedRates({TOKENS: None}, lambda count: None, lambda *each: used.append(each))
        callers = [asyncio.ensure_future(leased.take()) for _ in range(2)]
        await asyncio.sleep(0)
        callers[0].cancel()
        await asyncio.sleep(0)
        leased.grant([Permit(number=1)])
        leased.grant([Permit(number=2)])
        await asyncio.gather(*callers, return_exceptions=True)
        return used

    assert in_simulated_time(run) == [(Permit(number=2, unused=True), None)]


def test_a_permit_that_is_given_back_can_be_taken_again():
    limit = RateLimit(60, None)
    _, permit = limit.take(0.0)
    limit.settle(permit._replace(unused=True), None)
    assert limit.take(0.0)[0] == 0.0


class Spelling:
    """A model that streams."""

    @counted_stream
    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        yield {"type": "response.created", "response": {"id": "a"}}
        yield {"type": "response.completed", "response": {"usage": {"input_tokens": 300, "output_tokens": 700}}}


class Seen:
    """Rates that keep what was settled."""

    def __init__(self) -> None:
        self.limits = {TOKENS: 6000}
        self.taken = 0
        self.settled: list[int | None] = []

    def take_at_once(self) -> Permit:
        self.taken += 1
        return Permit(10.0)

    async def take(self) -> Permit:
        raise AssertionError

    def settle(self, permit: Permit, tokens: int | None) -> None:
        self.settled.append(tokens)


def test_a_streamed_answer_is_charged_what_its_last_event_says():
    async def run() -> Seen:
        seen = Seen()
        with limited(seen):
            async for _ in Spelling().stream({}):
                assert [each async for each in Spelling().stream({})]  # a call between events is one of its own
        return seen

    seen = asyncio.run(run())
    assert (seen.taken, seen.settled) == (3, [1000, 1000, 1000])


def test_a_stream_that_is_given_up_keeps_its_permit():
    async def run() -> Seen:
        seen = Seen()
        with limited(seen):
            events = Spelling().stream({})
            await anext(events)
            await events.aclose()
        return seen

    assert asyncio.run(run()).settled == []


def test_the_streams_of_a_server_are_counted():
    async def run() -> Seen:
        seen = Seen()
        faults = [{"kind": "status", "status": 503, "times": 1}]
        async with ScriptedServer(ScriptedModel(answers=["a b"], faults=faults)) as server, Scope():
            with limited(seen):
                model = velo.OpenAI(server.url, "m", backoff_s=0.0, endpoint="responses")
                assert [each async for each in model.stream({"input": "a"})]
        return seen

    seen = asyncio.run(run())
    assert (seen.taken, seen.settled) == (2, [None, 3])
