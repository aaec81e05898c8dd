"""The one pooled HTTP client of a process: bounded in connections, in time, in retries and in bytes.

A call returns a 2xx answer or raises `CallError`. What may pass by itself (408, 429, 5xx, a lost connection, half a
body, silence) is tried again with full-jitter back-off, never past `total_timeout_s`. Secrets, userinfo and queries
never reach a message.
"""

from __future__ import annotations

import asyncio
import io
import random
import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple
from weakref import WeakKeyDictionary

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from velodrome.errors import CallError, describe
from velodrome.timing import spans

LIMIT = 100 * 1024
LIMIT_PER_HOST = 1024
MAX_BODY_BYTES = 64 * 1024 * 1024

_EXCERPT_CHARS = 300
_EXCERPT_BYTES = 64 * 1024  # more than an excerpt, so that keys are masked before the cut
_CONNECT_TIMEOUT_S = 30.0
_BUFFERED_BYTES = 1024 * 1024  # aiohttp asks that larger bodies be sent in pieces
# Every header aiohttp would add by itself, which costs it more than being told.
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": "velodrome",
}
_SECRET_HEADER = re.compile(r"authorization|cookie|key|token|secret", re.IGNORECASE)
_KEY_LIKE = re.compile(r"(?:\bsk-|\bbearer\s+)[\w.~+/=*-]{6,}", re.IGNORECASE)


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    headers: CIMultiDictProxy[str]
    target: Target


@dataclass(frozen=True, slots=True)
class Retry:
    """How long and how often to try. Back-off before retry n is uniform in 0 … backoff_s * 2**n, capped."""

    max_retries: int = 5
    backoff_s: float = 0.5
    backoff_cap_s: float = 30.0
    retry_after_cap_s: float = 120.0
    timeout_s: float = 600.0
    total_timeout_s: float = 1800.0
    first_timeout: aiohttp.ClientTimeout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_timeout", self.timeout(self.total_timeout_s))

    def timeout(self, left_s: float) -> aiohttp.ClientTimeout:
        """The timeout of one attempt, with so much of the whole left."""
        total_s = min(self.timeout_s, left_s)
        return aiohttp.ClientTimeout(total=total_s, sock_connect=min(_CONNECT_TIMEOUT_S, total_s))

    def delay_s(self, retries: int, jitter: float, retry_after_s: float | None) -> float:
        """How long to wait; Retry-After is a lower bound, so the jitter goes on top of it."""
        # The exponent is bounded: 2.0**1024 does not exist.
        wait_s = jitter * min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(retries, 64))
        return wait_s if retry_after_s is None else wait_s + min(retry_after_s, self.retry_after_cap_s)


class Target:
    """One address, made once: the parsed URL, its headers, and how busy it is."""

    __slots__ = ("headers", "in_flight", "label", "secrets", "strikes", "url")

    def __init__(self, url: str | URL, headers: Mapping[str, str] | None = None) -> None:
        parsed = URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError("expected a URL that starts with http:// or https://")
        self.headers = CIMultiDict(_HEADERS)
        self.headers.update(headers or {})
        if parsed.user is not None and "Authorization" not in self.headers:
            pair = f"{parsed.user}:{parsed.password or ''}".encode()
            self.headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        self.url = parsed.with_user(None)
        self.label = str(self.url.with_query(None).with_fragment(None))
        self.secrets = _secrets(self.headers, parsed)
        self.in_flight = 0
        self.strikes = 0  # failures in a row

    def excerpt(self, body: bytes) -> str:
        """The start of an answer as one line, without this target's secrets."""
        return excerpt(body, self.secrets)

    def choose(self, avoid: Target | None = None) -> Target:
        """Itself: a target is the smallest group of replicas."""
        return self


class Replicas:
    """Several targets that answer alike: the least busy one is next, in turn where they are equal."""

    __slots__ = ("_next", "targets")

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = list(targets)
        self._next = 0

    def choose(self, avoid: Target | None = None) -> Target:
        """The next target. A strike counts as a call in flight, so a dead replica does not draw all the traffic."""
        start = self._next
        self._next = (start + 1) % len(self.targets)
        turn = self.targets[start:] + self.targets[:start]
        return min(turn, key=lambda target: (target is avoid, target.in_flight + target.strikes))


