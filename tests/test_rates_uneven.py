"""CallRates with uneven calls, in two workers, in simulated time.

A minute has at most 2% more than the limit, and with enough demand at least 98% of it. Tokens are known only when a
call is answered: what the calls that run at once cost together must not vary by more than that.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest

import velodrome as velo
from tests.http.coroutines import in_a_loop
from velodrome.rates import CallRates, counting, limited, repeated
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

    def __init__(self, *limits: int | None, mean: float, failing: float) -> None:
        self.requests: list[tuple[float, float]] = []
        self.tokens: list[tuple[float, float]] = []
        self._limits, self._mean, self._failing = limits, mean, failing
        self._chance = random.Random(1)

    async def run(self, loop: Loop) -> None:
        self._loop = loop
        workers = [CallRates(*self._limits, workers=2, clock=self._loop.time) for _ in range(2)]
        await asyncio.gather(*(self._calls(rates) for rates in workers for _ in range(60)))

    async def _calls(self, rates: CallRates) -> None:
        with limited(rates):
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


def work(*limits: int | None, failing: float) -> Work:
    made = Work(*limits, mean=400, failing=failing)
    in_simulated_time(made.run)
    return made


@pytest.mark.parametrize("failing", [0.0, 0.2])
def test_tokens_of_a_minute_are_within_two_percent(failing: float):
    made = work(None, 600_000, failing=failing)
    assert max(minutes(made.tokens, 0, 150)) <= 1.02 * 600_000
    assert min(minutes(made.tokens, 10, 150)) >= 0.98 * 600_000


@pytest.mark.parametrize("failing", [0.0, 0.2])
def test_requests_of_a_minute_are_within_two_percent(failing: float):
    made = work(1200, None, failing=failing)
    assert max(minutes(made.requests, 0, 150)) <= 1.02 * 1200
    assert min(minutes(made.requests, 1, 150)) >= 0.98 * 1200


class Seen(CallRates):
    """Keeps how calls ended."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.taken = 0
        self.ended: list[int | None] = []

    async def take(self) -> float:
        self.taken += 1
        return 10.0

    def correct(self, charge: float, tokens: int | None) -> None:
        self.ended.append(tokens)


@in_a_loop
async def test_a_call_that_is_sent_again_counts_again():
    seen = Seen()
    faults = [{"kind": "status", "status": 503, "times": 1}]
    async with ScriptedServer(ScriptedModel(answers=["a b"], faults=faults)) as server, Scope():
        with limited(seen):
            model = velo.OpenAI(server.url, "m", backoff_s=0.0, endpoint="responses")
            await model.respond({"input": "a"})
    assert (seen.taken, seen.ended) == (2, [None, 3])
