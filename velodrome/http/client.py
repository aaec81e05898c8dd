"""One HTTP client over a pool of connections: bounded in connections, in time, in retries and in bytes.

A call returns a 2xx answer or raises `CallError`. What may pass by itself (408, 429, 5xx, a lost connection, half a
body, silence) is tried again with full-jitter back-off, never past `total_timeout_s`; a streamed answer only until its
first byte. Secrets, userinfo and queries never appear in a message.
"""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from contextvars import Context
from functools import partial
from math import inf
from types import TracebackType
from typing import NamedTuple, TypeVar

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy

from velodrome import scope
from velodrome.errors import Away, CallError, describe
from velodrome.http.connections import Connection, Connections
from velodrome.http.replicas import LOOK_EVERY_S, Replica, Replicas
from velodrome.http.retry import CONNECT_TIMEOUT_S, Retry, retry_after_s
from velodrome.http.streamed import Stream
from velodrome.http.target import HEADERS, Target, status_line
from velodrome.rates import repeated
from velodrome.timing import spans, trace
from velodrome.timing.deadline import deadline

LIMIT = 100 * 1024
LIMIT_PER_HOST = 1024
SETTLED = "x-velodrome-settled"  # on an error whose sender has done its own retrying: asking again would multiply them
MAX_BODY_BYTES = 64 * 1024 * 1024

_UNTIMED = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)  # a `deadline` costs less than its timers
# Silence, and mistakes in an address, which waiting does not mend.
_NOT_LOST = (TimeoutError, aiohttp.ClientConnectorDNSError, aiohttp.ClientSSLError)
_BUFFERED_BYTES = 1024 * 1024  # aiohttp asks that larger bodies be sent in pieces


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: CIMultiDictProxy[str]
    target: Target


class _Failure(Exception):
    """One attempt that failed, and whether another may do better."""

    def __init__(self, what: str, *, passing: bool, sent: bool = True, reply: Reply | None = None) -> None:
        self.what = what
        self.sent = sent
        self.passing = passing
        self.reply = reply


class _Outgoing(NamedTuple):
    """What every attempt of a call sends."""

    method: str
    body: bytes | None = None
    headers: Mapping[str, str] | None = None  # beside the target's own


_Got = TypeVar("_Got", bound=Reply | Stream)
_Attempt = Callable[[_Outgoing, Target, aiohttp.ClientTimeout], Awaitable[_Got]]


