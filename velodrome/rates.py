"""Limits on the model calls of a run: so many requests, so many tokens per minute.

A bucket per limit spreads the calls over time. What a call costs in tokens is known when it is answered; until then it
is charged what calls cost of late. Worker processes divide the limits evenly, each has its own buckets. A model's
`respond` is `counted`; a stream is not, since collections do not stream. A wait is a span `limit:requests_per_minute`
or `limit:tokens_per_minute`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeVar, cast

from velodrome.records.turns import total_tokens
from velodrome.timing.spans import put, span

Json = dict[str, Any]

REQUESTS, TOKENS = "requests_per_minute", "tokens_per_minute"
_MINUTE_S = 60.0
_BURST_S = 0.5  # that may be saved up while nothing is called: a minute has at most 60.5 seconds' worth
_LOOK_S = 0.25  # how soon a call that waits looks again: an answer may have cost less than expected
_LATEST = 0.05  # the share of the last call in what the next is expected to cost


class Bucket:
    """Fills steadily up to half a second's worth, or `least`. More can be taken: a debt that later calls wait for."""

    def __init__(self, per_minute: float, least: float = 0.0) -> None:
        self.per_s = per_minute / _MINUTE_S
        self.most = self.level = max(self.per_s * _BURST_S, least)
        self._at: float | None = None

    def wait_s(self, now: float, amount: float) -> float:
        """How long until so much can be taken; a larger amount than fits waits for a full bucket."""
        if self._at is not None:
            self.level = min(self.most, self.level + (now - self._at) * self.per_s)
        self._at = now
        return max(0.0, (min(amount, self.most) - self.level) / self.per_s)


class CallRates:
    """The limits of a run, of which each of its `workers` has an equal share. None is no limit."""

    def __init__(
        self,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        *,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limits = {REQUESTS: requests_per_minute, TOKENS: tokens_per_minute}
        self._requests = Bucket(requests_per_minute / workers, 1.0) if requests_per_minute else None
        self._tokens = Bucket(tokens_per_minute / workers) if tokens_per_minute else None
        self._cost: float | None = None  # of a call in tokens, as far as is known
        self._clock, self._sleep = clock, sleep
        self._turn = asyncio.Lock()

    async def take(self) -> float:
        """Wait until one call may be made, first come, first served. Returns the tokens that it is charged for now."""
        if self._turn.locked() or self._missing() is not None:
            with span(f"limit:{REQUESTS if self._requests else TOKENS}") as wait:
                async with self._turn:
                    while (missing := self._missing()) is not None:
                        wait_s, name = missing
                        wait.name = f"limit:{name}"
                        await self._sleep(min(wait_s, _LOOK_S))
                name = wait.name.removeprefix("limit:")
                put(name, self._limits[name] or 0)
        charge = self._expected()
        if self._requests is not None:
            self._requests.level -= 1
        if self._tokens is not None:
            self._tokens.level -= charge
        return charge

    def _expected(self) -> float:
        """What a call costs in tokens; at first a second's worth, so that few are made before it is known."""
        if self._tokens is None:
            return 0.0
        return self._tokens.per_s if self._cost is None else self._cost

    def _missing(self) -> tuple[float, str] | None:
        """How long until the next call may be made, and for which limit; None if it may be made now."""
        now, longest_s, name = self._clock(), 1e-9, ""  # less is a rounding error of the clock
        for bucket, amount, limit in ((self._requests, 1.0, REQUESTS), (self._tokens, self._expected(), TOKENS)):
            if bucket is not None and (wait_s := bucket.wait_s(now, amount)) > longest_s:
                longest_s, name = wait_s, limit
        return (longest_s, name) if name else None

    def correct(self, charge: float, tokens: int | None) -> None:
        """A call that was charged for is over, and has used so many tokens; None if it failed."""
        if self._tokens is None:
            return
        self._tokens.level += charge - (tokens or 0)
        if tokens is not None:
            self._cost = tokens if self._cost is None else self._cost + _LATEST * (tokens - self._cost)


def make_rates(requests_per_minute: int | None, tokens_per_minute: int | None, *, workers: int = 1) -> CallRates | None:
    """The limits of a run for one of its workers; None if it has none."""
    if requests_per_minute is None and tokens_per_minute is None:
        return None
    return CallRates(requests_per_minute, tokens_per_minute, workers=workers)


_rates: ContextVar[CallRates | None] = ContextVar("velodrome_rates", default=None)
_calling: ContextVar[_LimitedCall | None] = ContextVar("velodrome_model_call", default=None)

Respond = Callable[[Json], Awaitable[Any]]
_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Any]])


@contextmanager
def limited(rates: CallRates | None) -> Iterator[None]:
    """Model calls of this task, and of those it starts, wait for these limits."""
    token = _rates.set(rates)
    try:
        yield
    finally:
        _rates.reset(token)


def counted(respond: _Method) -> _Method:
    """A model's `respond` whose calls wait for the limits of the run."""

    @wraps(respond)
    def count(self: Any, request: Json) -> Coroutine[Any, Any, Any]:
        return respond(self, request) if _rates.get() is None else _through(partial(respond, self), request)

    count.counts_calls = True  # type: ignore[attr-defined]
    return cast(_Method, count)


def counted_below(respond: _Method) -> _Method:
    """A `respond` that asks another model, which is counted where it is called."""
    respond.counts_calls = True  # type: ignore[attr-defined]
    return respond


def counting(respond: Respond) -> Respond:
    """The `respond` of any model, made to wait for the limits of the run."""
    if _rates.get() is None or hasattr(respond, "counts_calls"):
        return respond
    return partial(_through, respond)


class _LimitedCall:
    """One call under way, and the tokens that it is charged for until it is answered."""

    def __init__(self, rates: CallRates, charge: float) -> None:
        self.rates = rates
        self.charge = charge

    async def repeat(self) -> None:
        """Wait until it may be sent again."""
        self.rates.correct(self.charge, None)
        self.charge = 0.0  # while it waits
        self.charge = await self.rates.take()


async def _through(respond: Respond, request: Json) -> Any:
    """Make one call within the limits. A call inside another is a part of that one."""
    rates = _rates.get()
    if rates is None or _calling.get() is not None:
        return await respond(request)
    call = _LimitedCall(rates, await rates.take())
    token = _calling.set(call)
    try:
        response = await respond(request)
    except Exception:
        rates.correct(call.charge, None)
        raise
    finally:
        _calling.reset(token)
    rates.correct(call.charge, _tokens(response))  # not if it was cancelled: it may have been answered
    return response


async def repeated() -> None:
    """Wait before the current call is sent again, which counts as another call."""
    call = _calling.get()
    if call is not None:
        await call.repeat()


def _tokens(response: Any) -> int | None:
    """The tokens of an answer; None if it reports none."""
    usage = response.get("usage") if isinstance(response, dict) else getattr(response, "usage", None)
    return total_tokens(usage) if isinstance(usage, dict) else None
