"""Between the supervisor and a worker: lines of JSON on its stdin, and one line on its stdout if it cannot serve.

Secrets travel in these pipes only: not in arguments, the environment or a file. The first line is the `Brief`; the head
then gets the state of all servers, one line per change. When the pipe ends, the supervisor has ended, however it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from velodrome.contracts import Json
from velodrome.serving.process.options import ServingOptions
from velodrome.settings import Instance

HEAD = "head_server"  # the kind and the name of the head
_CHUNK = 1 << 16
_LONGEST_REFUSAL = 1 << 20


@dataclass(frozen=True)
class Brief:
    """What one worker of one server must know: its own block, and of the others their addresses."""

    instance: Instance
    host: str
    index: int
    sockets: list[int]
    peers: list[str]
    key: str
    options: ServingOptions
    blocks: dict[str, Instance]  # that it refers to; settings only where they are the address of a server elsewhere
    urls: dict[str, str]
    token: str | None
    verbose: bool
    profiles: str | None  # the folder for profiles
    config_yaml: str  # for the head: the configuration, masked

    def line(self) -> bytes:
        options = self.options.model_dump(mode="json", include=set(ServingOptions.model_fields))
        return orjson.dumps(self, lambda _: options, orjson.OPT_NON_STR_KEYS)

    @classmethod
    def read(cls, line: bytes) -> Brief:
        fields = orjson.loads(line)
        fields["instance"] = Instance(**fields["instance"])
        fields["blocks"] = {name: Instance(**block) for name, block in fields["blocks"].items()}
        return cls(**fields | {"options": ServingOptions.model_validate(fields["options"])})


class WorkerPipes:
    """The supervisor's end. Nothing here waits for a pipe to close: a process that the worker left may hold it."""

    def __init__(self, writer: asyncio.WriteTransport, stdin: socket.socket) -> None:
        self.stdin = stdin  # this and `stdout` are for the worker
        self._from, self.stdout = socket.socketpair()
        self._from.setblocking(False)
        self._writer = writer
        self._received = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._from, self._read)

    @classmethod
    async def open(cls) -> WorkerPipes:
        ours, theirs = socket.socketpair()
        writer, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, ours)
        return cls(writer, theirs)

    def send(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line + b"\n")

    def refusal(self) -> list[str]:
        """What the worker, which has ended, wrote last: why it cannot serve. Empty if it did not say."""
        for _ in range(_LONGEST_REFUSAL // _CHUNK):
            if not self._read():
                break
        *_, line, _ = [b"", *self._received.split(b"\n")]
        try:
            problems = orjson.loads(line)
        except orjson.JSONDecodeError:
            return []  # something else that it printed before `Channel` was made
        is_refusal = isinstance(problems, list) and all(isinstance(problem, str) for problem in problems)
        return problems if is_refusal else []

    def close(self) -> None:
        self._loop.remove_reader(self._from)
        self._from.close()
        if not self._writer.is_closing():
            self._writer.abort()

    def _read(self) -> bool:
        try:
            data = self._from.recv(_CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._from)
        self._received = (self._received + data)[-_LONGEST_REFUSAL:]
        return bool(data)


class Channel:
    """The worker's end. The component's own stdin is empty, and what it prints goes to the log.

    No process that the component starts has the pipes: a forked one closes them, and others do not inherit them.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        os.register_at_fork(after_in_child=self._close)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        os.set_blocking(self._in, False)
        self._lines: list[bytes] = []
        self._rest = b""
        self._lock = threading.Lock()

    def brief(self) -> Brief:
        while not self._lines:
            if not self.wait():
                sys.exit(1)
        return Brief.read(self._lines.pop(0))

    def servers(self) -> list[Json]:
        """The servers in the last line that was sent by now."""
        self._read()
        servers: list[Json] = orjson.loads(self._lines[-1]) if self._lines else []
        return servers

    def refuse(self, problems: Sequence[str]) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone; or this is a process that the component forked
            os.write(self._out, b"\n" + orjson.dumps(problems) + b"\n")

    def wait(self) -> bool:
        """Wait for more; False when the supervisor is gone."""
        select.select([self._in], [], [])
        return self._read()

    def _close(self) -> None:
        for number in {self._in, self._out} - {-1}:  # a forked process may fork again
            with contextlib.suppress(OSError):
                os.close(number)
        self._in = self._out = -1

    def _read(self) -> bool:
        with self._lock:
            is_open = False
            try:
                while data := os.read(self._in, 1 << 16):
                    self._rest += data
            except BlockingIOError:
                is_open = True
            *lines, self._rest = self._rest.split(b"\n")
            self._lines = [*self._lines, *lines]
            if len(self._lines) > 2:
                self._lines = [self._lines[0], self._lines[-1]]  # the brief, or an old state; and the newest
            return is_open
