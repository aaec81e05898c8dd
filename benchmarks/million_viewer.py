"""A `velo view` in a process of its own: asked over HTTP, its memory and that of its children watched all the while."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import orjson

from benchmarks.commands import VELO
from benchmarks.summary import Json

Page = Callable[[int], str]  # the address for one turn

SLUG = "rollouts"  # of the first file; the second, of the same name, is `rollouts-2`
TURNS = 20
_LOOK_S = 0.05
_PROBLEM = re.compile('class="notes"[^>]* role="alert"')  # what a page says that cannot show what was asked for
_TIMEOUT_S = 60.0
_KB = 1024 / 1e6
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Viewer:
    """`with Viewer([file]) as viewer`: running, and asked one page at a time."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.own_mb = self.children_mb = self.all_mb = 0.0

    def __enter__(self) -> Viewer:
        self.started = time.perf_counter()
        self._process = subprocess.Popen([VELO, "view", *map(str, self._files)], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        if "http://" not in said:
            raise SystemExit(f"velo view failed:\n{said}{self._process.stderr.read()}")
        port = int(said.split("http://127.0.0.1:")[1].split("/")[0])
        self.ready_s = time.perf_counter() - self.started
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()
        self._http.close()
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_TIMEOUT_S)

    def text(self, path: str) -> str:
        """A page. Anything but a page that was meant ends the benchmark."""
        self._http.request("GET", path)
        answer = self._http.getresponse()
        body = answer.read().decode()
        if answer.status != 200 or _PROBLEM.search(body):
            raise SystemExit(f"{path}: {answer.status}\n{body[:2000]}")
        return body

    def ms(self, path: str) -> float:
        """How long a page takes, from the request to its last byte."""
        start = time.perf_counter()
        self.text(path)
        return 1e3 * (time.perf_counter() - start)

    def timed(self, page: Page, turns: int = TURNS) -> Json:
        """The times of a page, each turn asked at its own address.

        `cpu_ms` is what the viewer used for one, counting included: the same on a busy machine as on a quiet one.
        """
        before = self.cpu_s()
        times = [self.ms(page(turn)) for turn in range(turns)]
        return {"ms": times, "cpu_ms": 1e3 * (self.cpu_s() - before) / turns, "load": os.getloadavg()[0]}

    def cpu_s(self) -> float:
        """What the viewer has used, its children that have ended included."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) * _TICK_S

    def entries(self, slug: str = SLUG) -> int:
        """How many rollouts and failures the viewer knows of."""
        report = orjson.loads(self.text(f"/run/{slug}/pulse"))
        return int(report["rows"]) + int(report["failed"])

    def wait_for(self, over: Callable[[], bool], every_s: float) -> float:
        """Seconds from the start of the command until something is so."""
        while not over():
            time.sleep(every_s)
        return time.perf_counter() - self.started

    def memory(self) -> Json:
        """The highest there was: of the viewer, of its children at one time, and of all at one time."""
        return {"own_mb": self.own_mb, "children_mb": self.children_mb, "all_mb": self.all_mb}

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            pid = self._process.pid
            now, own = _status_mb(pid, "VmRSS"), _status_mb(pid, "VmHWM")
            children = sum(_status_mb(child, "VmRSS") for child in _children(pid))
            self.own_mb = max(self.own_mb, own)
            self.children_mb = max(self.children_mb, children)
            self.all_mb = max(self.all_mb, now + children)


def _status_mb(pid: int, name: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0  # it ended
    return next((int(line.split()[1]) * _KB for line in lines if line.startswith(f"{name}:")), 0.0)


def _children(pid: int) -> list[int]:
    result: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            result += map(int, task.read_text().split())
        except OSError:
            continue  # the thread ended
    return result
