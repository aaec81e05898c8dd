"""A limit on how many may do something at once: `async with limiter:`.

First come, first served, in whichever event loop or thread. The wait is a span `limit:<name>` whose count names the
setting and its value, so that a report can say what to change without knowing this limiter. Not waiting leaves no
span.

Worker processes divide the places of the limiters that are made with their components (`sharing`). A limiter that is
made later belongs to its process.

A place is free, taken, or handed to a waiter that has not run since. A waiter that is cancelled first gives it back.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

from velodrome.errors import InputError
from velodrome.timing.spans import put, span


@dataclass(frozen=True)
class Share:
    """One of `count` worker processes, which divide what a run may use."""

    number: int = 0
    count: int = 1

    def of(self, places: int) -> int:
        """This worker's share of so many places."""
        return places // self.count + (self.number < places % self.count)


_ALONE = Share()
_share: ContextVar[Share] = ContextVar("velodrome_share", default=_ALONE)


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """Limiters that are made in this block have only a share of their places."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


class Limiter:
    """`limit` places; None is no limit. `setting` is the key that sets it, if there is one.

    Every worker needs at least one place. `divided`: the places stand for what the machine has, so a worker takes one
    even if there are fewer than workers; other limits are refused then.
    """

    def __init__(self, name: str, limit: int | None, setting: str = "", *, divided: bool = False) -> None:
        self.name = name
        self.limit = limit
        self.span = f"limit:{name}"
        self._setting = setting or "places"
        self._waiting: deque[asyncio.Future[None]] = deque()
        # By id: a future in here would keep its task alive, which gives its place back when it is collected.
        self._handed: set[int] = set()
        # Reentrant: the garbage collector may end a task at any moment, and with it give back its place.
        self._lock = threading.RLock()
        share = _share.get()
        if limit is not None and limit < share.count and not divided:
            raise InputError(
                f"{self._setting}={limit}: {share.count} workers divide these places ({name}), and each needs one;"
                " use fewer workers, or allow more at once"
            )
        self._free = max(share.of(limit or 0), 1)

    def take_at_once(self) -> bool:
        """Take a place if one is free."""
        if self.limit is None:
            return True
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
            return True

    async def __aenter__(self) -> None:
        if self.take_at_once():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with span(self.span):
            put(self._setting, self.limit or 0)
            try:
                with self._lock:
                    self._waiting.append(place)
                    self._hand_out()
                await place
            except (asyncio.CancelledError, GeneratorExit):
                with self._lock:
                    if id(place) in self._handed:  # at the same moment
                        self._handed.remove(id(place))
                        self.give_back()
                    elif place in self._waiting:
                        self._waiting.remove(place)
                raise
            with self._lock:
                self._handed.discard(id(place))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Pass the place on to the first that waits."""
        if self.limit is not None:
            with self._lock:
                self._free += 1
                self._hand_out()

    def _hand_out(self) -> None:
        """Hand the free places to those that wait. The lock is held."""
        while self._free and self._waiting:
            place = self._waiting.popleft()
            if place.done():  # cancelled
                continue
            try:
                place.get_loop().call_soon_threadsafe(_wake, place)
            except RuntimeError:  # the loop is closed
                continue
            self._free -= 1
            self._handed.add(id(place))


def _wake(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)
