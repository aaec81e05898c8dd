"""Await a user's coroutine with a time limit.

Most `async def` tools and verifiers never wait, so the first step runs before any timer is set: a coroutine that ends
in it costs no more than a call. An exception that would stop the loop (`SystemExit`, or a cancellation that was not
requested) becomes `Escaped`. The time between waits, in which the coroutine blocks the loop, is counted as `held_us`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from time import perf_counter
from typing import Any

from velodrome.threads import WORTH_RECORDING_S, Escaped, NoAnswer
from velodrome.timing.spans import tally


class _Rest:
    """The rest of a coroutine after its first step, which waits for `waiting`."""

    __slots__ = ("_begun", "_coroutine", "_waiting", "held_s")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting: Any, held_s: float) -> None:
        self._coroutine = coroutine
        self._waiting = waiting
        self._begun = False
        self.held_s = held_s

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # type: ignore[return-value]  # it has all the methods of a generator that `await` needs

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if not self._begun:
            self._begun = True
            return self._waiting
        began = perf_counter()
        try:
            return self._coroutine.send(value)
        finally:
            self.held_s += perf_counter() - began

    def throw(self, *error: Any) -> Any:
        began = perf_counter()
        try:
            return self._coroutine.throw(*error)
        finally:
            self.held_s += perf_counter() - began

    def close(self) -> None:
        self._coroutine.close()


async def within(timeout_s: float, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The coroutine's result. Raises `NoAnswer` after `timeout_s`."""
    rest: _Rest | None = None
    began = perf_counter()
    try:
        try:
            waiting = coroutine.send(None)
        except StopIteration as done:
            return done.value
        rest = _Rest(coroutine, waiting, perf_counter() - began)
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await rest
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
    finally:
        held_s = perf_counter() - began if rest is None else rest.held_s
        if held_s >= WORTH_RECORDING_S:
            tally("held_us", round(held_s * 1e6))