class _Failure(Exception):
    """One attempt that failed, and whether another may do better."""

    def __init__(self, what: str, *, passing: bool, reply: Reply | None = None) -> None:
        self.what = what
        self.passing = passing
        self.reply = reply


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
        self._limit = limit
        self._limit_per_host = limit_per_host
        self._max_body_bytes = max_body_bytes
        self._sleep = sleep
        self._jitter = jitter
        self._clock = clock
        self._now = now
        self._session: aiohttp.ClientSession | None = None

    async def post(self, to: Target | Replicas, body: bytes, policy: Retry) -> Reply:
        """Send JSON bytes and read the whole answer."""
        return await self._call("POST", to, body, policy)

    async def get(self, to: Target | Replicas, policy: Retry) -> Reply:
        """Read a resource whole."""
        return await self._call("GET", to, None, policy)

    async def aclose(self) -> None:
        """Close every connection. Closing twice is fine; a later call opens a new pool."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, method: str, to: Target | Replicas, body: bytes | None, policy: Retry) -> Reply:
        deadline = self._clock() + policy.total_timeout_s
        timeout = policy.first_timeout
        target = to.choose()
        retries = 0
        while True:
            target.in_flight += 1
            try:
                reply = await self._attempt(method, target, body, timeout)
                target.strikes = 0
                return reply
            except _Failure as failure:
                target.strikes += 1
                delay_s = self._delay_s(failure, retries, policy)
                if not failure.passing or retries >= policy.max_retries:
                    raise _error(method, target, failure, retries) from failure.__cause__
                if self._clock() + delay_s >= deadline:
                    out_of_time = f" (no time for another within {policy.total_timeout_s:g} s)"
                    raise _error(method, target, failure, retries, out_of_time) from failure.__cause__
            finally:
                target.in_flight -= 1
            spans.tally("retries")
            with spans.span("backoff"):
                await self._sleep(delay_s)
            retries += 1
            timeout = policy.timeout(deadline - self._clock())
            target = to.choose(avoid=target)

    async def _attempt(self, method: str, target: Target, body: bytes | None, timeout: aiohttp.ClientTimeout) -> Reply:
        data = body if body is None or len(body) <= _BUFFERED_BYTES else io.BytesIO(body)
        session = self._session or self._open()
        try:
            response = await session.request(
                method, target.url, data=data, headers=target.headers, timeout=timeout, allow_redirects=False
            )
            try:
                content = await self._read(response, target)
            finally:
                if not response.closed:  # a body read to its end has given its connection back
                    response.close()
        except TimeoutError as error:
            raise _Failure(f"no answer within {timeout.total:g} s", passing=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Failure(f"connection lost ({describe(error)})", passing=True) from error
        reply = Reply(response.status, content, response.headers, target)
        if 200 <= reply.status < 300:
            return reply
        if reply.status == 429:
            spans.tally("rate_limited")
        raise _Failure(_status_line(reply.status), passing=_passing(reply.status), reply=reply)

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
        what = f"{_status_line(response.status)}, but the body is larger than {self._max_body_bytes} bytes"
        raise _Failure(what, passing=False, reply=Reply(response.status, b"", response.headers, target))

    def _delay_s(self, failure: _Failure, retries: int, policy: Retry) -> float:
        header = failure.reply.headers.get("Retry-After") if failure.reply else None
        return policy.delay_s(retries, self._jitter(), retry_after_s(header, self._now()))

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=self._limit, limit_per_host=self._limit_per_host)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self._session


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds to wait, from either form of Retry-After; None if there is none that makes sense."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    return max(seconds, 0.0) if seconds == seconds else None  # NaN is not a time


def excerpt(body: bytes, secrets: Sequence[str] = ()) -> str:
    """The start of a body as one line, fit for a log: control characters escaped, keys masked."""
    text = " ".join(body[:_EXCERPT_BYTES].decode("utf-8", "replace").split())
    for secret in secrets:
        text = text.replace(secret, "***")
    text = _KEY_LIKE.sub("***", text)
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= _EXCERPT_CHARS else text[: _EXCERPT_CHARS - 1] + "…"


def _secrets(headers: Mapping[str, str], url: URL) -> tuple[str, ...]:
    found = [value.rpartition(" ")[2] for name, value in headers.items() if _SECRET_HEADER.search(name)]
    found += [url.password or "", *(value for value in url.query.values())]
    return tuple(secret for secret in found if len(secret) >= 4)


def _passing(status: int) -> bool:
    return status in (408, 429) or (status >= 500 and status != 501)


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _error(method: str, target: Target, failure: _Failure, retries: int, why: str = "") -> CallError:
    tries = f" after {retries} {'retry' if retries == 1 else 'retries'}" if retries else ""
    message = f"{method} {target.label}: {failure.what}{tries}{why}"
    if failure.reply is None:
        return CallError(message)
    text = target.excerpt(failure.reply.body)
    return CallError(
        f"{message}: {text}" if text else message,
        status=failure.reply.status,
        excerpt=text,
        body=failure.reply.body,
    )


@dataclass(slots=True)
class _Limits:
    limit: int = LIMIT
    limit_per_host: int = LIMIT_PER_HOST


_limits = _Limits()
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Http] = WeakKeyDictionary()


def configure(*, limit: int = LIMIT, limit_per_host: int = LIMIT_PER_HOST) -> None:
    """Set the connector limits of the pools that `shared` makes from now on."""
    _limits.limit = limit
    _limits.limit_per_host = limit_per_host


def shared() -> Http:
    """The pool of the running loop."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        pool = _pools[loop] = Http(limit=_limits.limit, limit_per_host=_limits.limit_per_host)
    return pool


async def close_shared() -> None:
    """Close the pool of the running loop, if it has one."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.aclose()
