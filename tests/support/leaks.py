"""What a call may leave behind: open sockets, asyncio tasks and threads, counted before and after."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


def open_sockets() -> set[str]:
    """The sockets of this process, by inode."""
    sockets = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith("socket:"):
            sockets.add(target)
    return sockets


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Raises if the block leaves a socket, a task or a thread."""
    sockets, tasks, threads = open_sockets(), asyncio.all_tasks(), set(threading.enumerate())
    gc.freeze()  # what other tests loaded is not searched
    try:
        yield
    finally:
        await asyncio.sleep(0)  # transports close on the next turn of the loop
        gc.collect()
        gc.unfreeze()
        if open_sockets() - sockets:  # a cycle with what was there before
            gc.collect()
        assert asyncio.all_tasks() - tasks == set()
        for thread in set(threading.enumerate()) - threads:
            thread.join(5)  # one of a closed loop's workers is about to end
        assert set(threading.enumerate()) - threads == set()
        assert open_sockets() - sockets == set()
