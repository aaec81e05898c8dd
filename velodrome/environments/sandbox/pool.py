"""Boxes on demand, with a task's files. A few are started ahead: a program then waits for its own start only."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import velodrome.environments.sandbox.bubblewrap as bubblewrap
import velodrome.environments.sandbox.plain as plain
from velodrome.environments.sandbox.box import Sandbox
from velodrome.environments.sandbox.link import Limits, Link, Start
from velodrome.errors import InputError, TaskError

_log = logging.getLogger(__name__)


class Sandboxes:
    """Opens boxes. `warm` is how many are kept ready (None: one per core) once the first was opened.

    `backend` is the kind of sandbox, known when the first was opened: "bubblewrap" or "unsafe". "unsafe" can be asked
    for, and needs `allow_unsafe`, too.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        warm: int | None = None,
        allow_unsafe: bool = False,
        backend: Literal["bubblewrap", "unsafe"] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.warm = (os.cpu_count() or 1) if warm is None else warm
        self.allow_unsafe = allow_unsafe
        self.backend = backend
        self._how: Start | None = None  # known when the first box was opened
        self._ready: deque[asyncio.Task[Sandbox]] = deque()
        self._open: set[Sandbox] = set()

    async def check(self) -> None:
        """InputError if no kind of sandbox works here that is allowed. Opens none."""
        await self._choose()

    async def _choose(self) -> Start:
        """Bubblewrap if it works here; else a plain process, if that is allowed."""
        if self._how is None:
            problem = None if self.backend == "unsafe" else await asyncio.to_thread(bubblewrap.problem)
            if self.backend == "unsafe" or problem:
                self.backend, self._how = "unsafe", self._unprotected(problem or "not to be used")
            else:
                self.backend, self._how = "bubblewrap", bubblewrap.start
        return self._how

    def _unprotected(self, problem: str) -> Start:
        if not self.allow_unsafe:
            raise InputError(
                f"no sandbox works on this machine (bubblewrap: {problem}); hint: see docs/sandbox.md#no-sandbox-works,"
                " or run the model's code unprotected with allow_unsafe=true"
            )
        _warn_once()
        return plain.start

    async def open(self, files: Mapping[str, str | bytes] | None = None) -> Sandbox:
        """A fresh box with these files."""
        box = await self._next()
        try:
            for path, data in (files or {}).items():
                await box.write(path, data)
        except BaseException:
            await box.close()
            raise
        return box

    async def _next(self) -> Sandbox:
        task = self._ready.popleft() if self._ready else asyncio.create_task(self._start())
        try:
            box = await asyncio.shield(task)
        except asyncio.CancelledError:
            self._ready.append(task)  # for the next one who asks
            raise
        while len(self._ready) < self.warm:
            self._ready.append(asyncio.create_task(self._start()))
        return await self._next() if box.ended else box  # a box that waited may have been killed

    async def _start(self) -> Sandbox:
        link = await Link.open(await self._choose(), self.limits.disk_mb)
        box = Sandbox(link, self.limits, self._open.discard)
        self._open.add(box)
        return box

    async def aclose(self) -> None:
        """Close every box, the warm ones too."""
        starting = list(self._ready)
        self._ready.clear()
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(box.close() for box in list(self._open)))


def texts_by_path(holder: dict[str, Any]) -> dict[str, str]:
    """The `files` of a task or of a part of it, or a `TaskError`."""
    files = holder.get("files") or {}
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise TaskError('"files" must be an object: the text of each file by its path')
    return files


async def open_with_files(boxes: Sandboxes, task: dict[str, Any]) -> Sandbox:
    """A sandbox with the task's files."""
    try:
        return await boxes.open(files=texts_by_path(task))
    except OSError as error:
        raise TaskError(f'"files": "{error.filename}" cannot be written: {error.strerror}') from error


@cache
def _warn_once() -> None:
    _log.warning("allow_unsafe: the model's code runs WITHOUT a sandbox: it can read, write and reach what you can")
