"""Between the supervisor and a worker: lines of JSON on its stdin, and one line on its stdout if it cannot serve.

Secrets travel in these pipes only: not in arguments, the environment or a file. The first line is the `Brief`; the head
then gets the state of all servers, one line per change. When the pipe ends, the supervisor has ended, however it did.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from velodrome.contracts import Json
from velodrome.serving.process.options import ServingOptions
from velodrome.settings import Instance

HEAD = "head_server"  # the kind and the name of the head


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


class Channel:
    """The worker's end. The component's own stdin is empty, and what it prints goes to the log."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
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
        os.write(self._out, orjson.dumps(problems) + b"\n")

    def wait(self) -> bool:
        """Wait for more; False when the supervisor is gone."""
        select.select([self._in], [], [])
        return self._read()

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
