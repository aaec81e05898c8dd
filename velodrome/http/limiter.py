"""A limit on how many may do something at once: `async with limiter:`.

Whoever comes first is served first, in whichever event loop or thread. The wait is a span `limit:<name>` whose count
names the setting and its value, so that a report can say what to change without knowing this limiter. Not waiting
leaves no span.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType

from velodrome.timing.spans import put, span


class Limiter:
    """`limit` places; None is no limit. `setting` is the key that sets it, if there is one."""

    def __init__(self, name: str, limit: int | None, setting: str = "") -> None:
        self.name = name
        self.limit = limit
        self.span = f"limit:{name}"
        self._setting = setting or "places"
        self._free = limit or 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()

    def take_at_once(self) -> bool:
        """Take a place if one is free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
        return self.limit is None

    async def __aenter__(self) -> None:
        if self.limit is None:
            return
        with self._lock:
            if self._free:
                self._free -= 1
                return
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
        with span(self.span):
            put(self._setting, self.limit)
            try:
                await place
            except asyncio.CancelledError:
                if not place.cancelled():  # it was given the place at the same moment
                    self.give_back()
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Pass the place on to the first that waits."""
        while self.limit is not None:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                place = self._waiting.popleft()
            loop = place.get_loop()
            if loop is asyncio.get_running_loop():
                if not place.done():
                    place.set_result(None)
                    return
            elif not loop.is_closed():
                loop.call_soon_threadsafe(self._give, place)
                return

    def _give(self, place: asyncio.Future[None]) -> None:
        if place.done():
            self.give_back()
        else:
            place.set_result(None)
