"""Workers that are processes of this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from velodrome.children import ChildProcess, spawn
from velodrome.collector.executors.worker import BoundaryFile, WorkerInit
from velodrome.collector.executors.workers import WorkerLink
from velodrome.collector.work import packed
from velodrome.errors import ServerError

_MAIN = "velodrome.collector.executors.worker:main"


@asynccontextmanager
async def worker_processes(init: WorkerInit) -> AsyncIterator[Callable[[], Awaitable[WorkerLink]]]:
    """What starts a worker; components that are shared are served from here as long as the block runs."""
    async with packed(init) as data:

        async def start() -> WorkerLink:
            fd, path = tempfile.mkstemp(prefix="velo-worker-")
            try:
                child = await spawn(_MAIN, data)
            except OSError as error:
                os.close(fd)
                os.unlink(path)
                raise ServerError(f"a worker process cannot be started: {error}") from error
            child.send(path.encode())
            return _ProcessLink(child, fd, path)

        yield start


class _ProcessLink:
    """A worker process, and the file in which it says where its only rollout is."""

    def __init__(self, child: ChildProcess, fd: int, path: str) -> None:
        self.send = child.send
        self._child = child
        self._fd = fd
        self._path = path
        self._boundary = ""

    async def receive(self) -> bytes | None:
        """The next frame; None once it has ended."""
        frame = await self._child.receive()
        if frame is None and self._fd >= 0:
            self._boundary = os.pread(self._fd, BoundaryFile.SIZE, 0).decode().strip()
            os.close(self._fd)
            self._fd = -1
            with suppress(FileNotFoundError):  # of one that ended before it opened it
                os.unlink(self._path)
        return frame

    def ending(self) -> str:
        """How it ended."""
        return self._child.ending or "running"

    def boundary(self) -> str:
        """Where the job was that it ran alone when it ended."""
        return self._boundary

    async def close(self, grace_s: float) -> None:
        """Give up what it runs and end it."""
        await self._child.close(grace_s)
