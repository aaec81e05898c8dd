"""A child process that answers frames of bytes, ends with its parent and says how it ended.

    child = await spawn("package.module:function", init)     # function(channel) runs in a fresh interpreter
    child.send(b"work")
    answer = await child.receive()                           # None: it ended, and child.ending says how
    await child.close(grace_s=1.0)

`function` is synchronous; the first frame it receives is `init`. A child that wants asyncio opens its streams on
`channel.socket` and uses `read_frame` and `write_frame`. What the bytes mean is the caller's business.

`start_program` does the same for somebody else's command: its stdin and stdout are one stream, and what it
last wrote to stderr is kept.

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
import select
import signal
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import import_module

_HEADER = struct.Struct("!Q")
_LAST_S = 1.0  # from the end of the connection to the end of the process
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from velodrome.children import main; main(sys.argv)"
)
# What `_end_with_parent` does, then the command in place of the interpreter: the pipe stays open in it.
_EXEC = """
import fcntl, os, select, signal, sys
lifeline = int(sys.argv[1])
if hasattr(fcntl, "F_SETSIG"):
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    gone = select.poll()
    gone.register(lifeline)
    if gone.poll(0):
        os.killpg(0, signal.SIGKILL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""
_LAST_LINES = 20
_LONGEST_LINE = 2000


async def spawn(target: str, init: bytes, *, env: Mapping[str, str] | None = None) -> ChildProcess:
    """Start a child that runs `module:function` and send it `init`. An OSError says why it cannot be started."""
    lifeline, ours = os.pipe()
    mine, theirs = socket.socketpair()
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, ours)
        undo.callback(mine.close)
        try:
            process = await asyncio.create_subprocess_exec(
                *child_command(target, theirs.fileno(), lifeline),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,
                env=env,
            )
        finally:
            theirs.close()
            os.close(lifeline)
        try:
            reader, writer = await _connect(mine)
        except BaseException:  # cancelled
            process.kill()
            await process.wait()
            raise
        undo.pop_all()
    child = ChildProcess(process, reader, writer, ours)
    child.send(init)
    return child


def child_command(target: str, connection: int, lifeline: int) -> list[str]:
    """The command line of a child, for those who start one without asyncio; it inherits a socket and a pipe."""
    start = [sys.executable, "-P", "-c", _START]
    return [*start, target, str(connection), str(lifeline), json.dumps(sys.path)]


class _Received(asyncio.StreamReader):
    """What came before a connection broke is there to be read; asyncio's own reader forgets it.

    A child that ends with unread frames breaks the connection.
    """

    def set_exception(self, exc: Exception) -> None:
        if isinstance(exc, ConnectionError):
            self.feed_eof()
        else:
            super().set_exception(exc)


