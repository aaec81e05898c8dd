"""A limit on how many may do something at once: `async with limiter:`.

Whoever comes first is served first. The wait is a span `limit:<name>` whose count names the setting and its value, so
that a report can say what to change without knowing this limiter. Not waiting leaves no span.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from velodrome.timing.spans import put, span


class Limiter:
    """`limit` places; None is no limit. `setting` is the key that sets it."""

    def __init__(self, name: str, limit: int | None, setting: str = "max_concurrent") -> None:
        self.name = name
        self.limit = limit
        self._setting = setting
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> None:
        if self.limit is None:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a component may be used by one event loop after another
            self._loop, self._places = loop, asyncio.Semaphore(self.limit)
        if self._places.locked():
            with span(f"limit:{self.name}"):
                put(self._setting, self.limit)
                await self._places.acquire()
        else:
            await self._places.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.limit is not None:
            self._places.release()
