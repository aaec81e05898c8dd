"""A child process that answers frames of bytes, ends with its parent and reports how it ended.

    child = await spawn("package.module:function", init)     # function(channel) runs in a fresh interpreter
    child.send(b"work")
    answer = await child.receive()                           # None: it ended; child.ending has the exit code or signal
    await child.close(grace_s=1.0)

`function` is synchronous; the first frame it receives is `init`. A child that wants asyncio opens its streams on
`channel.socket` and uses `read_frame` and `write_frame`. The caller defines what the bytes mean.

`start_program` does the same for any command: its stdin and stdout are one stream, and the last lines of its stderr
are kept.

The rule: no child outlives its parent. Each child leads its own process group and holds a pipe, its lifeline, that only
the parent can write to. When the parent ends for any reason, the kernel kills the whole group, even while code holds
the interpreter's lock. Nothing is forked from a process with threads: a fresh interpreter starts with the same
`sys.path`.
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
# When the parent ends, the pipe closes and the kernel kills the whole group. This also works after `execvp`.
_LIFELINE = """
import fcntl, os, select, signal, sys
lifeline = int(sys.argv.pop(1))
if hasattr(fcntl, "F_SETSIG"):
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    gone = select.poll()  # not `select.select`, which supports no descriptor above 1,023
    gone.register(lifeline)
    if gone.poll(0):  # the parent ended before the kernel watched
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
    """Start a child that runs `module:function` and send it `init`. Raises `OSError` if it cannot be started.

    `label` appears in its command line. Its output goes to `log`. It inherits `fds`.
    """
    with _Start() as start:
        process = await asyncio.create_subprocess_exec(
            *child_command(target, start.child_end.fileno(), start.lifeline, label),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(start.child_end.fileno(), start.lifeline, *fds),
            start_new_session=True,  # Ctrl-C does not reach it, and its whole group can be killed
            env=env,
        )
        child = Child(process, *await start.connected(process))
    child.send(init)
    return child


def child_command(target: str, connection: int, lifeline: int, label: str = "") -> list[str]:
    """The command line of a child, to start one without asyncio; it inherits a socket and a pipe."""
    return [sys.executable, "-P", "-c", _FUNCTION, str(lifeline), target, str(connection), label, json.dumps(sys.path)]


async def start_program(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, line_bytes: int = 1 << 16
) -> Program:
    """Start a command that ends with this process. If it cannot be started, its last line is the reason."""
    errors, their_errors = os.pipe()
    with os.fdopen(their_errors, "wb"), _Start() as start:
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _PROGRAM, str(start.lifeline), *command),
                stdin=start.child_end.fileno(),
                stdout=start.child_end.fileno(),
                stderr=their_errors,
                env=dict(env),
                cwd=cwd,
                pass_fds=(start.lifeline,),
                start_new_session=True,
            )
            return Program(process, *await start.connected(process, line_bytes), errors)
        except BaseException:  # also when cancelled
            os.close(errors)
            raise


class _Start:
    """The resources of a start: a connection, and the lifeline pipe, which ends the child when it closes.

    After `connected`, this process keeps its ends of both. A failed start leaves nothing open.
    """

    def __enter__(self) -> _Start:
        self._parent_end, self.child_end = socket.socketpair()
        self.lifeline, self._lifeline_end = os.pipe()
        keep_alone(self._lifeline_end)
        return self

    async def connected(
        self, process: asyncio.subprocess.Process, limit: int = 1 << 16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        """Streams to the started process, and our end of its lifeline. If this fails, the process is killed."""
        try:
            loop = asyncio.get_running_loop()
            reader = _BufferedReader(limit)
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.create_unix_connection(lambda: protocol, sock=self._parent_end)
        except BaseException:  # also when cancelled
            process.kill()
            await process.wait()
            raise
        lifeline_end, self._lifeline_end = self._lifeline_end, -1
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop), lifeline_end

    def __exit__(self, *about: object) -> None:
        self.child_end.close()
        os.close(self.lifeline)
        if self._lifeline_end >= 0:
            self._parent_end.close()
            close_alone(self._lifeline_end)