async def _connect(
    connection: socket.socket, limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = _Received(limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_unix_connection(lambda: protocol, sock=connection)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class ChildProcess:
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
        self._process = process
        self._reader = reader
        self._writer = writer
        self._lifeline = lifeline
        self._wanted = True  # frames for it
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """The end of the process is the end of its frames, also if one that it started holds the connection."""
        code = await self._process.wait()
        self.kill()
        self.ending = how_ended(code)  # from now on its number may be another's
        await asyncio.sleep(_LAST_S)
        self._reader.feed_eof()

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known now."""
        return self.ending is None and self._process.returncode is None

    def send(self, data: bytes) -> None:
        """Send one frame. To a child that has ended, or is to end, nothing is sent; `receive` reports the end."""
        if self._wanted and not self._writer.is_closing():
            write_frame(self._writer, data)

    @property
    def unsent(self) -> int:
        """Bytes that wait here because the child does not receive them."""
        return self._writer.transport.get_write_buffer_size()

    async def receive(self) -> bytes | None:
        """The next frame; None once the child has ended and every frame that came whole has been received.

        A frame that the child sent just before its end is lost if one was sent to it after that.
        """
        data = await read_frame(self._reader)
        if data is None:
            await self._wait(_LAST_S)
        return data

    def kill(self) -> None:
        """End the child and everything it started, at once. `receive` reports the end."""
        if self.ending is not None:
            return  # its number may be another's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self, grace_s: float = 1.0) -> None:
        """End it: its `receive` returns None, and after `grace_s` it is killed with everything it started."""
        self._wanted = False
        if self.ending is None and not self._writer.is_closing():
            with contextlib.suppress(OSError):
                self._writer.write_eof()
        await self._wait(grace_s)

    async def _wait(self, grace_s: float) -> None:
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            pass
        finally:  # cancelled, too
            self.kill()  # also what it left behind
            self.ending = how_ended(await self._process.wait())
            self._watching.cancel()
            self._writer.transport.abort()  # nobody reads any more
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1


async def start_program(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | None = None, line_bytes: int = 1 << 16
) -> Program:
    """Start a command that ends with this process. One that cannot be started says so in its last words."""
    lifeline, ours = os.pipe()
    mine, theirs = socket.socketpair()
    words, said = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _EXEC, str(lifeline), *command),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=said,
            env=dict(env),
            cwd=cwd,
            pass_fds=(lifeline,),
            start_new_session=True,
        )
    except BaseException:  # cancelled, or no such folder
        for number in (ours, words):
            os.close(number)
        mine.close()
        raise
    finally:
        theirs.close()
        for number in (lifeline, said):
            os.close(number)
    reader, writer = await _connect(mine, line_bytes)
    return Program(process, reader, writer, ours, words)


class Program:
    """A command of somebody else's: `reader` is its stdout, `writer` its stdin."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lifeline: int,
        words: int,
    ) -> None:
        self.pid = process.pid
        self.reader = reader
        self.writer = writer
        self.ending: str | None = None  # "exit code 3"; None while it runs
        self._process = process
        self._lifeline = lifeline
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._listening = asyncio.ensure_future(self._listen(words))

    @property
    def last_words(self) -> str:
        """The last line it wrote to stderr."""
        return next((line for line in reversed(self._lines) if line.strip()), "")

    async def _listen(self, words: int) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(words, "rb", 0))
        try:
            rest = b""
            while chunk := await reader.read(1 << 16):
                *whole, rest = (rest + chunk)[-(1 << 16) :].split(b"\n")
                self._lines += [line.decode(errors="replace")[:_LONGEST_LINE] for line in whole]
            self._lines.append(rest.decode(errors="replace")[:_LONGEST_LINE])
        finally:
            transport.close()

    async def ended(self) -> str:
        """Wait for its end; how it ended, with its last words."""
        code = await self._process.wait()
        self._kill()  # what it left behind
        self.ending = how_ended(code)
        await asyncio.wait({self._listening}, timeout=_LAST_S)
        return f"{self.ending}: {self.last_words}" if self.last_words else self.ending

    def _kill(self) -> None:
        if self.ending is None:  # else its number may be another's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def close(self, grace_s: float = 2.0) -> None:
        """End it: its stdin ends, and after `grace_s` it is killed with everything it started."""
        if self._lifeline < 0:
            return
        with contextlib.suppress(OSError):
            self.writer.write_eof()
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            pass
        finally:  # cancelled, too
            self._kill()
            await self.ended()
            self._listening.cancel()  # what left the group may hold its stderr
            self.writer.transport.abort()
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1


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
            if data:  # else the frame is whole, and whoever read it may be gone
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


def main(arguments: list[str]) -> None:
    """What a child runs: `target`, the number of its socket, the number of its lifeline."""
    _, target, connection, lifeline = arguments
    sys.argv = [target]
    _end_with_parent(int(lifeline))
    for fd in (int(connection), int(lifeline)):
        os.set_inheritable(fd, False)
    channel = ParentChannel(socket.socket(fileno=int(connection)))
    os.register_at_fork(after_in_child=channel.socket.close)  # a process that it forks must not hold the connection
    module, _, function = target.partition(":")
    getattr(import_module(module), function)(channel)


def _end_with_parent(lifeline: int) -> None:
    """The end of this pipe is the end of the parent: it kills the whole group."""
    if not hasattr(fcntl, "F_SETSIG"):  # not Linux: a thread watches, which needs the interpreter's lock
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
        return
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    gone = select.poll()
    gone.register(lifeline)  # not `select.select`, which takes no number above 1,023
    if gone.poll(0):  # it went before the kernel knew
        os.killpg(0, signal.SIGKILL)


def _watch(lifeline: int) -> None:
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
