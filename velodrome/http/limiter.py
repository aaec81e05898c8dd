"""A limit on concurrent operations: `async with limiter:`.

First come, first served, across event loops and threads. A wait is recorded as a span `limit:<name>` whose count names
the setting and its value, so that a report can name the setting to change. Without a wait there is no span.

Worker processes divide the places of the limiters created with their components (`sharing`). A limiter created later
belongs to its process.

A place is free, taken, or handed to a waiter that has not run yet. A waiter cancelled before it runs gives it back.
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
    """Worker process `number` of the `count` that divide the limits of a run."""

    number: int = 0
    count: int = 1

    def of(self, places: int) -> int:
        """The number of these places that this worker gets."""
        return places // self.count + (self.number < places % self.count)


_ALONE = Share()
_share: ContextVar[Share] = ContextVar("velodrome_share", default=_ALONE)


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """Limiters created in this block get only a share of their places."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


class Limiter:
    """`limit` places; None means no limit. `setting` is the settings key of the limit, if it has one.

    Every worker needs at least one place. With `divided` the places are resources of the machine, and every worker gets
    one even if there are more workers than places; any other limit is then an error.
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
        """Release a place; the longest-waiting caller gets it."""
        if self.limit is not None:
            with self._lock:
                self._free += 1
                self._hand_out()

    def _hand_out(self) -> None:
        """Hand the free places to waiting callers. The caller holds the lock."""
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