class _BufferedReader(asyncio.StreamReader):
    """A reader that keeps the data from before a connection broke; asyncio's own reader drops it.

    A child that ends with unread frames breaks the connection.
    """

    def set_exception(self, exc: Exception) -> None:
        if isinstance(exc, ConnectionError):
            self.feed_eof()
        else:
            super().set_exception(exc)


class Child:
    """The parent's side of a child process."""

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
        self._open = True  # whether frames are still sent
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """End the stream of frames when the process ends, even if a grandchild holds the connection."""
        code = await self._process.wait()
        self.kill()
        self.ending = how_ended(code)  # from now on its pid may belong to another process
        await asyncio.sleep(_LAST_S)
        self.reader.feed_eof()

    @property
    def running(self) -> bool:
        """Whether no end of the process has been seen yet."""
        return self.ending is None and self._process.returncode is None

    def send(self, data: bytes) -> None:
        """Send one frame. Nothing is sent after `close` or the end of the child; `receive` reports the end."""
        if self._open and not self.writer.is_closing():
            write_frame(self.writer, data)

    async def receive(self) -> bytes | None:
        """The next frame; None after the child has ended and every complete frame has been received.

        A frame that the child sent just before its end is lost if the parent sends a frame after that.
        """
        data = await read_frame(self.reader)
        if data is None:
            await self._end(_LAST_S)
        return data

    def terminate(self) -> None:
        """Send SIGTERM to the process, not to its group."""
        if self.running:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the child and its whole group. `receive` reports the end."""
        if self.ending is None:  # else its pid may belong to another process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def close(self, grace_s: float = 1.0) -> None:
        """End it: its `receive` returns None. After `grace_s`, its whole group is killed."""
        self._open = False
        if self.ending is None and not self.writer.is_closing():
            with contextlib.suppress(OSError):
                self.writer.write_eof()
        await self._end(grace_s)

    async def _end(self, grace_s: float) -> None:
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            pass
        finally:  # also when cancelled
            self.kill()  # the rest of its group
            self.ending = how_ended(await self._process.wait())
            self._watching.cancel()
            self.writer.transport.abort()  # there is no reader any more
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
        self._stderr_task = asyncio.ensure_future(self._read_stderr(errors))

    async def _read_stderr(self, errors: int) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(errors, "rb", 0))
        try:
            rest = b""
            while chunk := await reader.read(1 << 16):
                *lines, rest = (rest + chunk)[-(1 << 16) :].split(b"\n")
                self._lines += [line.decode(errors="replace")[:_LONGEST_LINE] for line in lines]
            self._lines.append(rest.decode(errors="replace")[:_LONGEST_LINE])
        finally:
            transport.close()

    async def ended(self) -> str:
        """Wait for its end. Returns the exit code or signal, with the last line of its stderr."""
        code = await self._process.wait()
        self.kill()  # the rest of its group
        self.ending = how_ended(code)
        await asyncio.wait({self._stderr_task}, timeout=_LAST_S)
        last_line = next((line for line in reversed(self._lines) if line.strip()), "")
        return f"{self.ending}: {last_line}" if last_line else self.ending

    async def close(self, grace_s: float = 2.0) -> None:
        """End it: close its stdin. After `grace_s`, its whole group is killed."""
        try:
            await super().close(grace_s)
        finally:
            await asyncio.wait({self._stderr_task}, timeout=_LAST_S)
            self._stderr_task.cancel()  # a process outside the group may hold its stderr


class ParentChannel:
    """The child's side of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self) -> bytes | None:
        """The next frame; None after the parent has closed the connection."""
        header = self._read(_HEADER.size)
        return None if header is None else self._read(_HEADER.unpack(header)[0])

    def send(self, data: bytes) -> None:
        """Send one frame, from any thread."""
        with self._sending:
            self.socket.sendall(_HEADER.pack(len(data)))
            if data:  # an empty frame is complete, and its reader may be gone
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
    """The next frame of a stream; None at its end, also in the middle of a frame."""
    try:
        (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write one frame to a stream."""
    writer.writelines((_HEADER.pack(len(data)), data))


def main(lifeline: int, target: str, connection: str, label: str) -> None:
    """Run the function of a child. The kernel watches the lifeline; on systems other than Linux, a thread does."""
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
    """A return code in words: `exit code 3`, `signal SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
