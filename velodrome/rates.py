"""Limits on the model calls of a run: so many requests, so many tokens per minute, for all that call models together.

`RateLimit` is the bookkeeping. `RunRates` waits for it, where the run is; `LeasedRates` waits in a worker, which gets
permits from there in blocks. A model's `respond` is `counted`, its `stream` is a `counted_stream`. A wait is a span
`limit:requests_per_minute` or `limit:tokens_per_minute`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Protocol, TypeVar, cast

from velodrome.rate_limit import PATIENCE_S, REQUESTS, TOKENS, Permit, RateLimit
from velodrome.timing.spans import put, span

__all__ = ["REQUESTS", "TOKENS", "LeasedRates", "Lending", "Permit", "RateLimit", "RunRates", "limited", "run_rates"]
__all__ += ["counted", "counted_below", "counted_stream", "counting", "repeated"]

Json = dict[str, Any]


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
                await self._sleep(min(wait_s, PATIENCE_S))

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
        self._asking = 0

    def take_at_once(self) -> Permit | None:
        return None

    async def take(self) -> Permit:
        place: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._asking += 1
        if self._asking == 1:  # with those that ask at the same moment
            asyncio.get_running_loop().call_soon(self._ask_for_all)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give_back(place.result())
            raise

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
                self._give_back(permit)

    def _give_back(self, permit: Permit) -> None:
        """Who asked for it was cancelled. Kept for later, it would be a call too many in a later minute."""
        self._used(permit._replace(unused=True), None)

    def settle(self, permit: Permit, tokens: int | None) -> None:
        if self.limits[TOKENS] is not None:
            self._used(permit, tokens)


_rates: ContextVar[CallRates | None] = ContextVar("velodrome_rates", default=None)
_calling: ContextVar[_LimitedCall | None] = ContextVar("velodrome_model_call", default=None)

Respond = Callable[[Json], Awaitable[Json]]
Stream = Callable[[Json], AsyncGenerator[Json, None]]
_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Json]])
_Stream = TypeVar("_Stream", bound=Callable[..., AsyncGenerator[Json, None]])


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


def counted_stream(stream: _Stream) -> _Stream:
    """The same for a model's `stream`."""

    @wraps(stream)
    def count(self: Any, request: Json) -> AsyncGenerator[Json, None]:
        if _rates.get() is None:
            return stream(self, request)
        return _stream_through(partial(stream, self), request)

    return cast(_Stream, count)


def counting(respond: Respond) -> Respond:
    """For those who call a model that may be anybody's: its `respond`, which waits for the limits of the run."""
    if _rates.get() is None or hasattr(respond, "counts_calls"):
        return respond
    return partial(_through, respond)


class _LimitedCall:
    """One call under way, with the permit that it was sent with."""

    def __init__(self, rates: CallRates, permit: Permit) -> None:
        self.rates = rates
        self.permit = permit

    @classmethod
    async def begin(cls) -> _LimitedCall | None:
        """Wait for a permit. None without a limit, and for a call inside another, which is part of that."""
        rates = _rates.get()
        if rates is None or _calling.get() is not None:
            return None
        return cls(rates, rates.take_at_once() or await _wait(rates))

    @contextmanager
    def under_way(self) -> Iterator[None]:
        token = _calling.set(self)
        try:
            yield
        finally:
            _calling.reset(token)


async def _through(respond: Respond, request: Json) -> Json:
    """One call."""
    call = await _LimitedCall.begin()
    if call is None:
        return await respond(request)
    try:
        with call.under_way():
            response = await respond(request)
    except Exception:
        call.rates.settle(call.permit, None)
        raise
    call.rates.settle(call.permit, _tokens(response))  # not if it was cancelled: it may have been answered
    return response


async def _stream_through(stream: Stream, request: Json) -> AsyncGenerator[Json, None]:
    """One call whose answer is streamed. What it used is in its last event; if it is given up, the mean counts."""
    call, begun, tokens = await _LimitedCall.begin(), False, None
    async with aclosing(stream(request)) as events:
        try:
            while True:
                with call.under_way() if call is not None else nullcontext():  # not while the reader has the event
                    event = await anext(events, None)
                if event is None:
                    return
                begun, tokens = True, _tokens(event.get("response"))
                yield event
        finally:
            if call is not None and (tokens is not None or not begun):
                call.rates.settle(call.permit, tokens)


async def repeated() -> None:
    """Wait as for another call: the one that is made here is sent again, and what it costs is used from now on."""
    call = _calling.get()
    if call is not None:
        call.rates.settle(call.permit, None)
        call.permit = Permit()  # while it waits it has none
        call.permit = call.rates.take_at_once() or await _wait(call.rates)


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
