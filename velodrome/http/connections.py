"""How many connections of a pool are in use, and how long a call waited for one.

aiohttp reports a wait through its tracing, which costs every call of a session something. So a pool has two sessions
over one connector, and a call uses the traced one only when as many calls run as a limit allows.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiohttp

from velodrome.timing import spans

PER_HOST, IN_ALL = "limit_per_host", "limit"  # what the span of a wait counts: the limit that it was


class Wait:
    """A call that may have to wait for a connection, and for how long it did."""

    __slots__ = ("_limit", "_name", "_span", "in_vain", "seconds")

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._span: spans.Span | None = None
        self.seconds = 0.0
        self.in_vain = False

    def begin(self) -> None:
        """From here on it waits."""
        self._span = spans.span("connection")
        self._span.counts = {self._name: self._limit}

    def end(self, *, in_vain: bool = False) -> None:
        """It has a connection, or was abandoned while it waited."""
        if self._span is not None:
            self.in_vain = in_vain
            self._span.end = self._span.clock()
            self.seconds += self._span.seconds
            self._span = None

    @property
    def setting(self) -> str:
        """The setting to raise, with its value."""
        return f"global_aiohttp_connector_{self._name}={self._limit}"


class Connections:
    def __init__(self, limit: int, limit_per_host: int) -> None:
        self.limit = limit
        self.limit_per_host = limit_per_host
        self._in_all = 0
        self._by_host: dict[str, int] = {}

    def take(self, host: str) -> Wait | None:
        """Count a call. A `Wait` if there may be no connection for it; the host's own limit is named first."""
        self._in_all += 1
        calls = self._by_host[host] = self._by_host.get(host, 0) + 1
        if calls > self.limit_per_host > 0:
            return Wait(PER_HOST, self.limit_per_host)
        return Wait(IN_ALL, self.limit) if self._in_all > self.limit > 0 else None

    def give_back(self, host: str) -> None:
        self._in_all -= 1
        if self._by_host[host] == 1:
            del self._by_host[host]  # hosts come and go
        else:
            self._by_host[host] -= 1


def tracing() -> aiohttp.TraceConfig:
    """Starts and ends each call's `Wait`, which is its `trace_request_ctx`."""

    async def begin(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
        context.trace_request_ctx.begin()

    async def end(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
        context.trace_request_ctx.end()

    async def fail(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
        context.trace_request_ctx.end(in_vain=True)

    config = aiohttp.TraceConfig()
    config.on_connection_queued_start.append(begin)
    config.on_connection_queued_end.append(end)
    config.on_request_exception.append(fail)
    return config
