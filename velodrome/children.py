"""A child process that answers frames of bytes, ends with its parent and reports how it ended.

    child = await spawn("package.module:function", init)     # function(channel) runs in a fresh interpreter
    child.send(b"work")
    answer = await child.receive()                           # None: it ended, and child.ending says how
    await child.close(grace_s=1.0)

`function` is synchronous; the first frame it receives is `init`. A child that wants asyncio opens its streams on
`channel.socket` and uses `read_frame` and `write_frame`. The caller defines what the bytes mean.

`start_program` does the same for any command: its stdin and stdout are one stream, and the last lines that
it wrote to stderr are kept.

The rule: no child outlives its parent. It leads a process group of its own. A pipe that the parent alone can write to
ends the whole group when the parent is gone, however it went; the kernel sees to that, so code that holds the
interpreter's lock ends too. Nothing is forked from a process with threads: the interpreter is started again, with the
same `sys.path`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO

from velodrome.forks import close_alone, keep_alone, keep_socket_alone

_HEADER = struct.Struct("!Q")
_LAST_S = 1.0  # from the end of the connection to the end of the process
_LAST_LINES = 20
_LONGEST_LINE = 2000
# The end of the pipe is the end of the parent: the kernel kills the whole group. What follows may be another program.
_LIFELINE = """
import fcntl, os, select, signal, sys
lifeline = int(sys.argv.pop(1))
if hasattr(fcntl, "F_SETSIG"):
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    gone = select.poll()  # not `select.select`, which takes no number above 1,023
    gone.register(lifeline)
    if gone.poll(0):  # it went before the kernel knew
        os.killpg(0, signal.SIGKILL)
