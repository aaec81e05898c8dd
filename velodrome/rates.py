"""Limits on the model calls of a run: so many requests, so many tokens per minute, for all that call models together.

`RateLimit` is the bookkeeping: arithmetic on a clock that it is given. `RunRates` waits for it, where the run is;
`LeasedRates` waits in a worker, which gets permits from there in blocks. A model's `respond` is `counted`.

What a call costs in tokens is known when it is answered. Until then it counts as much as calls did of late; the
difference is settled afterwards. A wait is a span `limit:requests_per_minute` or `limit:tokens_per_minute`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from velodrome.timing.spans import put, span

Json = dict[str, Any]

REQUESTS, TOKENS = "requests_per_minute", "tokens_per_minute"
_MINUTE_S = 60.0
_BURST_S = 0.5  # that may be saved up while nothing is asked: a minute has at most 60.5 seconds' worth
_ENOUGH = 20  # calls whose cost is known, before their mean is used
_WEIGHT = 0.005  # of the last call in what the next one is expected to cost


class Permit(NamedTuple):
    """Leave for one call: the tokens that were counted for it, and which limit it waited for, if any.

    `guessed`: too little was known of what calls cost.
    """

    tokens: float = 0.0
    waited_for: str = ""
    guessed: bool = False


class Bucket:
    """Fills steadily, up to `_BURST_S`; what is taken beyond that is a debt that the next ones wait for."""

    def __init__(self, per_minute: float, least: float) -> None:
        self.per_s = per_minute / _MINUTE_S
        self._most = max(self.per_s * _BURST_S, least)
        self.level = self._most
        self._at: float | None = None

    def wait_s(self, now: float, amount: float) -> float:
        """How long until so much can be taken; a larger amount than fits waits for a full bucket."""
        if self._at is not None:
            self.level = min(self._most, self.level + (now - self._at) * self.per_s)
        self._at = now
        return max(0.0, (min(amount, self._most) - self.level) / self.per_s)


class RateLimit:
    """Requests and tokens of a run, by the clock of the caller. None is no limit."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self.limits = {REQUESTS: requests_per_minute, TOKENS: tokens_per_minute}
        self._requests = None if requests_per_minute is None else Bucket(requests_per_minute, 1.0)
        self._tokens = None if tokens_per_minute is None else Bucket(tokens_per_minute, 0.0)
        self._known = 0  # calls whose cost is known
        self._mean = self._largest = 0.0

    @property
    def _cost(self) -> float:
        """What a call is expected to cost: at first much, so that few are let through before it is known."""
        if self._known >= _ENOUGH or self._tokens is None:
            return self._mean
        return self._largest if self._known else self._tokens.per_s

    def take(self, now: float) -> tuple[float, Permit]:
        """A permit for one call; or how long to wait before asking again, and for which limit."""
        wait_s, why, cost = 0.0, "", self._cost
        for bucket, amount, name in ((self._requests, 1.0, REQUESTS), (self._tokens, cost, TOKENS)):
            if bucket is not None and (least_s := bucket.wait_s(now, amount)) > wait_s:
                wait_s, why = least_s, name
        if wait_s > 1e-9:  # else a rounding error of the clock
            return wait_s, Permit(0.0, why)
        if self._requests is not None:
            self._requests.level -= 1
        if self._tokens is not None:
            self._tokens.level -= cost
        return 0.0, Permit(cost, guessed=self._known < _ENOUGH)

    def settle(self, permit: Permit, tokens: int | None) -> None:
        """The call of this permit has used so many tokens; None if it failed, or was one more try."""
        if self._tokens is not None:
            left = permit.tokens - (tokens or 0)
            self._tokens.level += min(left, 0.0) if permit.guessed else left  # a guess leaves no savings to spend
            if tokens is not None:
                self._known += 1
                self._mean += max(_WEIGHT, 1 / self._known) * (tokens - self._mean)
                self._largest = max(self._largest, tokens)


class CallRates(Protocol):
    """Where calls wait for their permits."""

    @property
    def limits(self) -> Mapping[str, int | None]:
        """Calls and tokens per minute, by the names of the settings."""
        ...

    def take_at_once(self) -> Permit | None:
        """A permit, if there is one without waiting."""
        ...

    async def take(self) -> Permit:
        """A permit, in turn."""
        ...

    def settle(self, permit: Permit, tokens: int | None) -> None:
        """The call is over, and has used so many tokens."""
        ...


