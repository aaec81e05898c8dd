"""The supervisor's side of one worker process: start it, check its health, restart it whenever it ends.

The process is ready when `/health` answers on its private socket. The socket listens before the process exists, so the
request waits there without polling.
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
    """The delay before a restart: it doubles, and is short again after a healthy period."""

    _next_s: float = _FIRST_S

    def delay_s(self, healthy_s: float) -> float:
        """The delay after a process that was healthy for this long."""
        if healthy_s >= HEALTHY_S:
            self._next_s = _FIRST_S
        delay_s, self._next_s = self._next_s, min(self._next_s * 2, _LONGEST_S)
        return delay_s


@dataclass(eq=False)
class ServerProcess:
    """One worker process over all its restarts. Calls `changed` at every change, and `say` with lines for the user."""

    label: str
    log: Path
    private: tuple[str, int]  # the address for health checks
    inherited: Sequence[int]
    environment: Mapping[str, str]
    options: ServingOptions
    brief: Callable[[], bytes]  # makes its first frame, for each start
    changed: Callable[[], None]
    say: Callable[[str], None]
    status: str = "starting"
    pid: int | None = None
    restarts: int = 0
    started: float = field(default_factory=time.time)
    last_exit: str | None = None
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _child: Child | None = None
    _first_frame: asyncio.Future[bytes | None] | None = None
    _log_start: int = 0
    _stopping: bool = False
    _restarting: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self) -> None:
        """Start it, and restart it whenever it ends, until `stop`. `ready` has the result of the first start."""
        backoff = Backoff()
        while True:
            failure = await self._start()
            self._report(failure)
            ready_at = time.monotonic()
            if failure is None:
                await self._wait_for_end()
            else:
                self._kill()
                await self._wait_for_end()
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
        """End it after its requests in flight; with `now`, kill its whole group."""
        self._stopping = True
        self._wake.set()
        if now:
            self._kill()
        else:
            self._terminate()

    def send(self, data: bytes) -> None:
        """Send one frame to the process, if it runs."""
        if self._child is not None:
            self._child.send(data)

    def _report(self, failure: InputError | ServerError | None) -> None:
        """Report the result of a start: the first through `ready`, later ones to the user."""
        if failure is not None and not self._stopping and not self._restarting:
            self._set_status("failed")
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
        """Start it and wait until it is ready. Returns the error, or None."""
        try:
            self._child = child = await self._spawn()
        except OSError as error:
            return ServerError(f"{self.label}: cannot be started: {error}")
        self.pid = child.pid
        self.started = time.time()
        if self._stopping:  # stopped during the start
            self._terminate()
        self._set_status("starting" if self.restarts == 0 else "restarting")
        limit_s = self.options.start_timeout_s
        health = asyncio.ensure_future(self._healthy(limit_s))
        self._first_frame = asyncio.ensure_future(
            child.receive()
        )  # the reasons why it cannot serve, or None at its end
        either: set[asyncio.Future[Any]] = {health, self._first_frame}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED, timeout=limit_s)
        if self._first_frame.done():
            health.cancel()
            problems = self._first_frame.result()
            if problems is not None:
                return InputError(*orjson.loads(problems))
            return self._log_failure(f"ended with {child.ending} before it was ready")
        if not health.done():
            health.cancel()
            return self._log_failure(f"is not ready after {limit_s:g} s")
        self._set_status("ok")
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
            lines = []  # the log was removed: still report the failure
        end = "".join(f"\n  {line}" for line in [line for line in lines if line.strip()][-_LOG_LINES:])
        return ServerError(f"{self.label}: {what}; the end of {self.log}:{end or ' (nothing)'}")

    async def _wait_for_end(self) -> None:
        """Check its health until it ends, and kill the rest of its group."""
        child = self._child
        if child is None or self._first_frame is None:
            return
        watch = asyncio.create_task(self._watch_health())
        if await self._first_frame is not None:
            await child.receive()
        watch.cancel()
        self._child = None
        self.last_exit = child.ending
        if self.status == "ok":
            self._set_status("restarting")

    async def _watch_health(self) -> None:
        """Kill a process that hangs (stopped, or its loop is stuck), so that it is restarted."""
        (host, port), options, missed = self.private, self.options, 0
        while missed < options.health_misses:
            await asyncio.sleep(min(HEALTH_EVERY_S, options.health_timeout_s))
            answer = await fetch(host, port, "/health", timeout_s=options.health_timeout_s)
            missed = 0 if answer is not None else missed + 1
        self.say(f"{self.label}: hangs: no answer to {missed} health checks in a row; it is killed")
        self._kill()

    def _set_status(self, status: str) -> None:
        self.status = status
        self.changed()

    def _terminate(self) -> None:
        if self._child is not None:
            self._child.terminate()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
