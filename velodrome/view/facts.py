"""What is known of files beyond their index: made in the background, kept until the file changes, shown when ready.

A page never waits for it longer than it chose to. While a file grows the last numbers stay, marked as older.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.records.rollout import beside
from velodrome.view.measure import measured

Json = dict[str, Any]
Stamp = tuple[tuple[int, int], ...]

SMALL_BYTES = 8_000_000  # up to here it is quicker to read a file than to start a process that does
_PAUSE_S = 2.0  # between two readings of a file that grows
_PAUSE_SHARE = 4.0  # and at least so many times as long as the last one took
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something measured. `value` is None until it is known; `stale` if the file changed since."""

    value: Any = None
    stale: bool = False
    error: str | None = None


class _Known:
    def __init__(self) -> None:
        self.value: Any = None
        self.error: str | None = None
        self.stamp: Stamp | None = None
        self.running: Future[None] | None = None
        self.next_at = 0.0
        self.turn = 0


class Facts:
    """The numbers of all files that are looked at. One measurement runs at a time."""

    def __init__(self, *, small_bytes: int = SMALL_BYTES) -> None:
        self._small_bytes = small_bytes
        self._known: dict[tuple[str, tuple[Path, ...]], _Known] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="measure")
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, kind: str, *paths: Path, patience_s: float = 0.0) -> Fact:
        """What is known now; if that is nothing or old, it is begun, and waited for this long."""
        stamp = _stamp(paths)
        with self._lock:
            known = self._known.setdefault((kind, paths), _Known())
            if known.stamp != stamp and known.running is None and time.monotonic() >= known.next_at:
                known.running = self._pool.submit(self._learn, known, kind, paths, stamp)
            running = known.running
        if running is not None and patience_s > 0:
            wait([running], timeout=patience_s)
        return Fact(known.value, known.stamp != stamp, known.error)

    def turns(self, *paths: Path) -> int:
        """Grows whenever something new is known of one of these files."""
        with self._lock:
            return sum(known.turn for (_, asked), known in self._known.items() if set(asked) & set(paths))

    def close(self) -> None:
        """End what runs."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        child = self._child
        if child is not None and child.poll() is None:
            child.kill()
        self._pool.shutdown()

    def _learn(self, known: _Known, kind: str, paths: tuple[Path, ...], stamp: Stamp) -> None:
        began = time.monotonic()
        value, problem = None, None
        try:
            value = _left_behind(kind, paths[0]) if len(paths) == 1 else None
            if value is None:
                value = self._measured(kind, paths, sum(size for size, _ in stamp))
        except InputError as error:
            problem = error.problems[0]
        took_s = time.monotonic() - began
        with self._lock:
            known.value = value if problem is None else known.value
            known.error = problem
            known.stamp = stamp
            known.running = None
            known.next_at = time.monotonic() + max(_PAUSE_S, _PAUSE_SHARE * took_s)
            known.turn += 1

    def _measured(self, kind: str, paths: tuple[Path, ...], size: int) -> Any:
        if size <= self._small_bytes:
            return measured(kind, paths)
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-P", "-m", "velodrome.view.measure", kind, *map(str, paths)]
        with subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            self._child = child
            if self._closed:
                child.kill()
            out, told = child.communicate()
        self._child = None
        if child.returncode:
            lines = told.decode("utf-8", "replace").strip().splitlines()
            raise InputError(lines[-1] if lines else f"the reader ended with {child.returncode}")
        return orjson.loads(out)


def _stamp(paths: tuple[Path, ...]) -> Stamp:
    """What changes when a file does."""
    found = []
    for path in paths:
        for each in (path, beside(path, "failures.jsonl")):
            try:
                told = each.stat()
                found.append((told.st_size, told.st_mtime_ns))
            except OSError:
                found.append((0, 0))
    return tuple(found)


def _left_behind(kind: str, rollouts: Path) -> Any:
    """What the collection wrote beside its rollouts, if they have not changed since."""
    if kind not in ("metrics", "profile"):
        return None
    path = beside(rollouts, f"{kind}.json")
    try:
        newest = max(mtime for _, mtime in _stamp((rollouts,)))
        if path.stat().st_mtime_ns < newest:
            return None
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    if kind == "metrics":
        return {"metrics": found, "notes": []} if isinstance(found, dict) and "rollouts/kept" in found else None
    return found if isinstance(found, dict) and {"tree", "verdict", "series"} <= found.keys() else None
