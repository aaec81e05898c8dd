"""One worker process, as its supervisor sees it: started, checked for health, restarted whenever it ends.

It is ready when `/health` answers on its private socket. That socket listens before the process exists, so the question
waits there and nothing is polled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from velodrome.errors import InputError, ServerError
from velodrome.serving.process.brief import problems_file
from velodrome.serving.process.options import ServingOptions
from velodrome.serving.process.probe import fetch

HEALTHY_S = 30.0
HEALTH_EVERY_S = 10.0
_ROOT = Path(__file__).parents[3]
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


@dataclass(frozen=True)
class Orders:
    """How a worker is started: its brief, what it inherits, where it answers, where it logs."""

    label: str
    brief: Path
    inherited: Sequence[int]
    private: tuple[str, int]
    log: Path
    environment: Mapping[str, str]
    options: ServingOptions


@dataclass(eq=False)
class Child:
    """The process and its fate. `changed` is called at every change, `say` with a line for the person who watches."""

    orders: Orders
    changed: Callable[[], None]
    say: Callable[[str], None]
    status: str = "starting"
    pid: int | None = None
    restarts: int = 0
    started: float = field(default_factory=time.time)
    last_exit: str | None = None
    _process: asyncio.subprocess.Process | None = None
    _log_start: int = 0
    _ready_at: float | None = None
    _stopping: bool = False
    _restarting: bool = False
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self, ready: asyncio.Future[None]) -> None:
        """Start, report how the first start went, then keep it running until `stop`."""
        backoff = Backoff()
        try:
            await self._start()
        except (InputError, ServerError) as error:
            await self._end()
            if not ready.done():
                ready.set_exception(error)
            return
        if not ready.done():
            ready.set_result(None)
        while True:
            watch = asyncio.create_task(self._watch_health())
            await self._ended()
            watch.cancel()
            if self._stopping:
                return
            healthy_s = 0.0 if self._ready_at is None else time.monotonic() - self._ready_at
            await self._pause(0.0 if self._restarting else backoff.delay_s(healthy_s))
            if self._stopping:
                return
            await self._again()

    def restart(self) -> None:
        """Restart it, without a wait."""
        self._restarting = True
        self._hurry.set()
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask it to finish what is in flight and end; it is not started again."""
        self._stopping = True
        self._hurry.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and everything it started, at once."""
        self._stopping = True
        self._hurry.set()
        self._signal(signal.SIGKILL)

    async def _again(self) -> None:
        """One more start; it may fail, and then its end is met like any other."""
        self._restarting = False
        self._hurry.clear()
        self.restarts += 1
        try:
            await self._start()
            self.say(f"{self.orders.label}: restarted (pid {self.pid})")
        except (InputError, ServerError) as error:
            if not self._stopping and not self._restarting:
                self._become("failed")
                self.say(str(error))
            self._signal(signal.SIGKILL)

    async def _pause(self, delay_s: float) -> None:
        when = " as requested" if self._restarting else f" in {delay_s:g} s"
        self.say(f"{self.orders.label}: ended ({self.last_exit}); starting again{when}; log: {self.orders.log}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), delay_s)

    async def _start(self) -> None:
        orders = self.orders
        problems_file(orders.brief).unlink(missing_ok=True)
        self._ready_at = None
        try:
            self._process = await self._spawn()
        except OSError as error:
            raise ServerError(f"{orders.label}: cannot be started: {error}") from error
        self.pid = self._process.pid
        self.started = time.time()
        if self._stopping:  # stopped while it was being made
            self._signal(signal.SIGTERM)
        self._become("starting" if self.restarts == 0 else "restarting")
        await self._become_ready(self._process)
        self._ready_at = time.monotonic()
        self._become("ok")

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self.orders.log.open("ab") as log:
            self._log_start = log.tell()
            return await asyncio.create_subprocess_exec(
                *_command(self.orders.brief),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self.orders.inherited,
                env=self.orders.environment,
                start_new_session=True,  # Ctrl-C at the terminal is not for it, and its group can be ended whole
            )

    async def _become_ready(self, process: asyncio.subprocess.Process) -> None:
        limit_s = self.orders.options.start_timeout_s
        health = asyncio.ensure_future(self._healthy(limit_s))
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({health, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=limit_s)
            if ended.done():
                raise self._failure(f"ended with {_how(ended.result())} before it was ready")
            if not health.done():
                raise self._failure(f"is not ready after {limit_s:g} s")
        finally:
            health.cancel()
            ended.cancel()

    async def _watch_health(self) -> None:
        """End a process that hangs, so that it is started again: one that is stopped, or whose loop is stuck."""
        (host, port), options, missed = self.orders.private, self.orders.options, 0
        if self._ready_at is None:
            return
        while missed < options.health_misses:
            await asyncio.sleep(min(HEALTH_EVERY_S, options.health_timeout_s))
            answer = await fetch(host, port, "/health", timeout_s=options.health_timeout_s)
            missed = 0 if answer is not None else missed + 1
        self.say(f"{self.orders.label}: hangs: no answer to {missed} health checks in a row; it is ended")
        self._signal(signal.SIGKILL)

    async def _healthy(self, limit_s: float) -> None:
        host, port = self.orders.private
        while True:
            answer = await fetch(host, port, "/health", timeout_s=limit_s)
            if answer is not None and answer[0] == 200:
                return
            await asyncio.sleep(0.05)

    def _failure(self, what: str) -> InputError | ServerError:
        """A failed start as an error: the user's mistakes in their own words, else the end of the log."""
        try:
            problems = orjson.loads(problems_file(self.orders.brief).read_bytes())
            return InputError(*problems)
        except (OSError, orjson.JSONDecodeError):
            said = "".join(f"\n  {line}" for line in self._log_end())
            return ServerError(f"{self.orders.label}: {what}; the end of {self.orders.log}:{said or ' (nothing)'}")

    def _log_end(self) -> list[str]:
        try:
            with self.orders.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _LOG_BYTES))
                lines = log.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return []  # removed: that must not hide the failure
        return [line for line in lines if line.strip()][-_LOG_LINES:]

    async def _ended(self) -> None:
        """Wait for its end, and end what it may have left behind."""
        if self._process is None:
            return
        code = await self._process.wait()
        self._signal(signal.SIGKILL)
        self._process = None
        self.last_exit = _how(code)
        if self.status == "ok":
            self._become("restarting")

    async def _end(self) -> None:
        self._signal(signal.SIGKILL)
        await self._ended()
        self._become("failed")

    def _become(self, status: str) -> None:
        self.status = status
        self.changed()

    def _signal(self, number: signal.Signals) -> None:
        """To the worker alone if it should end gently; to its whole group if not."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


def _how(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _command(brief: Path) -> list[str]:
    """The worker's command line. The working directory is searched for modules only if this package came from there."""
    from_here = Path.cwd() == _ROOT
    return [sys.executable, *([] if from_here else ["-P"]), "-m", "velodrome.serving.process.worker_main", str(brief)]
