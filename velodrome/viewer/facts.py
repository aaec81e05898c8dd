"""What is known of files beyond their index: made in the background, kept until the file changes, shown when ready.

A page never waits for it longer than it chose to. While a file grows the last numbers stay, marked as older; those of
another file in its place do not. Whoever was given old numbers learns of new ones by `turns`.
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
from typing import Any, NamedTuple, Protocol

import orjson

from velodrome.errors import InputError, blame
from velodrome.records.rollout import beside
from velodrome.viewer.measure import measured

Json = dict[str, Any]

SMALL_BYTES = 8_000_000  # up to here it is quicker to read a file than to start a process that does
_PAUSE_S = 2.0  # between two readings of a file that grows
_PAUSE_SHARE = 4.0  # and at least so many times as long as the last one took
_ROOT = Path(__file__).parents[2]


class Seen(Protocol):
    """What somebody who follows a file knows of it."""

    @property
    def anew_at(self) -> float:
        """When it was last found to be another file than the one that was read."""
        ...

    def left_behind(self, kind: str) -> Any:
        """What a collection left beside it, if that is of the file as it is; else None."""
        ...


class Version(NamedTuple):
    """What changes when a file does."""

    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    anew_at: float = 0.0


Stamp = tuple[Version, ...]


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
        self.wanted = False  # somebody was told something old, and nothing newer is being made
        self.turn = 0


class Facts:
    """The numbers of all files that are looked at. One measurement runs at a time."""

    def __init__(self, *, small_bytes: int = SMALL_BYTES) -> None:
        self._small_bytes = small_bytes
        self._seen: dict[Path, Seen] = {}
        self._known: dict[tuple[str, tuple[Path, ...]], _Known] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="measure")
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def watch(self, path: Path, seen: Seen) -> None:
        """Learn from who follows this file, besides its size and its time."""
        self._seen[path] = seen

    def ask(self, kind: str, *paths: Path, patience_s: float = 0.0) -> Fact:
        """What is known now; if that is nothing or old, it is begun, and waited for this long."""
        stamp = self._stamp(paths)
        with self._lock:
            known = self._known.setdefault((kind, paths), _Known())
            if known.stamp is not None and _another(known.stamp, stamp):
                known.value, known.error = None, None
            if known.stamp != stamp or known.error is not None:
                self._begin(known, kind, paths)
            running = known.running
        if running is not None and patience_s > 0:
            wait([running], timeout=patience_s)
        with self._lock:
            stale = known.stamp != stamp
            known.wanted |= stale
            return Fact(known.value, stale, known.error)

    def turns(self, *paths: Path) -> int:
        """Grows whenever something new is known of one of these files. What is wanted and may be made now is begun."""
        with self._lock:
            found = [(key, known) for key, known in self._known.items() if set(key[1]) & set(paths)]
            for (kind, asked), known in found:
                known.wanted = known.wanted and known.stamp != self._stamp(asked)
                if known.wanted:
                    self._begin(known, kind, asked)
            return sum(known.turn for _, known in found)

    def _begin(self, known: _Known, kind: str, paths: tuple[Path, ...]) -> None:
        """Make it anew, unless that is being done or was done a moment ago."""
        if known.running is None and time.monotonic() >= known.next_at and not self._closed:
            known.wanted = False
            known.running = self._pool.submit(self._learn, known, kind, paths)

    def close(self) -> None:
        """End what runs."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        child = self._child
        if child is not None and child.poll() is None:
            child.kill()
        self._pool.shutdown()

    def _learn(self, known: _Known, kind: str, paths: tuple[Path, ...]) -> None:
        began, stamp = time.monotonic(), self._stamp(paths)
        value, problem = None, None
        try:
            with blame(InputError, ", ".join(path.name for path in paths)):
                seen = self._seen.get(paths[0]) if len(paths) == 1 else None
                value = seen.left_behind(kind) if seen is not None else None
                if value is None:
                    value = self._measured(kind, paths, sum(each.size for each in stamp))
        except InputError as error:
            problem = error.problems[0]
        took_s = time.monotonic() - began
        with self._lock:
            if problem is None or (known.error, known.stamp) != (problem, stamp):
                known.turn += 1
            known.value, known.error, known.stamp = value, problem, stamp
            known.running = None
            known.next_at = time.monotonic() + max(_PAUSE_S, _PAUSE_SHARE * took_s)

    def _stamp(self, paths: tuple[Path, ...]) -> Stamp:
        found = []
        for path in paths:
            seen = self._seen.get(path)
            for each in (path, beside(path, "failures.jsonl")):
                try:
                    told = each.stat()
                    anew_at = seen.anew_at if seen is not None else 0.0
                    found.append(Version(told.st_size, told.st_mtime_ns, told.st_ino, anew_at))
                except OSError:
                    found.append(Version())
        return tuple(found)

    def _measured(self, kind: str, paths: tuple[Path, ...], size: int) -> Any:
        if size <= self._small_bytes:
            return measured(kind, paths)
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-P", "-m", "velodrome.viewer.measure", kind, *map(str, paths)]
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


def _another(before: Stamp, now: Stamp) -> bool:
    """Whether a file is not the one it was, grown: gone, shorter, written anew, or replaced by another."""
    return any(
        old.inode and (new.inode != old.inode or new.size < old.size or new.anew_at != old.anew_at)
        for old, new in zip(before, now, strict=True)
    )
