"""The resources that belong to one call of the Python API, closed when it ends.

Components deep inside a call share what is costly to open, such as the pool of connections, without being handed it.
`shared` gives them the one of the call they run in; leaving the call's `Scope` closes it. Two calls on one event loop
have nothing in common. What must end although its caller was cancelled, such as closing a session, goes through
`finish`; the call waits for it.
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
    """Something to close at the end of a call."""

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class PoolLimits:
    """How many connections the pool of a call opens, in all and to one host."""

    limit: int = 100 * 1024
    limit_per_host: int = 1024


T = TypeVar("T", bound=Closeable)
R = TypeVar("R")

HURRIED_S = 2.0
_LOOK_S = 0.05
_NESTED = 4  # an agent closes a session of an environment, which closes its own

connections = PoolLimits()  # of pools that are made from now on

_open: ContextVar[Scope | None] = ContextVar("velodrome_scope", default=None)


class Scope:
    """The resources of one call: `async with Scope():`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._shared: dict[Hashable, Any] = {}
        self.waits_for_servers = False  # an unreachable server is reported at once, because the run itself waits for it
        self.rate_limited: Callable[[float], None] = _ignore  # gets the Retry-After of each 429, in seconds
        self._closing = AsyncExitStack()
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._until = inf

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The one resource of this key, made when it is first needed and closed with the scope."""
        if key not in self._shared:
            self._shared[key] = make()
            self._closing.push_async_callback(self._shared[key].aclose)
        resource: T = self._shared[key]
        return resource

    def wait_for(self, task: asyncio.Task[Any]) -> None:
        """End the call after this task, whose error is ignored."""
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        task.add_done_callback(_read)

    def hurry(self) -> None:
        """Give up soon what does not finish."""
        self._until = min(self._until, time.monotonic() + HURRIED_S)

    async def finish_tasks(self) -> None:
        """Wait for what must finish; after a second cancellation, not for long."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 1:
            self.hurry()
        try:
            try:
                await self._finished()
            except asyncio.CancelledError:
                self.hurry()
                await self._finished()
                raise
        finally:
            await self._give_up()

    async def _finished(self) -> None:
        while self._unfinished and time.monotonic() < self._until:
            await asyncio.wait(self._unfinished, timeout=_LOOK_S)

    async def _give_up(self) -> None:
        """Cancel what is left. Work that is cancelled may leave work that it waited for, which is cancelled too."""
        for _ in range(_NESTED):
            if not self._unfinished:
                return
            for each in self._unfinished:
                each.cancel()
            await asyncio.wait(self._unfinished, timeout=_LOOK_S)

    async def __aenter__(self) -> Scope:
        self._token: Token[Scope | None] = _open.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # left in another task than it was entered: nothing to reset there
            _open.reset(self._token)
        try:
            await self.finish_tasks()
        finally:
            self._shared.clear()
            await self._closing.aclose()  # all of them, also if closing one fails


def current() -> Scope | None:
    """The scope of the call that runs here. Code in another thread, with another loop, has none."""
    scope = _open.get()
    return scope if scope is not None and scope.loop is asyncio.get_running_loop() else None


async def finish_tasks() -> None:
    """Wait for what the call that runs here must finish."""
    call = current()
    if call is not None:
        await call.finish_tasks()


async def finish(work: Coroutine[Any, Any, R], undo: Callable[[R], Awaitable[None]] | None = None) -> R:
    """The result of work that also ends if its caller is cancelled; `undo` then gets the result.

    The work limits its own time. Outside any call the caller itself waits, until it is cancelled again.
    """
    task, call = asyncio.create_task(work), current()
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        rest = asyncio.create_task(_rest(task, undo))
        if call is not None:
            call.wait_for(rest)
            raise
        try:
            await asyncio.wait([rest])
        finally:
            rest.add_done_callback(_read)
            rest.cancel()
        raise
    return task.result()


async def _rest(task: asyncio.Task[R], undo: Callable[[R], Awaitable[None]] | None) -> None:
    result = await task
    if undo is not None:
        await undo(result)


def _ignore(retry_after_s: float) -> None:
    pass


def _read(task: asyncio.Task[Any]) -> None:
    """Read the error, so that asyncio does not report it: nothing awaits it any more."""
    if not task.cancelled():
        task.exception()