class RunRates:
    """The limits of a run, in its process. First come, first served."""

    def __init__(
        self,
        limit: RateLimit,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.limits = limit.limits
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._turn = asyncio.Lock()

    def take_at_once(self) -> Permit | None:
        if self._turn.locked():
            return None
        wait_s, permit = self._limit.take(self._clock())
        return None if wait_s else permit

    async def take(self) -> Permit:
        waited_for = ""
        async with self._turn:
            while True:
                wait_s, permit = self._limit.take(self._clock())
                if not wait_s:
                    return permit._replace(waited_for=waited_for)
                waited_for = permit.waited_for
                await self._sleep(wait_s)

    def settle(self, permit: Permit, tokens: int | None) -> None:
        self._limit.settle(permit, tokens)


class Lending:
    """The permits that a run gives to one worker, in blocks: as many as it has asked for and there are."""

    def __init__(self, rates: RunRates, send: Callable[[list[Permit]], None]) -> None:
        self._rates = rates
        self._send = send
        self._asked = 0
        self._task: asyncio.Task[None] | None = None

    def ask(self, count: int) -> None:
        """The worker asks for so many more."""
        self._asked += count
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._lend())

    async def _lend(self) -> None:
        while self._asked:
            permits = [await self._rates.take()]
            while len(permits) < self._asked and (permit := self._rates.take_at_once()) is not None:
                permits.append(permit)
            self._asked -= len(permits)
            self._send(permits)

    def close(self) -> None:
        """The worker has ended."""
        if self._task is not None:
            self._task.cancel()


class LeasedRates:
    """The same in a worker. `ask` asks the run for permits, which arrive by `grant`; `used` tells it what was used."""

    def __init__(
        self,
        limits: Mapping[str, int | None],
        ask: Callable[[int], None],
        used: Callable[[Permit, int | None], None],
    ) -> None:
        self.limits = limits
        self._ask = ask
        self._used = used
        self._waiting: deque[asyncio.Future[Permit]] = deque()
        self._spare: list[Permit] = []  # of calls that were cancelled
        self._asking = 0

    def take_at_once(self) -> Permit | None:
        return self._spare.pop() if self._spare else None

    async def take(self) -> Permit:
        place: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._asking += 1
        if self._asking == 1:  # with those that ask at the same moment
            asyncio.get_running_loop().call_soon(self._ask_for_all)
        return await place

    def _ask_for_all(self) -> None:
        count, self._asking = self._asking, 0
        self._ask(count)

    def grant(self, permits: list[Permit]) -> None:
        """The run has sent these."""
        for permit in permits:
            while self._waiting and self._waiting[0].done():
                self._waiting.popleft()
            if self._waiting:
                self._waiting.popleft().set_result(permit)
            else:
                self._spare.append(permit)

    def settle(self, permit: Permit, tokens: int | None) -> None:
        if self.limits[TOKENS] is not None:
            self._used(permit, tokens)


_rates: ContextVar[CallRates | None] = ContextVar("velodrome_rates", default=None)
_calling: ContextVar[bool] = ContextVar("velodrome_model_call", default=False)

Respond = Callable[[Json], Awaitable[Json]]
_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Json]])


@contextmanager
def limited(rates: CallRates | None) -> Iterator[None]:
    """Model calls of this task, and of those it starts, wait for these limits."""
    token = _rates.set(rates)
    try:
        yield
    finally:
        _rates.reset(token)


def run_rates() -> RunRates | None:
    """The limits of the run in whose process this is."""
    rates = _rates.get()
    return rates if isinstance(rates, RunRates) else None


def counted(respond: _Method) -> _Method:
    """A model's `respond` whose calls wait for the limits of the run."""

    @wraps(respond)
    async def count(self: Any, request: Json) -> Json:
        if _rates.get() is None:
            return await respond(self, request)
        return await _through(partial(respond, self), request)

    count.counts_calls = True  # type: ignore[attr-defined]
    return cast(_Method, count)


def counted_below(respond: _Method) -> _Method:
    """A `respond` that asks another model, which is counted where it is called."""
    respond.counts_calls = True  # type: ignore[attr-defined]
    return respond


def counting(respond: Respond) -> Respond:
    """For those who call a model that may be anybody's: its `respond`, which waits for the limits of the run."""
    if _rates.get() is None or hasattr(respond, "counts_calls"):
        return respond
    return partial(_through, respond)


async def _through(respond: Respond, request: Json) -> Json:
    """One call. One inside another is part of that."""
    rates = _rates.get()
    if rates is None or _calling.get():
        return await respond(request)
    permit, tokens = rates.take_at_once() or await _wait(rates), None
    token = _calling.set(True)
    try:
        response = await respond(request)
        tokens = _tokens(response)
        return response
    finally:
        _calling.reset(token)
        rates.settle(permit, tokens)


async def repeated() -> None:
    """Wait as for another call: the one that is made here is sent again."""
    rates = _rates.get()
    if rates is not None and _calling.get():
        rates.settle(rates.take_at_once() or await _wait(rates), None)


async def _wait(rates: CallRates) -> Permit:
    names = [name for name, value in rates.limits.items() if value is not None]
    with span(f"limit:{names[0]}") as wait:
        permit = await rates.take()
        name = permit.waited_for or names[0]
        wait.name = f"limit:{name}"
        put(name, rates.limits[name] or 0)
    return permit


def _tokens(response: Any) -> int | None:
    """What an answer says it used."""
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        return None
    total = usage.get("total_tokens")
    counts = (total,) if total else (usage.get("input_tokens"), usage.get("output_tokens"))
    return sum(each for each in counts if isinstance(each, int))