class Http:
    """A connection pool for one event loop. The session is made by the first call."""

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

    async def post(
        self, to: Target | Replicas, body: bytes, policy: Retry, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send JSON bytes and read the whole answer. `headers` are for this call, beside the target's own."""
        return await self._send(_Outgoing("POST", body, headers), to, policy, self._attempt)

    async def stream(
        self, to: Target | Replicas, body: bytes, policy: Retry, *, headers: Mapping[str, str] | None = None
    ) -> Stream:
        """Send JSON bytes and return once the answer begins; `timeout_s` then bounds each silence in it."""
        begin = partial(self._begin, self._clock() + policy.total_timeout_s)
        call = _Outgoing("POST", body, {"Accept": "text/event-stream, application/json", **(headers or {})})
        return await self._send(call, to, policy, begin)

    async def get(self, to: Target | Replicas, policy: Retry) -> Reply:
        return await self._send(_Outgoing("GET"), to, policy, self._attempt)

    async def aclose(self) -> None:
        """Close every connection. Closing twice is fine; a later call opens a new pool."""
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(self, call: _Outgoing, to: Target | Replicas, policy: Retry, attempt: _Attempt[_Got]) -> _Got:
        until = self._clock() + policy.total_timeout_s
        timeout = policy.first_timeout
        if isinstance(to, Replicas):
            attempt = partial(self._watched, to, attempt)
        target = to.choose()
        retries = 0
        while True:
            target.in_flight += 1
            try:
                return await attempt(call, target, timeout)
            except _Failure as failure:
                delay_s = self._delay_s(failure, retries, policy)
                self._report_rate_limit(failure)
                may_repeat = failure.passing and (policy.replay or not failure.sent)
                may_repeat = may_repeat and not (
                    _is_unreachable(failure) and isinstance(to, Target) and _is_waited_for()
                )
                if not may_repeat or retries >= policy.max_retries:
                    raise _error(call.method, target, failure, retries) from failure.__cause__
                if self._clock() + delay_s >= until:
                    out_of_time = f" (no time for another within {policy.total_timeout_s:g} s)"
                    raise _error(call.method, target, failure, retries, out_of_time) from failure.__cause__
            finally:
                target.in_flight -= 1
            spans.tally("retries")
            with spans.span("backoff"):
                await self._sleep(delay_s)
            await repeated()
            retries += 1
            timeout = policy.timeout(until - self._clock())
            target = to.choose(avoid=target)

    async def _watched(
        self, to: Replicas, attempt: _Attempt[_Got], call: _Outgoing, target: Target, timeout: aiohttp.ClientTimeout
    ) -> _Got:
        """One attempt at one of several addresses: counted, and given up with its address."""
        assert isinstance(target, Replica)
        for each in to.targets:
            if (each is target or each.in_doubt) and each not in self._watches:
                self._watches[each] = asyncio.create_task(self._watch(each, to.check_s), context=Context())
        target.begin(self._clock())
        with spans.span(target.span):
            try:
                with deadline(inf) as patience:
                    target.waiting.add(patience)
                    try:
                        reply = await attempt(call, target, timeout)
                    finally:
                        target.waiting.discard(patience)
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
        """Blame the address for what it may do better later; a refused request and a rate limit are answers."""
        unreachable = isinstance(failure.__cause__, aiohttp.ClientConnectorError)
        if failure.reply is not None and (not failure.passing or failure.reply.status in (408, 429)):
            target.answered(self._clock())
        elif failure.sent or unreachable:  # else it was a limit of ours
            target.failed(self._clock(), at_once=unreachable)

    async def _watch(self, replica: Replica, check_s: float) -> None:
        """Ask an address whether it lives while that is in doubt, until it is idle and well."""
        try:
            while replica.in_doubt:
                await self._sleep(LOOK_EVERY_S)
                if replica.is_due(self._clock(), check_s):
                    alive = await self._is_alive(replica.health, check_s)
                    replica.checked(self._clock(), check_s, alive=alive)
        finally:
            self._watches.pop(replica, None)

    async def _is_alive(self, target: Target, timeout_s: float) -> bool:
        """Whether a server answers at all: one without this route lives, too."""
        try:
            await self._attempt(_Outgoing("GET"), target, aiohttp.ClientTimeout(total=timeout_s))
        except _Failure as failure:
            return failure.reply is not None and failure.reply.status < 500
        return True

    async def _attempt(self, call: _Outgoing, target: Target, timeout: aiohttp.ClientTimeout) -> Reply:
        connection = self._connections.to(target.host)
        try:
            with _losses(timeout.total, connection), deadline(timeout.total or CONNECT_TIMEOUT_S):
                await connection.take()
                started = time.perf_counter()
                response = await self._request(call, target, _UNTIMED)
                _put_first_byte(started)
                try:
                    content = await self._read(response, target)
                finally:
                    if not response.closed:  # a body read to its end has returned its connection
                        response.close()
        finally:
            connection.give_back()
        return _good(Reply(response.status, content, response.headers, target))

    async def _begin(self, until: float, call: _Outgoing, target: Target, timeout: aiohttp.ClientTimeout) -> Stream:
        silence_s, left_s = timeout.total, until - self._clock()
        timeout = aiohttp.ClientTimeout(total=left_s, sock_connect=timeout.sock_connect, sock_read=silence_s)
        connection = self._connections.to(target.host)
        with _losses(silence_s, connection), ExitStack() as failed:
            failed.callback(connection.give_back)
            with deadline(silence_s or CONNECT_TIMEOUT_S):
                await connection.take()
            started = time.perf_counter()
            response = await self._request(call, target, timeout)
            failed.callback(response.close)
            if not 200 <= response.status < 300:
                _good(Reply(response.status, await self._read(response, target), response.headers, target))
            first = await response.content.readany()
            _put_first_byte(started)
            failed.pop_all()
        return Stream(response, first, target, self._max_body_bytes, connection.give_back)

    async def _request(self, call: _Outgoing, target: Target, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        body = call.body
        return await (self._session or self._open()).request(
            call.method,
            target.url,
            data=body if body is None or len(body) <= _BUFFERED_BYTES else io.BytesIO(body),
            headers=_headers(target, call.headers),
            timeout=timeout,
            allow_redirects=False,
        )

    async def _read(self, response: aiohttp.ClientResponse, target: Target) -> bytes:
        stream = response.content
        first = await stream.readany()
        if stream.at_eof() and len(first) <= self._max_body_bytes:
            return first
        chunks, size = [first], len(first)
        while size <= self._max_body_bytes:
            chunk = await stream.readany()
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
        what = f"{status_line(response.status)}, but the body is larger than {self._max_body_bytes} bytes"
        raise _Failure(what, passing=False, reply=Reply(response.status, b"", response.headers, target))

    def _delay_s(self, failure: _Failure, retries: int, policy: Retry) -> float:
        return policy.delay_s(retries, self._jitter(), self._retry_after_s(failure))

    def _retry_after_s(self, failure: _Failure) -> float | None:
        header = failure.reply.headers.get("Retry-After") if failure.reply else None
        return retry_after_s(header, self._now())

    def _report_rate_limit(self, failure: _Failure) -> None:
        """Report a 429 to the run at once; its rollout may take long to finish."""
        if failure.reply is not None and failure.reply.status == 429:
            call = scope.current()
            if call is not None:
                call.rate_limited(self._retry_after_s(failure) or 0.0)

    def _open(self) -> aiohttp.ClientSession:
        pool = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=pool, cookie_jar=aiohttp.DummyCookieJar(), headers=HEADERS)
        return self._session


class _losses:
    """Turns what a connection can do to an attempt into a `_Failure`. A class: it is entered by every call."""

    __slots__ = ("_connection", "_patience_s")

    def __init__(self, patience_s: float | None, connection: Connection) -> None:
        self._patience_s = patience_s
        self._connection = connection

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, aiohttp.ClientConnectorError):
            raise _Failure(f"connection lost ({describe(error)})", passing=True, sent=False) from error
        if isinstance(error, TimeoutError) and self._connection.waits_for is not None:
            what = f"all connections were in use for {self._patience_s:g} s ({self._connection.waits_for})"
            raise _Failure(what, passing=True, sent=False) from error
        if isinstance(error, TimeoutError):
            raise _Failure(f"no answer within {self._patience_s:g} s", passing=True) from error
        if isinstance(error, aiohttp.ClientError | OSError):
            raise _Failure(f"connection lost ({describe(error)})", passing=True) from error


