"""Limits on the requests and the tokens per minute of a run's model calls.

A bucket per limit spreads the calls over time. The tokens of a call are known when it is answered; until then it is
charged the average of recent calls. Worker processes divide the limits evenly, each with its own buckets. A model's
`respond` is `counted`; a stream is not, because collections do not stream. A wait is a span `limit:requests_per_minute`
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
_BURST_S = 0.5  # unused seconds that a bucket may save: a minute has at most 60.5 seconds' worth
_RECHECK_S = 0.25  # a waiting call checks again after this time: an answer may have cost less than expected
_LAST_CALL_WEIGHT = 0.05  # of the last call in the expected cost of the next


class Bucket:
    """Fills steadily up to half a second's worth, or `least`. Its level may be negative: later calls wait for that."""

    def __init__(self, per_minute: float, least: float = 0.0) -> None:
        self.per_s = per_minute / _MINUTE_S
        self.capacity = self.level = max(self.per_s * _BURST_S, least)
        self._filled_at: float | None = None

    def wait_s(self, now: float, amount: float) -> float:
        """Seconds until the amount is available. An amount beyond the capacity waits for a full bucket."""
        if self._filled_at is not None:
            self.level = min(self.capacity, self.level + (now - self._filled_at) * self.per_s)
        self._filled_at = now
        return max(0.0, (min(amount, self.capacity) - self.level) / self.per_s)


class CallRates:
    """The limits of a run, divided evenly among its `workers`. None is no limit."""

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
        self._mean_cost: float | None = None  # of recent calls, in tokens
        self._clock, self._sleep = clock, sleep
        self._queue = asyncio.Lock()  # first come, first served

    async def take(self) -> float:
        """Wait until a call is allowed. Returns the tokens that it is charged for now."""
        if self._queue.locked() or self._next_wait() is not None:
            with span(f"limit:{REQUESTS if self._requests else TOKENS}") as wait:
                async with self._queue:
                    while (next_wait := self._next_wait()) is not None:
                        wait_s, name = next_wait
                        wait.name = f"limit:{name}"
                        await self._sleep(min(wait_s, _RECHECK_S))
                name = wait.name.removeprefix("limit:")
                put(name, self._limits[name] or 0)
        charge = self._expected_tokens()
        if self._requests is not None:
            self._requests.level -= 1
        if self._tokens is not None:
            self._tokens.level -= charge
        return charge

    def _expected_tokens(self) -> float:
        """The expected tokens of a call; at first one second's worth, so that few calls start with an unknown cost."""
        if self._tokens is None:
            return 0.0
        return self._tokens.per_s if self._mean_cost is None else self._mean_cost

    def _next_wait(self) -> tuple[float, str] | None:
        """Seconds until the next call is allowed, and its limit; None if it is allowed now."""
        now, longest_s, name = self._clock(), 1e-9, ""  # shorter waits are rounding errors
        for bucket, amount, limit in ((self._requests, 1.0, REQUESTS), (self._tokens, self._expected_tokens(), TOKENS)):
            if bucket is not None and (wait_s := bucket.wait_s(now, amount)) > longest_s:
                longest_s, name = wait_s, limit
        return (longest_s, name) if name else None

    def correct(self, charge: float, tokens: int | None) -> None:
        """Correct the charge of a finished call to the tokens that it used; None if it failed."""
        if self._tokens is None:
            return
        self._tokens.level += charge - (tokens or 0)
        if tokens is not None:
            mean = tokens if self._mean_cost is None else self._mean_cost
            self._mean_cost = mean + _LAST_CALL_WEIGHT * (tokens - mean)


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
    """Apply the limits to model calls of this asyncio task and of tasks that it starts."""
    token = _rates.set(rates)
    try:
        yield
    finally:
        _rates.reset(token)


def counted(respond: _Method) -> _Method:
    """A model's `respond` whose calls wait for the limits of the run."""

    @wraps(respond)
    def count(self: Any, request: Json) -> Coroutine[Any, Any, Any]:
        return respond(self, request) if _rates.get() is None else _call_within_limits(partial(respond, self), request)

    count.counts_calls = True  # type: ignore[attr-defined]
    return cast(_Method, count)


def counted_below(respond: _Method) -> _Method:
    """Mark a `respond` that calls another model: only that model's calls are counted."""
    respond.counts_calls = True  # type: ignore[attr-defined]
    return respond


def counting(respond: Respond) -> Respond:
    """The `respond` of any model, with waits for the limits of the run."""
    if _rates.get() is None or hasattr(respond, "counts_calls"):
        return respond
    return partial(_call_within_limits, respond)


class _LimitedCall:
    """A call in progress, and the tokens that it is charged for until it is answered."""

    def __init__(self, rates: CallRates, charge: float) -> None:
        self.rates = rates
        self.charge = charge

    async def repeat(self) -> None:
        """Wait until the call may be sent again."""
        self.rates.correct(self.charge, None)
        self.charge = 0.0  # while it waits
        self.charge = await self.rates.take()


async def _call_within_limits(respond: Respond, request: Json) -> Any:
    """Make a call within the limits. A call inside another call is not counted."""
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
    rates.correct(call.charge, _tokens(response))  # a cancelled call keeps its charge: it may have been answered
    return response


async def repeated() -> None:
    """Wait before the current call is sent again. It counts as another call."""
    call = _calling.get()
    if call is not None:
        await call.repeat()


def _tokens(response: Any) -> int | None:
    """The tokens of an answer; None without a token count."""
    usage = response.get("usage") if isinstance(response, dict) else getattr(response, "usage", None)
    return total_tokens(usage) if isinstance(usage, dict) else None
