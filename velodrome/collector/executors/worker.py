"""A worker process: jobs in, finished attempts out, as soon as they are finished. It has no limit of its own.

It runs the same code as a run without workers (`Inline`), over its own copy of the components. It plans, writes and
counts nothing; what it has to say goes to the parent. It ends with its parent, whatever ends that.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections import deque
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import orjson

from velodrome import errors, scope
from velodrome.children import ParentChannel, read_frame, write_frame
from velodrome.collector.account import Surroundings
from velodrome.collector.executors.frames import attempts_frame, event, take_jobs
from velodrome.collector.executors.inline import Inline
from velodrome.collector.executors.outage import Outage
from velodrome.collector.plan import Job
from velodrome.collector.watch.pulse import beating
from velodrome.collector.work import RunJob, Work, unpack

_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class WorkerInit:
    """What a worker needs to know at its start."""

    work: Work
    server_wait_s: float
    recorded: bool  # whether somebody watches, and wants spans
    connections: scope.PoolLimits
    log_level: int


class Waiting:
    """The jobs that a worker was given and has not started."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.ended = False

    def take(self) -> Job | None:
        return self.jobs.popleft() if self.jobs else None


def main(channel: ParentChannel) -> None:
    """Run in a process of its own. What code of components prints goes to stderr: stdout is the parent's result."""
    import uvloop

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop
    gc.set_threshold(50_000, 20, 20)
    data, path = channel.receive(), channel.receive()
    if data is not None and path is not None:
        with redirect_stdout(sys.stderr):
            uvloop.run(serve(channel, data, BoundaryFile(path.decode())))


async def serve(channel: ParentChannel, data: bytes, boundary: BoundaryFile) -> None:
    """Until the parent wants no more. A work that cannot be set up here is reported, and the worker ends."""
    reader, writer = await asyncio.open_unix_connection(sock=channel.socket)

    def send(frame: bytes) -> None:
        write_frame(writer, frame)

    async with scope.Scope():
        try:
            init: WorkerInit = unpack(data)
            scope.connections.limit = init.connections.limit
            scope.connections.limit_per_host = init.connections.limit_per_host
            logs_go_to(send, init.log_level)
            around = Surroundings()
            run_job = init.work.connect(around)
        except Exception as error:  # noqa: BLE001 - the edge of a process: the parent reports it
            send(event(refused=[str(error) if isinstance(error, errors.InputError) else errors.describe(error)]))
            await writer.drain()
            return
        send(event(ready=True))
        try:
            await _run_jobs(init, run_job, around, reader, writer, boundary)
        finally:
            await init.work.aclose()
    await writer.drain()


async def _run_jobs(
    init: WorkerInit,
    run_job: RunJob,
    around: Surroundings,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    boundary: BoundaryFile,
) -> None:
    def send(**fields: Any) -> None:
        write_frame(writer, event(**fields))

    def beat(cpu: float, lag_s: float) -> None:
        around.cpu, around.lag_s = cpu, lag_s

    outage = Outage(init.server_wait_s, lambda text: send(note=text), lambda reason: send(stop=reason))
    executor = Inline(run_job, outage, limit=_NO_LIMIT, dropped=lambda job: send(dropped=job.place))
    waiting = Waiting()
    agents: set[str] = set()  # of which a rollout was finished
    listening = asyncio.create_task(_listen(reader, executor, waiting, outage, around, boundary))
    try:
        async with beating(beat):
            async for batch in executor.run(waiting):
                for each in batch:
                    if each.facts is not None and each.agent not in agents:
                        agents.add(each.agent)
                        each.lacking = each.facts.token_flaws
                write_frame(writer, attempts_frame(batch, recorded=init.recorded))
                await writer.drain()
    finally:
        listening.cancel()


async def _listen(
    reader: asyncio.StreamReader,
    executor: Inline,
    waiting: Waiting,
    outage: Outage,
    around: Surroundings,
    boundary: BoundaryFile,
) -> None:
    """Take what the parent says, until it has no more to say: then what is in flight is given up."""
    while (data := await read_frame(reader)) is not None:
        frame = orjson.loads(data)
        if "jobs" in frame:
            errors.watch_boundaries(boundary.write if frame["alone"] else None)
            waiting.jobs.extend(take_jobs(frame, around))
            executor.wake()
        elif "stop" in frame:
            outage.stop()  # what waits for a server is given up; what runs may finish
        else:
            executor.cancel(now=frame["cancel"])
    waiting.ended = True
    executor.cancel(now=True)


class BoundaryFile:
    """Says at which boundary a rollout is that runs alone, even if the process ends there.

    The parent has the file open, too; its name is gone once both have it.
    """

    SIZE = 16

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR)
        os.unlink(path)

    def write(self, boundary: str) -> None:
        os.pwrite(self._fd, boundary.ljust(self.SIZE).encode(), 0)


class _ToParent(logging.Handler):
    """Log lines for the parent, which shows them above its progress bar."""

    def __init__(self, send: Any) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(event(log=[record.levelno, record.name, self.format(record)]))


def logs_go_to(send: Any, level: int) -> None:
    """Everything that is logged here is sent, from any thread."""
    loop = asyncio.get_running_loop()
    handler = _ToParent(lambda frame: loop.call_soon_threadsafe(send, frame))
    logging.basicConfig(level=level, handlers=[handler], format="%(message)s", force=True)
