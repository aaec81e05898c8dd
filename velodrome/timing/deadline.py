"""A time limit for a block, cheap enough for every call: `with deadline(600.0):`.

An `asyncio.timeout` sets its own timer, which costs more than many calls and almost never fires. Here all limits of an
event loop share one timer that runs a few times a second, so a limit is accurate to `TICK_S`.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

TICK_S = 0.05


class deadline:
    """Cancel the block when its time is over, and raise `TimeoutError` in its place."""

    __slots__ = ("_before", "_seconds", "_task", "_until", "_watch", "expired")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.expired = False

    def __enter__(self) -> deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._before = task.cancelling()
        self._watch = _watch(task.get_loop())
        self._until = self._watch.add(self, self._seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.open.discard(self)
        if not self.expired:
            return
        mine = self._task.uncancel() <= self._before  # it was not also cancelled for another reason
        if mine and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise TimeoutError from error

    def look(self, now: float) -> bool:
        """Cancel the block if its time is over. Returns whether it was."""
        if now < self._until:
            return False
        self.expired = True
        self._task.cancel()
        return True


class _Watch:
    """The open limits of one event loop, and the timer that checks them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.open: set[deadline] = set()
        self.loop = loop
        self._ticking = False

    def add(self, limit: deadline, seconds: float) -> float:
        self.open.add(limit)
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(TICK_S, self._tick)
        return self.loop.time() + seconds

    def _tick(self) -> None:
        now = self.loop.time()
        self.open -= {limit for limit in self.open if limit.look(now)}
        self._ticking = bool(self.open)
        if self._ticking:
            self.loop.call_later(TICK_S, self._tick)


class _Here(threading.local):
    watch: _Watch | None = None  # of the loop that ran last in this thread


_here = _Here()


def _watch(loop: asyncio.AbstractEventLoop) -> _Watch:
    watch = _here.watch
    if watch is None or watch.loop is not loop:
        watch = _here.watch = _Watch(loop)
    return watch
