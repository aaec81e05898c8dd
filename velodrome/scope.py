"""What a call opens, it closes: the resources that belong to one call of the Python API.

Components deep inside a call share what is costly to open, such as the pool of connections, without being handed it.
`shared` gives them the one of the call they run in; leaving the call's `Scope` closes it. Two calls on one event loop
have nothing in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
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

connections = PoolLimits()  # of pools that are made from now on

_open: ContextVar[Scope | None] = ContextVar("velodrome_scope", default=None)


class Scope:
    """The resources of one call: `async with Scope():`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._shared: dict[Hashable, Any] = {}
        self._closing = AsyncExitStack()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The one resource of this key, made when it is first needed and closed with the scope."""
        if key not in self._shared:
            self._shared[key] = make()
            self._closing.push_async_callback(self._shared[key].aclose)
        resource: T = self._shared[key]
        return resource

    async def __aenter__(self) -> Scope:
        self._token: Token[Scope | None] = _open.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # left in another task than it was entered: nothing to reset there
            _open.reset(self._token)
        self._shared.clear()
        await self._closing.aclose()  # all of them, also if closing one fails


def current() -> Scope | None:
    """The scope of the call that runs here. Code in another thread has a loop of its own, and none."""
    scope = _open.get()
    return scope if scope is not None and scope.loop is asyncio.get_running_loop() else None
