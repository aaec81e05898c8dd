"""One worker process, as its supervisor sees it: started, checked for health, restarted whenever it ends.

It is ready when `/health` answers on its private socket. That socket listens before the process exists, so the request
waits there and nothing is polled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from velodrome.children import Child, spawn
from velodrome.errors import InputError, ServerError
from velodrome.serving.process.options import ServingOptions
from velodrome.serving.process.probe import fetch

HEALTHY_S = 30.0
HEALTH_EVERY_S = 10.0
_MAIN = "velodrome.serving.process.worker_main:main"
_FIRST_S = 0.2
_LONGEST_S = 10.0
_LOG_LINES = 15
_LOG_BYTES = 16 * 1024


@dataclass
class Backoff:
    """How long to wait before a server is started again: doubling, and short again after a time of health."""

    _next_s: float = _FIRST_S

    def delay_s(self, healthy_s: float) -> float:
        """The wait after a life that was healthy for so long."""
        if healthy_s >= HEALTHY_S:
            self._next_s = _FIRST_S
        delay_s, self._next_s = self._next_s, min(self._next_s * 2, _LONGEST_S)
        return delay_s


@dataclass(eq=False)
class ServerProcess:
    """One worker process over all its restarts. `changed` is called at every change, `say` with a line for the user."""

    label: str
    log: Path
    private: tuple[str, int]  # where it answers health checks
    inherited: Sequence[int]
    environment: Mapping[str, str]
    options: ServingOptions
    brief: Callable[[], bytes]  # the first frame it is sent, made for each start
    changed: Callable[[], None]
    say: Callable[[str], None]
    status: str = "starting"
    pid: int | None = None
    restarts: int = 0
    started: float = field(default_factory=time.time)
    last_exit: str | None = None
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _child: Child | None = None
    _over: asyncio.Future[bytes | None] | None = None
    _log_start: int = 0
    _stopping: bool = False
    _restarting: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self) -> None:
        """Start it, and again whenever it ends, until `stop`. `ready` reports the first start, which must succeed."""
        backoff = Backoff()
        while True:
            failure = await self._start()
            self._report(failure)
            ready_at = time.monotonic()
            if failure is None:
                await self._ended()
            else:
                self._kill()
                await self._ended()
                if self.restarts == 0:
                    return
            if not self._stopping:
                healthy_s = 0.0 if failure else time.monotonic() - ready_at
                await self._pause(0.0 if self._restarting else backoff.delay_s(healthy_s))
            if self._stopping:
                return
            self._restarting = False
            self._wake.clear()
            self.restarts += 1

    def restart(self) -> None:
        self._restarting = True
        self._wake.set()
        self._terminate()

    def stop(self, *, now: bool = False) -> None:
        """Let it finish what is in flight and end; `now` ends it and everything it started at once."""
        self._stopping = True
        self._wake.set()
        if now:
            self._kill()
        else:
            self._terminate()

    def send(self, data: bytes) -> None:
        """One frame for the process, if there is one."""
        if self._child is not None:
            self._child.send(data)

    def _report(self, failure: InputError | ServerError | None) -> None:
        """Report the result of a start: of the first through `ready`, of a later one to the user."""
        if failure is not None and not self._stopping and not self._restarting:
            self._become("failed")
        if self.restarts == 0:
            if self.ready.done():
                return
            if failure is None:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(failure)
        elif failure is None:
            self.say(f"{self.label}: restarted (pid {self.pid})")
        elif self.status == "failed":
            self.say(str(failure))

    async def _pause(self, delay_s: float) -> None:
        when = " as requested" if self._restarting else f" in {delay_s:g} s"
        self.say(f"{self.label}: ended ({self.last_exit}); starting again{when}; log: {self.log}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), delay_s)

    async def _start(self) -> InputError | ServerError | None:
        """Start it and wait until it is ready; what went wrong, or None."""
        try:
            self._child = child = await self._spawn()
        except OSError as error:
            return ServerError(f"{self.label}: cannot be started: {error}")
        self.pid = child.pid
        self.started = time.time()
        if self._stopping:  # stopped while it was being made
            self._terminate()
        self._become("starting" if self.restarts == 0 else "restarting")
        limit_s = self.options.start_timeout_s
        health = asyncio.ensure_future(self._healthy(limit_s))
        self._over = asyncio.ensure_future(child.receive())  # why it refuses to serve, or None at its end
        either: set[asyncio.Future[Any]] = {health, self._over}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED, timeout=limit_s)
        if self._over.done():
            health.cancel()
            problems = self._over.result()
            if problems is not None:
                return InputError(*orjson.loads(problems))
            return self._log_failure(f"ended with {child.ending} before it was ready")
        if not health.done():
            health.cancel()
            return self._log_failure(f"is not ready after {limit_s:g} s")
        self._become("ok")
        return None

    async def _spawn(self) -> Child:
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            return await spawn(_MAIN, self.brief(), label=self.label, env=self.environment, log=log, fds=self.inherited)

    async def _healthy(self, limit_s: float) -> None:
        host, port = self.private
        while True:
            answer = await fetch(host, port, "/health", timeout_s=limit_s)
            if answer is not None and answer[0] == 200:
                return
            await asyncio.sleep(0.05)

    def _log_failure(self, what: str) -> ServerError:
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _LOG_BYTES))
                lines = log.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            lines = []  # removed: that must not hide the failure
        end = "".join(f"\n  {line}" for line in [line for line in lines if line.strip()][-_LOG_LINES:])
        return ServerError(f"{self.label}: {what}; the end of {self.log}:{end or ' (nothing)'}")

    async def _ended(self) -> None:
        """Wait for its end while its health is checked, and end what it may have left behind."""
        child = self._child
        if child is None or self._over is None:
            return
        watch = asyncio.create_task(self._watch_health())
        if await self._over is not None:
            await child.receive()
        watch.cancel()
        self._child = None
        self.last_exit = child.ending
        if self.status == "ok":
            self._become("restarting")

    async def _watch_health(self) -> None:
        """End a process that hangs, so that it is started again: one that is stopped, or whose loop is stuck."""
        (host, port), options, missed = self.private, self.options, 0
        while missed < options.health_misses:
            await asyncio.sleep(min(HEALTH_EVERY_S, options.health_timeout_s))
            answer = await fetch(host, port, "/health", timeout_s=options.health_timeout_s)
            missed = 0 if answer is not None else missed + 1
        self.say(f"{self.label}: hangs: no answer to {missed} health checks in a row; it is ended")
        self._kill()

    def _become(self, status: str) -> None:
        self.status = status
        self.changed()

    def _terminate(self) -> None:
        if self._child is not None:
            self._child.terminate()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
