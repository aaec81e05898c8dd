"""One HTTP client over a pool of connections: bounded in connections, in time, in retries and in bytes.

A call returns a 2xx answer or raises `CallError`. A temporary failure (408, 5xx, a lost connection, a partial body,
silence, a 2xx that `read` rejects as `Unusable`) is retried with full-jitter back-off, never past `total_timeout_s`; a
streamed answer only until its first byte. A 429 is not a failure: retries after it are limited by time, not by number.
Secrets, userinfo and queries never appear in a message.
"""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack
from contextvars import Context
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy

from velodrome import context, scope
from velodrome.errors import Away, CallError, describe
from velodrome.http.connections import Connection, Connections
from velodrome.http.replicas import LOOK_EVERY_S, Replica, Replicas
from velodrome.http.retry import Retry, Tries, Unusable, passes, retry_after_s
from velodrome.http.streamed import Stream
from velodrome.http.target import HEADERS, Target, status_line
from velodrome.rates import repeated
from velodrome.timing import spans
from velodrome.timing.deadline import deadline

LIMIT = 100 * 1024
LIMIT_PER_HOST = 1024
SETTLED = "x-velodrome-settled"  # on an error of a server that has already retried: retries would multiply
MAX_BODY_BYTES = 64 * 1024 * 1024

_CONNECTING = aiohttp.ClientTimeout(total=None, sock_connect=30.0)  # all else is a `deadline`, which costs less
# Silence, and mistakes in an address, which waiting does not fix.
_NOT_LOST = (TimeoutError, aiohttp.ClientConnectorDNSError, aiohttp.ClientSSLError)
_SLOW_CONNECT_S = 0.1
_BUFFERED_BYTES = 1024 * 1024  # aiohttp warns about larger bodies that are not sent in pieces


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: CIMultiDictProxy[str]
    target: Target
    answer: Any = None  # the result of the call's `read`


class _Failure(Exception):
    """A failed attempt. `passing`: a retry may succeed. `sent`: the request may have arrived."""

    def __init__(self, message: str, *, passing: bool, sent: bool = True, reply: Reply | None = None) -> None:
        self.message = message
        self.sent = sent
        self.passing = passing
        self.reply = reply
        self.limited = reply is not None and reply.status == 429


class _Outgoing(NamedTuple):
    """The request that every attempt sends."""

    method: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None  # in addition to the target's
    read: Callable[[Reply], Any] | None = None


_Result = TypeVar("_Result", bound=Reply | Stream)
_Attempt = Callable[[_Outgoing, Target, float], Awaitable[_Result]]  # the float: a time limit in seconds