"""
_FUNCTION = f"""{_LIFELINE}
import json
sys.path[:] = json.loads(sys.argv.pop())
from velodrome.children import main
main(lifeline, *sys.argv[1:])
"""
_PROGRAM = f"""{_LIFELINE}
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{{sys.argv[1]}}: {{error.strerror}}")
"""


async def spawn(
    target: str,
    init: bytes,
    *,
    label: str = "",
    env: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
    fds: Sequence[int] = (),
) -> Child:
    """Start a child that runs `module:function` and send it `init`. An OSError says why it cannot be started.

    `label` is in its command line. What it prints goes to `log`. It inherits `fds`.
    """
    with _Start() as start:
        process = await asyncio.create_subprocess_exec(
            *child_command(target, start.theirs.fileno(), start.lifeline, label),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(start.theirs.fileno(), start.lifeline, *fds),
            start_new_session=True,  # Ctrl-C at the terminal is not for it, and its group can be ended whole
            env=env,
        )
        child = Child(process, *await start.connected(process))
    child.send(init)
    return child


def child_command(target: str, connection: int, lifeline: int, label: str = "") -> list[str]:
    """The command line of a child, for those who start one without asyncio; it inherits a socket and a pipe."""
    return [sys.executable, "-P", "-c", _FUNCTION, str(lifeline), target, str(connection), label, json.dumps(sys.path)]


async def start_program(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, line_bytes: int = 1 << 16
) -> Program:
    """Start a command that ends with this process. The reason why it cannot be started is its last line."""
    errors, their_errors = os.pipe()
    with os.fdopen(their_errors, "wb"), _Start() as start:
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _PROGRAM, str(start.lifeline), *command),
                stdin=start.theirs.fileno(),
                stdout=start.theirs.fileno(),
                stderr=their_errors,
                env=dict(env),
                cwd=cwd,
                pass_fds=(start.lifeline,),
                start_new_session=True,
            )
            return Program(process, *await start.connected(process, line_bytes), errors)
        except BaseException:  # cancelled, too
            os.close(errors)
            raise


class _Start:
    """What a start needs: a connection, and the pipe whose end is the end of the child.

    This process keeps its ends of both once it is `connected`. A start that fails leaves nothing open.
    """

    def __enter__(self) -> _Start:
        self._mine, self.theirs = socket.socketpair()
        self.lifeline, self._ours = os.pipe()
        keep_alone(self._ours)
        return self

    async def connected(
        self, process: asyncio.subprocess.Process, limit: int = 1 << 16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        """Streams to a process that was started, and our end of its lifeline; without them it is killed."""
        try:
            loop = asyncio.get_running_loop()
            reader = _Received(limit)
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.create_unix_connection(lambda: protocol, sock=self._mine)
        except BaseException:  # cancelled
            process.kill()
            await process.wait()
            raise
        ours, self._ours = self._ours, -1
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop), ours

    def __exit__(self, *about: object) -> None:
        self.theirs.close()
        os.close(self.lifeline)
        if self._ours >= 0:
            self._mine.close()
            close_alone(self._ours)


class _Received(asyncio.StreamReader):
    """What came before a connection broke is there to be read; asyncio's own reader forgets it.

    A child that ends with unread frames breaks the connection.
    """

    def set_exception(self, exc: Exception) -> None:
        if isinstance(exc, ConnectionError):
            self.feed_eof()
        else:
            super().set_exception(exc)


class Child:
    """The parent's side."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lifeline: int,
    ) -> None:
        self.pid = process.pid
        self.ending: str | None = None  # "exit code 3", "signal SIGSEGV"; None while it runs
        self.reader = reader
        self.writer = writer
        self._process = process
        self._lifeline = lifeline
        self._wanted = True  # frames for it
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """The end of the process is the end of its frames, also if one that it started holds the connection."""
        code = await self._process.wait()
        self.kill()
        self.ending = how_ended(code)  # from now on its number may be another's
        await asyncio.sleep(_LAST_S)
        self.reader.feed_eof()

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known now."""
        return self.ending is None and self._process.returncode is None

    def send(self, data: bytes) -> None:
        """Send one frame. To a child that has ended, or is to end, nothing is sent; `receive` reports the end."""
        if self._wanted and not self.writer.is_closing():
            write_frame(self.writer, data)

    async def receive(self) -> bytes | None:
        """The next frame; None once the child has ended and every frame that came whole has been received.

        A frame that the child sent just before its end is lost if one was sent to it after that.
        """
        data = await read_frame(self.reader)
        if data is None:
            await self._end(_LAST_S)
        return data

    def terminate(self) -> None:
        """Send SIGTERM to the process alone."""
        if self.running:
            self._process.terminate()

    def kill(self) -> None:
        """End the child and everything it started, at once. `receive` reports the end."""
        if self.ending is None:  # else its number may be another's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def close(self, grace_s: float = 1.0) -> None:
        """End it: its `receive` returns None, and after `grace_s` it is killed with everything it started."""
        self._wanted = False
        if self.ending is None and not self.writer.is_closing():
            with contextlib.suppress(OSError):
                self.writer.write_eof()
        await self._end(grace_s)

    async def _end(self, grace_s: float) -> None:
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            pass
        finally:  # cancelled, too
            self.kill()  # also what it left behind
            self.ending = how_ended(await self._process.wait())
            self._watching.cancel()
            self.writer.transport.abort()  # nothing reads any more
            with contextlib.suppress(OSError):
                await self.writer.wait_closed()
            if self._lifeline >= 0:
                close_alone(self._lifeline)
                self._lifeline = -1


class Program(Child):
    """Any command: `reader` is its stdout, `writer` its stdin."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lifeline: int,
        errors: int,
    ) -> None:
        super().__init__(process, reader, writer, lifeline)
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._listening = asyncio.ensure_future(self._listen(errors))

    async def _listen(self, errors: int) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(errors, "rb", 0))
        try:
            rest = b""
            while chunk := await reader.read(1 << 16):
                *whole, rest = (rest + chunk)[-(1 << 16) :].split(b"\n")
                self._lines += [line.decode(errors="replace")[:_LONGEST_LINE] for line in whole]
            self._lines.append(rest.decode(errors="replace")[:_LONGEST_LINE])
        finally:
            transport.close()

    async def ended(self) -> str:
        """Wait for its end; how it ended, with the last line that it wrote to stderr."""
        code = await self._process.wait()
        self.kill()  # what it left behind
        self.ending = how_ended(code)
        await asyncio.wait({self._listening}, timeout=_LAST_S)
        last_line = next((line for line in reversed(self._lines) if line.strip()), "")
        return f"{self.ending}: {last_line}" if last_line else self.ending

    async def close(self, grace_s: float = 2.0) -> None:
        """End it: its stdin ends, and after `grace_s` it is killed with everything it started."""
        try:
            await super().close(grace_s)
        finally:
            await asyncio.wait({self._listening}, timeout=_LAST_S)
            self._listening.cancel()  # what left the group may hold its stderr


class ParentChannel:
    """The child's side."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self) -> bytes | None:
        """The next frame; None when the parent wants no more."""
        header = self._read(_HEADER.size)
        return None if header is None else self._read(_HEADER.unpack(header)[0])

    def send(self, data: bytes) -> None:
        """Send one frame, from any thread."""
        with self._sending:
            self.socket.sendall(_HEADER.pack(len(data)))
            if data:  # else the frame is whole, and its reader may be gone
                self.socket.sendall(data)

    def _read(self, size: int) -> bytes | None:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            count = self.socket.recv_into(rest)
            if count == 0:
                return None
            rest = rest[count:]
        return bytes(data)


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame of a stream; None at its end, which may be in the middle of a frame."""
    try:
        (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Put one frame into a stream."""
    writer.writelines((_HEADER.pack(len(data)), data))


def main(lifeline: int, target: str, connection: str, label: str) -> None:
    """What a child runs; the kernel watches its lifeline, or without Linux a thread, which needs the interpreter."""
    sys.argv = [target]
    if not hasattr(fcntl, "F_SETSIG"):
        threading.Thread(target=_watch_lifeline, args=(lifeline,), daemon=True).start()
    for fd in (int(connection), lifeline):
        os.set_inheritable(fd, False)
    channel = ParentChannel(socket.socket(fileno=int(connection)))
    keep_socket_alone(channel.socket)
    module, _, function = target.partition(":")
    getattr(import_module(module), function)(channel)


def _watch_lifeline(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def how_ended(code: int) -> str:
    """A return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
