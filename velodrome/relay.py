"""What several tasks make, as one iterator.

A task hands over each thing as it is made, and waits where the reader is far behind. The first task that fails ends
the others and the iterator, with its error. Closing the iterator ends them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

_Made = TypeVar("_Made")
Put = Callable[[_Made], Awaitable[None]]

_AHEAD = 1024  # that the reader has not taken yet


async def relayed(*works: Callable[[Put[_Made]], Coroutine[Any, Any, None]]) -> AsyncGenerator[_Made, None]:
    """What these coroutine functions `put`, in the order in which they do."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    room = asyncio.Semaphore(_AHEAD)

    async def put(made: _Made) -> None:
        await room.acquire()
        queue.put_nowait(made)

    tasks = [asyncio.create_task(work(put)) for work in works]
    for task in tasks:
        task.add_done_callback(_read)
        task.add_done_callback(queue.put_nowait)  # after all that it has put
    running = len(tasks)
    try:
        while running:
            made = await queue.get()
            if isinstance(made, asyncio.Task):
                made.result()
                running -= 1
                continue
            room.release()
            yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _read(task: asyncio.Task[None]) -> None:
    """Read the error, so that asyncio does not report it: only the first is raised."""
    if not task.cancelled():
        task.exception()
