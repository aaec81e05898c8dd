"""Workers that are processes of this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress

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
            try:
                fd, path = tempfile.mkstemp(prefix="velo-worker-")
                with ExitStack() as undo:
                    undo.callback(os.unlink, path)
                    undo.callback(os.close, fd)
                    child = await spawn(_MAIN, data)
                    undo.pop_all()
            except OSError as error:
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
        if frame is None:
            self._forget()
        return frame

    def _forget(self) -> None:
        if self._fd >= 0:
            self._boundary = os.pread(self._fd, BoundaryFile.SIZE, 0).decode().strip()
            os.close(self._fd)
            self._fd = -1
            with suppress(FileNotFoundError):  # of one that ended before it opened it
                os.unlink(self._path)

    def ending(self) -> str:
        """How it ended."""
        return self._child.ending or "running"

    def boundary(self) -> str:
        """Where the job was that it ran alone when it ended."""
        return self._boundary

    async def close(self, grace_s: float) -> None:
        """Give up what it runs and end it."""
        try:
            await self._child.close(grace_s)
        finally:
            self._forget()
