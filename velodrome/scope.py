"""The resources of one call of the Python API, closed when the call ends.

Components deep inside a call share expensive resources, such as the pool of connections, without parameters.
`Scope.get` returns the resource of the current call; the end of its `Scope` closes it. Two calls on one event loop
share nothing. Work that must finish even if its caller is cancelled, such as closing a session, uses `finish`; the call
waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Any, Protocol, TypeVar


class Closeable(Protocol):
    """A resource to close at the end of a call."""

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class PoolLimits:
    """The maximum number of connections of a call's pool, in total and per host."""

    limit: int = 100 * 1024
    limit_per_host: int = 1024


T = TypeVar("T", bound=Closeable)
R = TypeVar("R")

HURRIED_S = 2.0
_POLL_S = 0.05
_MOST_NESTED = 4  # an agent closes the session of an environment, which closes another, …

connections = PoolLimits()  # of new pools

_open: ContextVar[Scope | None] = ContextVar("velodrome_scope", default=None)


class Scope:
    """The resources of one call: `async with Scope():`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._shared: dict[Hashable, Any] = {}
        self.waits_for_servers = False  # if set, an unreachable server is reported at once: the run waits for it
        self.rate_limited: Callable[[float], None] = _ignore  # gets the Retry-After of each 429, in seconds
        self._closing = AsyncExitStack()
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._deadline = inf

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The resource with this key, created on first use and closed with the scope."""
        if key not in self._shared:
            self._shared[key] = make()
            self._closing.push_async_callback(self._shared[key].aclose)
        resource: T = self._shared[key]
        return resource

    def wait_for(self, task: asyncio.Task[Any]) -> None:
        """Wait for this task before the call ends. Its error is ignored."""
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        task.add_done_callback(_discard_error)

    def hurry(self) -> None:
        """Cancel unfinished tasks soon."""
        self._deadline = min(self._deadline, time.monotonic() + HURRIED_S)

    async def finish_tasks(self) -> None:
        """Wait for the tasks that must finish; after a second cancellation, only briefly."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 1:
            self.hurry()
        try:
            try:
                await self._wait_until_deadline()
            except asyncio.CancelledError:
                self.hurry()
                await self._wait_until_deadline()
                raise
        finally:
            await self._cancel_unfinished()

    async def _wait_until_deadline(self) -> None:
        while self._unfinished and time.monotonic() < self._deadline:
            await asyncio.wait(self._unfinished, timeout=_POLL_S)

    async def _cancel_unfinished(self) -> None:
        """Cancel the unfinished tasks. A cancelled task may leave one that it waited for, which is cancelled, too."""
        for _ in range(_MOST_NESTED):
            if not self._unfinished:
                return
            for task in self._unfinished:
                task.cancel()
            await asyncio.wait(self._unfinished, timeout=_POLL_S)

    async def __aenter__(self) -> Scope:
        self._token: Token[Scope | None] = _open.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # entered in another task: nothing to reset here
            _open.reset(self._token)
        try:
            await self.finish_tasks()
        finally:
            self._shared.clear()
            await self._closing.aclose()  # closes all, even if one fails


def current() -> Scope | None:
    """The scope of the current call. Code in another thread, with another loop, has none."""
    scope = _open.get()
    return scope if scope is not None and scope.loop is asyncio.get_running_loop() else None


async def finish_tasks() -> None:
    """Wait for the tasks that the current call must finish."""
    call = current()
    if call is not None:
        await call.finish_tasks()


async def finish(work: Coroutine[Any, Any, R], undo: Callable[[R], Awaitable[None]] | None = None) -> R:
    """The result of work that finishes even if the caller is cancelled. Then `undo` is called with the result.

    The work must limit its time. Outside a call, the cancelled caller waits, until it is cancelled again.
    """
    task, call = asyncio.create_task(work), current()
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        remaining = asyncio.create_task(_finish_and_undo(task, undo))
        if call is not None:
            call.wait_for(remaining)
            raise
        try:
            await asyncio.wait([remaining])
        finally:
            remaining.add_done_callback(_discard_error)
            remaining.cancel()
        raise
    return task.result()


async def _finish_and_undo(task: asyncio.Task[R], undo: Callable[[R], Awaitable[None]] | None) -> None:
    result = await task
    if undo is not None:
        await undo(result)


def _ignore(retry_after_s: float) -> None:
    pass


def _discard_error(task: asyncio.Task[Any]) -> None:
    """Read the error of a task that nothing awaits, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
