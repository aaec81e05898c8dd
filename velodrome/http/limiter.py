"""A limit on how many may do something at once: `async with limiter:`.

First come, first served, in whichever event loop or thread. The wait is a span `limit:<name>` whose count names the
setting and its value, so that a report can say what to change without knowing this limiter. Not waiting leaves no
span.

In a worker the places are the run's: it leases them from its parent (`collector/executors/places.py`), keeps what it
has while nobody else needs it, and asks when it lacks some. That holds for limiters that are made with the components
of the worker, since they are the same in every worker; one that is made later is the worker's own.

A place is free, taken, or handed to a waiter that has not run since. A waiter that is cancelled first gives it back;
a place handed to an event loop that closed first is free again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType

from velodrome.http.leases import join
from velodrome.timing.spans import put, span


@dataclass
class Processes:
    """How many processes do the same work as this one."""

    count: int = 1


processes = Processes()


class Limiter:
    """`limit` places; None is no limit. `setting` is the key that sets it, if there is one.

    `divided`: each worker has a share of the places, and at least one, as with what its machine has.
    """

    def __init__(self, name: str, limit: int | None, setting: str = "", *, divided: bool = False) -> None:
        self.name = name
        self.limit = limit
        self.span = f"limit:{name}"
        self._setting = setting or "places"
        self._divided = divided
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        # Ids, since a future keeps its task alive: the task of a closed loop gives its place back when it is collected.
        self._handed: dict[asyncio.AbstractEventLoop, set[int]] = {}
        # Reentrant, since the garbage collector may end a task, and so give back its place, at any moment.
        self.lock = threading.RLock()
        self._lease = None if limit is None or divided else join(self, f"{name} {self._setting} {limit}")
        self._free = limit or 0 if self._lease is None else 0

    def take_at_once(self) -> bool:
        """Take a place if one is free."""
        return self.limit is None or self._take(self.limit)

    def _take(self, limit: int) -> bool:
        with self.lock:
            if self._divided:  # at the first use: it may be made before it is known how many share it
                self._divided, self._free = False, max(limit // processes.count, 1)
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
                with self.lock:
                    self._waiting[place] = None
                    self._hand_out()
                await place
            except (asyncio.CancelledError, GeneratorExit):
                with self.lock:
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
            with self.lock:
                self._free += 1
                if self._waiting or self._lease is not None:
                    self._hand_out()

    def lend(self, granted: int, owed: int, wanted: int) -> None:
        """The run lends so many more places, and says how many it needs back. Each is used once before."""
        with self.lock:
            if self._lease is not None:
                self._free += granted
                self._lease.told(granted, 0, 0)
                self._hand_out()
                self._lease.told(0, owed, wanted)
                self._hand_out()

    def keep(self) -> None:
        """Nobody lends any more: the places are its own."""
        with self.lock:
            self._lease, self._free = None, self.limit or 0
            self._hand_out()

    def _hand_out(self) -> None:
        """Hand the free places to those that wait. The lock is held. A worker first gives back what it owes."""
        for loop in list(self._handed):
            if loop.is_closed():
                self._free += len(self._handed.pop(loop, ()))
        if self._lease is not None:
            self._free -= self._lease.pay(self._free)
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
        if self._lease is not None:
            self._free -= self._lease.settle(self._free, len(self._waiting))

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
