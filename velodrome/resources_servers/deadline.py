"""Await a coroutine of the user's for so long and no longer.

Most tools and verifiers that are `async def` never wait for anything, so the first step is taken before any timer is
set: a coroutine that ends in it costs no more than a call. What would stop the loop (`SystemExit`, a cancellation
nobody asked for) is turned into `Escaped`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from velodrome.resources_servers.threads import Escaped, NoAnswer


class _Rest:
    """What is left of a coroutine after its first step, which waits for `waiting`."""

    __slots__ = ("_begun", "_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self._coroutine = coroutine
        self._waiting = waiting
        self._begun = False

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # type: ignore[return-value]  # all a generator needs to be to be awaited

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self._begun:
            return self._coroutine.send(value)
        self._begun = True
        return self._waiting

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()


async def within(timeout_s: float, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The coroutine's result; `NoAnswer` when its time is over."""
    try:
        try:
            waiting = coroutine.send(None)
        except StopIteration as done:
            return done.value
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await _Rest(coroutine, waiting)
        except TimeoutError:
            if limit.expired():
                raise NoAnswer(timeout_s) from None
            raise
    except SystemExit as error:
        raise Escaped(error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            raise Escaped(error) from error
        raise