def _put_first_byte(started: float) -> None:
    """How long the answer took to begin, from when the call had its place."""
    spans.put("first_byte_us", round((time.perf_counter() - started) * 1e6))


def _headers(target: Target, more: Mapping[str, str] | None) -> CIMultiDict[str]:
    """The target's own headers, those of the call, and the trace that it belongs to."""
    traced = trace.header()
    if more is None and traced is None:
        return target.headers
    headers = target.headers.copy()
    if more is not None:
        headers.update(more)
    if traced is not None:
        headers.setdefault(trace.HEADER, traced)
    return headers


def _good(reply: Reply) -> Reply:
    if 200 <= reply.status < 300:
        return reply
    if reply.status == 429:
        spans.tally("rate_limited")
    passing = _passing(reply.status) and SETTLED not in reply.headers
    raise _Failure(status_line(reply.status), passing=passing, reply=reply)


def _passing(status: int) -> bool:
    return status in (408, 429) or (status >= 500 and status != 501)


def _is_unreachable(failure: _Failure) -> bool:
    """Whether no connection was made, for another reason than a mistake in the address."""
    cause = failure.__cause__
    return isinstance(cause, aiohttp.ClientConnectorError) and not isinstance(cause, _NOT_LOST)


def _is_waited_for() -> bool:
    """Whether the call that runs here waits for servers by itself, so that trying again would only hide one."""
    call = scope.current()
    return call is not None and call.waits_for_servers


def _error(method: str, target: Target, failure: _Failure, retries: int, why: str = "") -> CallError:
    tries = f" after {retries} {'retry' if retries == 1 else 'retries'}" if retries else ""
    message = f"{method} {target.label}: {failure.what}{tries}{why}"
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
