"""A worker process: it receives jobs and sends each finished attempt at once. The parent limits how many run.

It runs the same code as a run without workers (`Inline`), with a copy of the components. It plans, writes and counts
nothing; notes and log lines go to the parent. It ends when its parent ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from velodrome import errors, scope
from velodrome.children import ParentChannel, read_frame, write_frame
from velodrome.collector.executors.frames import attempts_frame, frame
from velodrome.collector.executors.inline import Inline
from velodrome.collector.executors.outage import Outage
from velodrome.collector.plan import Job
from velodrome.collector.watch.samples import BUSY, sampling
from velodrome.collector.work import RunJob, Work, unpack
from velodrome.http.limiter import Share, sharing
from velodrome.rates import limited, make_rates

Json = dict[str, Any]

_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker. The limits are those of the whole run."""

    share: Share  # of the limits
    server_wait_s: float
    connections: scope.PoolLimits
    log_level: int
    requests_per_minute: int | None
    tokens_per_minute: int | None


class Waiting:
    """Jobs that a worker has received and not started."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.ended = False

    def take(self) -> Job | None:
        return self.jobs.popleft() if self.jobs else None


def main(channel: ParentChannel) -> None:
    """Run the worker process. Output that components print goes to stderr: stdout belongs to the parent."""
    import uvloop

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop
    gc.set_threshold(50_000, 20, 20)
    settings, work = channel.receive(), channel.receive()
    if settings is not None and work is not None:
        with redirect_stdout(sys.stderr):
            uvloop.run(serve(channel, pickle.loads(settings), work))


async def serve(channel: ParentChannel, settings: WorkerSettings, work: bytes) -> None:
    """Run until the parent ends the channel."""
    reader, writer = await asyncio.open_unix_connection(sock=channel.socket)
    core = WorkerCore(lambda frame: write_frame(writer, frame), writer.drain)
    listening = asyncio.create_task(_listen(reader, core))
    try:
        await core.run(settings, work)
    finally:
        listening.cancel()
    await writer.drain()


async def _listen(reader: asyncio.StreamReader, core: WorkerCore) -> None:
    while (frame := await read_frame(reader)) is not None:
        core.feed(frame)
    core.end()


class WorkerCore:
    """A worker over any transport: `send` queues a frame for the parent, `drain` waits until there is room.

    `refusal` formats the reason why the work cannot be set up here.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
        refusal: Callable[[str], str] = str,
    ) -> None:
        self._send, self._drain, self._refusal = send, drain, refusal
        self._around: Json = {}  # written into the rows
        self._waiting = Waiting()
        self._early: list[bytes] = []  # frames that arrived before the executor existed
        self._executor: Inline | None = None
        self._outage: Outage | None = None

    async def run(self, settings: WorkerSettings, data: bytes) -> None:
        """Run until `end`. If the work cannot be set up here, report that and return."""
        async with scope.Scope() as call:
            call.rate_limited = lambda retry_after_s: self._send(frame(rate_limited=retry_after_s))
            try:
                self._around["workers"] = settings.share.count
                scope.connections.limit = max(settings.share.of(settings.connections.limit), 1)
                scope.connections.limit_per_host = max(settings.share.of(settings.connections.limit_per_host), 1)
                send_logs(self._send, settings.log_level)
                with sharing(settings.share):
                    work: Work = unpack(data)
                    run_job = work.connect(self._around)
            except Exception as error:  # noqa: BLE001 - the edge of a process: the parent reports it
                reason = str(error) if isinstance(error, errors.InputError) else errors.describe(error)
                self._send(frame(refused=[self._refusal(reason)]))
                await self._drain()
                return
            self._send(frame(ready=True))
            try:
                rates = make_rates(
                    settings.requests_per_minute, settings.tokens_per_minute, workers=settings.share.count
                )
                with limited(rates):
                    await self._run_jobs(settings, run_job)
            finally:
                await work.aclose()

    async def _run_jobs(self, settings: WorkerSettings, run_job: RunJob) -> None:
        def send(**fields: Any) -> None:
            self._send(frame(**fields))

        def dropped(job: Job) -> None:
            send(dropped=job.place)

        self._outage = Outage(settings.server_wait_s, lambda text: send(note=text), lambda reason: send(stop=reason))
        executor = Inline(run_job, self._outage, limit=_NO_LIMIT, dropped=dropped)
        self._executor = executor
        for data in self._early:
            self.feed(data)
        if self._waiting.ended:
            executor.cancel(now=True)
        async with sampling(self._around.update):
            async for batch in executor.run(self._waiting):
                self._send(attempts_frame(batch))
                await self._drain()

    def feed(self, data: bytes) -> None:
        """Handle a frame from the parent."""
        if self._executor is None or self._outage is None:
            self._early.append(data)
            return
        message = pickle.loads(data)
        if "jobs" in message:
            around = {name: value for name, value in message["around"].items() if name not in BUSY}
            decisions = [*self._around.pop("pace", ()), *around.pop("pace", ())]
            self._around.pop("read_s", None)
            self._around |= around | ({"pace": decisions} if decisions else {})
            self._waiting.jobs.extend(message["jobs"])
            self._executor.wake()
        elif "stop" in message:
            self._outage.stop()  # jobs that wait for a server are dropped; running ones may finish
        else:
            self._executor.cancel(now=message["cancel"])

    def end(self) -> None:
        """Cancel the attempts in flight: the parent has ended the run."""
        self._waiting.ended = True
        if self._executor is not None:
            self._executor.cancel(now=True)


class _ParentLog(logging.Handler):
    """Sends log lines to the parent, which shows them above its progress bar."""

    def __init__(self, send: Any) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record).encode(errors="backslashreplace").decode()
            self._send(frame(log=[record.levelno, record.name, text]))
        except Exception:  # noqa: BLE001 - as the handlers of the standard library: logging fails no rollout
            self.handleError(record)


def send_logs(send: Any, level: int) -> None:
    """Send all log lines of this process to the parent, from any thread."""
    loop = asyncio.get_running_loop()
    handler = _ParentLog(lambda frame: loop.call_soon_threadsafe(send, frame))
    logging.basicConfig(level=level, handlers=[handler], format="%(message)s", force=True)
