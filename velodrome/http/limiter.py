"""A limit on how many may do something at once: `async with limiter:`.

First come, first served, in whichever event loop or thread. The wait is a span `limit:<name>` whose count names the
setting and its value, so that a report can say what to change without knowing this limiter. Not waiting leaves no
span.

Of several processes that do the same work each has its share of the places.

A place is free, taken, or handed to a waiter that has not run since. A waiter that is cancelled first gives it back;
a place handed to an event loop that closed first is free again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType

from velodrome.timing.spans import put, span


@dataclass
class Processes:
    """How many processes share the places of limiters with this one."""

    count: int = 1


processes = Processes()


class Limiter:
    """`limit` places; None is no limit. `setting` is the key that sets it, if there is one."""

    def __init__(self, name: str, limit: int | None, setting: str = "") -> None:
        self.name = name
        self.limit = limit
        self.span = f"limit:{name}"
        self._setting = setting or "places"
        self._free = limit or 0
        self._shared = False
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        # Ids, since a future keeps its task alive: the task of a closed loop gives its place back when it is collected.
        self._handed: dict[asyncio.AbstractEventLoop, set[int]] = {}
        # Reentrant, since the garbage collector may end a task, and so give back its place, at any moment.
        self._lock = threading.RLock()

    def take_at_once(self) -> bool:
        """Take a place if one is free."""
        return self.limit is None or self._take(self.limit)

    def _take(self, limit: int) -> bool:
        with self._lock:
            if not self._shared:  # at the first use: a limiter may be made before it is known how many share it
                self._shared, self._free = True, max(limit // processes.count, 1)
            if self._free:
                self._free -= 1
                return True
        return False

    async def __aenter__(self) -> None:
        if self.limit is None or self._take(self.limit):
            return
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        with span(self.span):
            put(self._setting, self.limit)
            try:
                with self._lock:
                    self._waiting[place] = None
                    self._hand_out()
                await place
            except (asyncio.CancelledError, GeneratorExit):
                with self._lock:
                    self._waiting.pop(place, None)
                    self._take_back(loop, place)  # it may have been handed one at the same moment
                    self._hand_out()
                raise
            self._handed[loop].remove(id(place))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Pass the place on to the first that waits."""
        if self.limit is not None:
            with self._lock:
                self._free += 1
                if self._waiting:
                    self._hand_out()

    def _hand_out(self) -> None:
        """Hand the free places to those that wait. The lock is held."""
        for loop in list(self._handed):
            if loop.is_closed():
                self._free += len(self._handed.pop(loop, ()))
        while self._free and self._waiting:
            self._free -= 1
            place, _ = self._waiting.popitem(last=False)
            if place.done():  # cancelled
                self._free += 1
                continue
            loop = place.get_loop()
            self._handed.setdefault(loop, set()).add(id(place))
            try:
                if loop is _running_loop():
                    place.set_result(None)
                else:
                    loop.call_soon_threadsafe(_wake, place)
            except RuntimeError:  # it is closed
                self._take_back(loop, place)

    def _take_back(self, loop: asyncio.AbstractEventLoop, place: asyncio.Future[None]) -> None:
        """Free the place if it was handed to this waiter. The lock is held."""
        ids = self._handed.get(loop)
        if ids is not None and id(place) in ids:
            ids.remove(id(place))
            self._free += 1


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)