class Http:
    """A connection pool for one event loop. The first call creates the session."""

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        limit_per_host: int = LIMIT_PER_HOST,
        max_body_bytes: int = MAX_BODY_BYTES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock
        self._now = now
        self._connections = Connections(limit, limit_per_host)
        self._session: aiohttp.ClientSession | None = None
        self._watches: dict[Replica, asyncio.Task[None]] = {}

    def post(
        self,
        to: Target | Replicas,
        body: bytes,
        policy: Retry,
        *,
        headers: Mapping[str, str] | None = None,
        read: Callable[[Reply], Any] | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Send JSON bytes and read the whole answer. `read`, if any, parses it and may raise `Unusable`.

        `headers` are sent in addition to the target's.
        """
        return self._send(_Outgoing("POST", body, headers, read), to, policy, self._attempt)

    def stream(
        self, to: Target | Replicas, body: bytes, policy: Retry, *, headers: Mapping[str, str] | None = None
    ) -> Coroutine[Any, Any, Stream]:
        """Send JSON bytes and return once the answer begins; `timeout_s` then bounds each silence in it."""
        begin = partial(self._begin, self._clock() + policy.total_timeout_s)
        call = _Outgoing("POST", body, {"Accept": "text/event-stream, application/json", **(headers or {})})
        return self._send(call, to, policy, begin)

    def get(self, to: Target | Replicas, policy: Retry) -> Coroutine[Any, Any, Reply]:
        return self._send(_Outgoing("GET"), to, policy, self._attempt)

    async def aclose(self) -> None:
        """Close every connection. Closing twice is fine; a later call opens a new pool."""
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(self, call: _Outgoing, to: Target | Replicas, policy: Retry, attempt: _Attempt[_Result]) -> _Result:
        tries = Tries(policy, self._clock())
        patience_s = min(policy.timeout_s, policy.total_timeout_s)
        if isinstance(to, Replicas):
            attempt = partial(self._watched, to, attempt)
        target = to.choose()
        while True:
            target.in_flight += 1
            try:
                return await attempt(call, target, patience_s)
            except _Failure as failure:
                after_s, limited = self._retry_after_s(failure), failure.limited
                if limited and (run := scope.current()) is not None:
                    run.rate_limited(after_s or 0.0)  # at once: its rollout may take long to finish
                is_outage = isinstance(to, Target) and _is_unreachable(failure) and _collection_waits_for_servers()
                may_repeat = failure.passing and (policy.replay or not failure.sent) and not is_outage
                delay_s = tries.delay_s(self._jitter(), after_s, limited=limited)
                why = tries.over(self._clock(), delay_s, limited=limited) if may_repeat else ""
                if why is not None:
                    raise _error(call.method, target, failure, tries, why) from failure.__cause__
                tries.count(limited=limited)
            finally:
                target.in_flight -= 1
            spans.tally("retries")
            with spans.span("backoff"):
                await self._sleep(delay_s)
            await repeated()
            patience_s = min(policy.timeout_s, tries.until - self._clock())
            target = to.choose(avoid=target)

    async def _watched(
        self, to: Replicas, attempt: _Attempt[_Result], call: _Outgoing, target: Target, patience_s: float
    ) -> _Result:
        """Send one attempt to a replica, update its health, and abandon the attempt when the replica is down."""
        assert isinstance(target, Replica)
        for each in to.targets:
            if (each is target or each.in_doubt) and each not in self._watches:
                self._watches[each] = asyncio.create_task(self._watch(each, to.check_s), context=Context())
        target.begin(self._clock())
        with spans.span(target.span):
            try:
                with deadline(inf) as time_limit:
                    target.waiting.add(time_limit)
                    try:
                        reply = await attempt(call, target, patience_s)
                    finally:
                        target.waiting.discard(time_limit)
            except _Failure as failure:
                spans.tally("failed")
                self._blame(target, failure)
                raise
            except TimeoutError as error:
                spans.tally("failed")
                raise _Failure("no answer, and none to a health check", passing=True) from error
        target.answered(self._clock())
        return reply

    def _blame(self, target: Replica, failure: _Failure) -> None:
        """Count a failure of the address. A refused request and a rate limit are answers, not failures."""
        unreachable = isinstance(failure.__cause__, aiohttp.ClientConnectorError)
        if failure.reply is not None and (not failure.passing or failure.reply.status in (408, 429)):
            target.answered(self._clock())
        elif failure.sent or unreachable:  # else one of our own limits delayed the call
            target.failed(self._clock(), at_once=unreachable)

    async def _watch(self, replica: Replica, check_s: float) -> None:
        """Run health checks of an address while its health is in doubt."""
        try:
            while replica.in_doubt:
                await self._sleep(LOOK_EVERY_S)
                if replica.is_due(self._clock(), check_s):
                    alive = await self._is_alive(replica.health, check_s)
                    replica.checked(self._clock(), check_s, alive=alive)
        finally:
            self._watches.pop(replica, None)

    async def _is_alive(self, target: Target, timeout_s: float) -> bool:
        """Whether a server answers the request, even with a 4xx."""
        try:
            await self._attempt(_Outgoing("GET"), target, timeout_s)
        except _Failure as failure:
            return failure.reply is not None and failure.reply.status < 500
        return True

    async def _attempt(self, call: _Outgoing, target: Target, patience_s: float) -> Reply:
        connection = self._connections.to(target.host)
        try:
            with deadline(patience_s):
                await connection.take()
                started = time.perf_counter()
                response = await self._request(call, target)
                spans.put("first_byte_us", round((time.perf_counter() - started) * 1e6))
                try:
                    body = await self._read(response, target)
                finally:
                    if not response.closed:  # a body read to its end has returned its connection
                        response.close()
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(error, patience_s, connection) from error
        finally:
            connection.give_back()
        reply = _checked(Reply(response.status, body, response.headers, target))
        try:
            return reply if call.read is None else reply._replace(answer=call.read(reply))
        except Unusable as error:
            raise _Failure(f"{reply.status}, but {error}", passing=True, reply=reply) from None

    async def _begin(self, until: float, call: _Outgoing, target: Target, silence_s: float) -> Stream:
        end_time = asyncio.get_running_loop().time() + until - self._clock()
        connection = self._connections.to(target.host)
        try:
            with ExitStack() as failed, deadline(silence_s):
                failed.callback(connection.give_back)
                await connection.take()
                started = time.perf_counter()
                response = await self._request(call, target)
                failed.callback(response.close)
                if not 200 <= response.status < 300:
                    _checked(Reply(response.status, await self._read(response, target), response.headers, target))
                first_chunk = await response.content.readany()
                spans.put("first_byte_us", round((time.perf_counter() - started) * 1e6))
                failed.pop_all()
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(error, silence_s, connection) from error
        return Stream(response, first_chunk, target, self._max_body_bytes, silence_s, end_time, connection.give_back)

    def _request(self, call: _Outgoing, target: Target) -> Awaitable[aiohttp.ClientResponse]:
        body = call.body
        return (self._session or self._open()).request(
            call.method,
            target.url,
            data=body if body is None or len(body) <= _BUFFERED_BYTES else io.BytesIO(body),
            headers=_headers(target, call.headers),
            timeout=_CONNECTING,
            allow_redirects=False,
        )

    async def _read(self, response: aiohttp.ClientResponse, target: Target) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := await response.content.readany():
            size += len(chunk)
            if size > self._max_body_bytes:
                message = f"{status_line(response.status)}, but the body is larger than {self._max_body_bytes} bytes"
                raise _Failure(message, passing=False, reply=Reply(response.status, b"", response.headers, target))
            chunks.append(chunk)
        return b"".join(chunks)

    def _retry_after_s(self, failure: _Failure) -> float | None:
        header = failure.reply.headers.get("Retry-After") if failure.reply else None
        return retry_after_s(header, self._now())

    def _open(self) -> aiohttp.ClientSession:
        pool = _Connector(limit=0)
        self._session = aiohttp.ClientSession(connector=pool, cookie_jar=aiohttp.DummyCookieJar(), headers=HEADERS)
        return self._session


class _Connector(aiohttp.TCPConnector):
    """Records slow connects as spans: a server that accepts late has not received the call yet."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        timing = spans.current()
        started = timing.clock() if timing else 0.0
        try:
            return await super()._create_connection(req, traces, timeout)
        finally:
            if timing and timing.clock() - started >= _SLOW_CONNECT_S:
                spans.record("connection", started, timing.clock())


def _lost(error: Exception, patience_s: float, connection: Connection) -> _Failure:
    """The failure of an attempt whose connection broke, timed out, or never became free."""
    if isinstance(error, TimeoutError) and connection.waits_for is not None:
        message = f"all connections were in use for {patience_s:g} s ({connection.waits_for})"
        return _Failure(message, passing=True, sent=False)
    if isinstance(error, TimeoutError):
        return _Failure(f"no answer within {patience_s:g} s", passing=True)
    is_sent = not isinstance(error, aiohttp.ClientConnectorError)
    return _Failure(f"connection lost ({describe(error)})", passing=True, sent=is_sent)


def _headers(target: Target, call_headers: Mapping[str, str] | None) -> CIMultiDict[str]:
    """The headers of the target and of the call, and the trace ID of the rollout."""
    rollout = context.current()
    if call_headers is None and rollout is None:
        return target.headers
    headers = target.headers.copy()
    if call_headers is not None:
        headers.update(call_headers)
    if rollout is not None:
        headers.setdefault(context.TRACE_HEADER, rollout.trace)
    return headers


def _checked(reply: Reply) -> Reply:
    if 200 <= reply.status < 300:
        return reply
    if reply.status == 429:
        spans.tally("rate_limited")
    spent = reply.status == 429 and b"insufficient_quota" in reply.body  # OpenAI's; waiting does not help
    passing = passes(reply.status) and SETTLED not in reply.headers and not spent
    raise _Failure(status_line(reply.status), passing=passing, reply=reply)


def _is_unreachable(failure: _Failure) -> bool:
    """Whether the connection failed, except for a mistake in the address."""
    cause = failure.__cause__
    return isinstance(cause, aiohttp.ClientConnectorError) and not isinstance(cause, _NOT_LOST)


def _collection_waits_for_servers() -> bool:
    """Whether the collection itself waits for unreachable servers; retries here would hide the outage from it."""
    call = scope.current()
    return call is not None and call.waits_for_servers


def _error(method: str, target: Target, failure: _Failure, tries: Tries, why: str) -> CallError:
    retries = tries.failed + tries.limited
    again = f" after {retries} {'retry' if retries == 1 else 'retries'}" if retries else ""
    message = f"{method} {target.label}: {failure.message}{again}{why}"
    if failure.reply is None:
        lost = failure.passing and not isinstance(failure.__cause__, _NOT_LOST)
        return CallError(message, away=Away(str(target.url.origin()), failure.sent) if lost else None)
    text = target.excerpt(failure.reply.body)
    return CallError(
        f"{message}: {text}" if text else message,
        status=failure.reply.status,
        excerpt=text,
        body=failure.reply.body,
    )


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Http] = WeakKeyDictionary()


def shared() -> Http:
    """The pool of the current `Scope`, which closes it; without a scope, the pool of the running loop."""
    call = scope.current()
    if call is not None:
        return call.get(Http, _configured)
    loop = asyncio.get_running_loop()
    pool = _by_loop.get(loop)
    if pool is None:
        pool = _by_loop[loop] = _configured()
    return pool


def _configured() -> Http:
    return Http(limit=scope.connections.limit, limit_per_host=scope.connections.limit_per_host)


async def close_shared() -> None:
    """Close the pool of the running loop, if it has one."""
    pool = _by_loop.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.aclose()
