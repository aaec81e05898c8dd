"""The host's end of the socket to a box: requests out, replies in, each of bounded size.

What comes out of a box may have been made by a hostile program. It is taken as numbers and bytes, never as code, and
a reply that does not fit the form, or is larger than what was asked for, ends the box.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import marshal
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, BinaryIO, NamedTuple

import velodrome.environments.sandbox.inside as inside
from velodrome.errors import SandboxEnded
from velodrome.forks import keep_socket_alone

_BOOTSTRAP = """
import marshal, os, sys
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
module = sys.modules["inside"] = type(sys)("inside")
exec(marshal.loads(take(int.from_bytes(take(4), "little"))), module.__dict__)
module.main()
"""  # receives the compiled code of inside.py, and runs it
_START_S = 30.0  # on a busy machine, too
_END_S = 10.0  # without a namespace it is the supervisor that ends all processes
_MORE = 1 << 16  # bytes a reply may have beyond what was asked for


STOPPED = ("", "time", "cpu", "memory", "output", "disk", "processes", "ended")  # the codes inside.py answers with


@dataclass(frozen=True, slots=True)
class Limits:
    """What one `run` may use. `disk_mb` is that of the box: it holds for all its runs together."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 512
    processes: int = 32
    output_bytes: int = 1 << 20
    disk_mb: int = 64


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended. `stopped` names the limit that ended it; "ended": it was told to, or its box was lost."""

    stdout: str
    stderr: str
    exit_code: int  # negative: the signal
    stopped: str
    wall_s: float
    cpu_s: float


LOST = Ran("", "", -9, "ended", 0.0, 0.0)  # its sandbox is gone, and with it what it wrote


class Started(NamedTuple):
    """What a backend returns: a process that waits for its code, and how the process is to set itself up."""

    process: subprocess.Popen[bytes]
    settings: dict[str, Any]  # arguments of `enter` in inside.py
    info: BinaryIO | None = None  # where bubblewrap writes which process is the first in its namespace, if there is one
    remove: Callable[[], None] = lambda: None


Start = Callable[[str, socket.socket, int], Started]  # the line of Python to run, its stdin, megabytes of scratch


class BoxReply(NamedTuple):
    code: int
    stopped: int
    wall_s: float
    cpu_s: float
    first: bytes
    rest: bytes


class Link:
    """One box as a process and a socket. `on_lines` takes what a program says, or returns False: that cannot be."""

    def __init__(self, started: Started, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.started = started
        self.reader, self.writer = reader, writer
        self.on_lines: Callable[[bytes], bool] = lambda data: False
        self.room = _MORE
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[BoxReply]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._first = -1  # a descriptor of the first process in the namespace of the box
        self.ended = False

    @classmethod
    async def open(cls, start: Start, disk_mb: int) -> Link:
        """A link to a new box; SandboxEnded if it does not come up."""
        ours, theirs = socket.socketpair()
        keep_socket_alone(ours)
        try:
            with theirs:
                started = start(_BOOTSTRAP, theirs, disk_mb)
        except BaseException:
            ours.close()
            raise
        try:
            link = cls(started, *await asyncio.open_connection(sock=ours, limit=1 << 20))
        except BaseException:
            ours.close()
            _abandon(started)
            raise
        try:
            up = link._expect(0)
            link.writer.write(_framed(_code()) + _framed(started.settings))
            async with asyncio.timeout(_START_S):
                await up
            link._first = _first_process(started)
        except BaseException as error:
            await link.close()
            if isinstance(error, TimeoutError):
                raise SandboxEnded("the sandbox did not start", LOST) from None
            raise
        return link

    def send(self, what: str, *values: Any) -> int:
        self._requests += 1
        if not self.ended:
            self.writer.write(_framed((self._requests, what, *values)))
        return self._requests

    def ask(self, what: str, *values: Any, room: int = 0) -> asyncio.Future[BoxReply]:
        """Send a request; its reply may have this many bytes."""
        self.room = max(self.room, room + _MORE)
        return self._expect(self.send(what, *values))

    def _expect(self, request: int) -> asyncio.Future[BoxReply]:
        answer: asyncio.Future[BoxReply] = asyncio.get_running_loop().create_future()
        if self.ended:
            answer.set_exception(SandboxEnded("the sandbox has ended", LOST))
        else:
            self._waiting[request] = answer
        return answer

    async def _read(self) -> None:
        try:
            while True:
                head = await self.reader.readexactly(inside.REPLY.size)
                request, kind, code, stopped, wall_s, cpu_s, first, rest = inside.REPLY.unpack(head)
                if first + rest > self.room:
                    break
                body = await self.reader.readexactly(first + rest)
                if kind == inside.LINES:
                    if not self.on_lines(body):
                        break
                    continue
                answer = self._waiting.pop(request, None)
                if answer is None:
                    break
                if not answer.done():
                    answer.set_result(BoxReply(code, stopped, wall_s, cpu_s, body[:first], body[first:]))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._end()

    def _end(self) -> None:
        self.ended = True
        if self._first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)  # and with it everything in the box
        self.writer.close()  # a box that is still starting ends with it
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SandboxEnded("the sandbox has ended", LOST))
                answer.exception()  # it is no mistake if nobody waits any more
        self._waiting.clear()

    async def close(self) -> None:
        """Kill the box, and return when nothing of it is left."""
        self._end()
        self._reading.cancel()
        try:
            await asyncio.gather(self._reading, return_exceptions=True)
            with contextlib.suppress(OSError):
                await self.writer.wait_closed()
            if self._first >= 0:
                await _exit_of(self._first)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_START_S):
                    await _wait(self.started.process)
        finally:
            if self._first >= 0:
                os.close(self._first)
                self._first = -1
            _abandon(self.started)


def _abandon(started: Started) -> None:
    """End a box without waiting for its last process, and let go of all that belongs to it."""
    started.process.kill()
    started.process.wait()
    if started.info is not None:
        started.info.close()
    started.remove()


def _first_process(started: Started) -> int:
    if started.info is None:
        return -1
    with started.info as info:
        return os.pidfd_open(json.loads(info.read(1 << 12))["child-pid"])


async def _wait(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    watched = os.pidfd_open(process.pid)
    try:
        async with asyncio.timeout(_END_S):
            await _exit_of(watched)
    except TimeoutError:
        process.kill()
    finally:
        os.close(watched)
    process.wait()


async def _exit_of(watched: int) -> None:
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(watched)


@cache
def _code() -> CodeType:
    return compile(Path(str(inside.__file__)).read_text(encoding="utf-8"), "inside", "exec")


def _framed(value: Any) -> bytes:
    data = marshal.dumps(value)
    return len(data).to_bytes(4, "little") + data
