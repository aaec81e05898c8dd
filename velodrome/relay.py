"""What a task makes, as an iterator.

The task hands over each thing as it is made, and waits where the reader is far behind. Its error is raised after what
it handed over before. Closing the iterator ends the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

_Made = TypeVar("_Made")
Put = Callable[[_Made], Awaitable[None]]

_AHEAD = 1024  # that the reader has not taken yet
_END = object()


async def relayed(work: Callable[[Put[_Made]], Coroutine[Any, Any, None]]) -> AsyncGenerator[_Made, None]:
    """What this coroutine function puts, in order."""
    queue: asyncio.Queue[Any] = asyncio.Queue(_AHEAD)

    async def run() -> None:
        try:
            await work(queue.put)
        except Exception:
            await queue.put(_END)
            raise
        await queue.put(_END)

    task = asyncio.create_task(run())
    try:
        while (made := await queue.get()) is not _END:
            yield made
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report it
