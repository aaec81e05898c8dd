"""A `velo run` in processes of its own: how soon it is ready, who runs where, and what CPU they have used."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import orjson

from benchmarks.commands import VELO
from benchmarks.summary import Json

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_READY = "all ready in"


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of these processes, all threads."""
    return sum(_ticks(pid) for pid in pids) * _TICK_S


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Servers:
    """The servers of one config while this is open; `ready_s` is how long they took to be ready."""

    def __init__(self, cwd: Path, *settings: str) -> None:
        self._cwd = cwd
        self._settings = settings
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.head_port: int = sock.getsockname()[1]

    def __enter__(self) -> Servers:
        command = [VELO, "run", *self._settings, f"+head_server.port={self.head_port}"]
        start = time.perf_counter()
        self._process = subprocess.Popen(command, cwd=self._cwd, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if _READY in line:
                break
        else:
            raise SystemExit(f"velo run failed:\n{''.join(said)}")
        self.ready_s = time.perf_counter() - start
        self.urls = {each["name"]: each["url"] for each in self.instances()}
        return self

    def instances(self) -> list[Json]:
        """The servers, as the head tells it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.head_port}/server_instances", timeout=10) as answer:
            result: list[Json] = orjson.loads(answer.read())
        return result

    def pids(self) -> list[int]:
        """Every process: the supervisor, the head, and the workers of each server."""
        result = [self._process.pid]
        for each in self.instances():
            result += each["pid"] if isinstance(each["pid"], list) else [each["pid"]]
        return result

    def pid(self, name: str) -> int:
        """The one process of a server."""
        result: int = next(each["pid"] for each in self.instances() if each["name"] == name)
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=60)
