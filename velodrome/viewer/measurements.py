"""Results that take a moment: made in the background, kept until what they are about changes, shown when ready.

A page never waits longer than it chose to. While a file grows the last result stays, marked as stale; if another file
takes its place it does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from velodrome.children import Child
from velodrome.errors import InputError, blame
from velodrome.records.rollout import beside
from velodrome.viewer.measure import measured, measured_apart

SMALL_BYTES = 8_000_000  # up to here reading a file is quicker than starting a process
PAUSE_S = 2.0  # between two readings of a file that grows
_PAUSE_SHARE = 4.0  # and at least this many times as long as the last one took

Version = tuple[Hashable, Hashable]  # of which the first changes when another file takes the place of one


@dataclass(frozen=True, slots=True)
class Measurement:
    """A result. `value` is None until it is known; `stale` if what it is about changed since."""

    value: Any = None
    stale: bool = False
    error: str | None = None


@dataclass(slots=True)
class _Known:
    value: Any = None
    error: str | None = None
    version: Version | None = None
    running: Future[None] | None = None
    next_at: float = 0.0
    updates: int = 0
    missed: bool = False  # whether somebody left without the newest result


class Background:
    """Results by key, made one at a time. `late` grows with each result that came after somebody asked for it."""

    def __init__(self, name: str, *, pause_s: float = 0.0) -> None:
        self.late = 0
        self._pause_s = pause_s
        self._known: dict[Hashable, _Known] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._closed = False

    def answer(self, key: Hashable, version: Version, make: Callable[[], Any], *, patience_s: float) -> Measurement:
        """What is known now. If it is missing or stale, `make` starts, and this waits up to `patience_s` for it."""
        with self._lock:
            known = self._known.setdefault(key, _Known())
            if known.version is not None and known.version[0] != version[0]:
                known.value, known.error = None, None
            is_due = known.running is None and time.monotonic() >= known.next_at and not self._closed
            if (known.version != version or known.error is not None) and is_due:
                known.running = self._pool.submit(self._update, known, version, make)
            running = known.running
        if running is not None and patience_s > 0:
            wait([running], timeout=patience_s)
        with self._lock:
            stale = known.version != version
            known.missed |= stale
            return Measurement(known.value, stale, known.error)

    def updated(self, key: Hashable) -> int:
        """Grows with each new result."""
        return self._known[key].updates

    def close(self) -> None:
        """Stop."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(cancel_futures=True)

    def _update(self, known: _Known, version: Version, make: Callable[[], Any]) -> None:
        began, value, problem = time.monotonic(), None, None
        try:
            with blame(InputError, "the viewer"):
                value = make()
        except InputError as error:
            problem = error.problems[0]
        took_s = time.monotonic() - began
        with self._lock:
            if problem is None or (known.error, known.version) != (problem, version):
                known.updates += 1
                self.late += known.missed
            known.missed = False
            known.value, known.error, known.version, known.running = value, problem, version, None
            if self._pause_s:
                known.next_at = time.monotonic() + max(self._pause_s, _PAUSE_SHARE * took_s)


class MeasuredFile(Protocol):
    """A file that is followed, as far as measurements need it."""

    path: Path
    rebuilt_at: float  # when it was last noticed to be another file than the one that was read

    def saved(self, kind: str) -> Any:
        """The result of an earlier viewer, if it is of the file as it is; else None."""
        ...

    def save(self, kind: str, value: Any) -> None:
        """Keep a result for later viewers."""
        ...


class Measurements(Background):
    """The numbers of all files that are viewed."""

    def __init__(self, *, small_bytes: int = SMALL_BYTES, pause_s: float = PAUSE_S) -> None:
        super().__init__("measure", pause_s=pause_s)
        self._small_bytes = small_bytes
        self._child: Child | None = None

    def read(self, kind: str, *files: MeasuredFile, patience_s: float = 0.0) -> Measurement:
        """What is known of some files."""
        make = partial(self._made, kind, files)
        return self.answer((kind, *files), _version(files), make, patience_s=patience_s)

    def updates(self, file: MeasuredFile) -> int:
        """Grows whenever something new is known about a file. Starts to measure again what is stale."""
        keys: list[Any] = [key for key in list(self._known) if file in key]  # type: ignore[operator]
        for key in keys:
            self.read(*key)
        return sum(map(self.updated, keys))

    def close(self) -> None:
        """Stop measuring."""
        self._closed = True
        if self._child is not None:
            self._child.kill()
        super().close()

    def _made(self, kind: str, files: tuple[MeasuredFile, ...]) -> Any:
        with blame(InputError, ", ".join(file.path.name for file in files)):
            value = files[0].saved(kind)
            if value is None:
                before = _version(files)
                sizes = [path.stat().st_size for path in _paths(files) if path.exists()]
                value = self._measured(kind, [file.path for file in files], sum(sizes))
                if before == _version(files):
                    files[0].save(kind, value)
        return value

    def _measured(self, kind: str, paths: list[Path], size: int) -> Any:
        return measured(kind, paths) if size <= self._small_bytes else measured_apart(kind, paths, self._started)

    def _started(self, child: Child) -> None:
        self._child = child
        if self._closed:
            child.kill()


def _paths(files: tuple[MeasuredFile, ...]) -> list[Path]:
    return [path for file in files for path in (file.path, beside(file.path, "failures.jsonl"))]


def _version(files: tuple[MeasuredFile, ...]) -> Version:
    return tuple(file.rebuilt_at for file in files), tuple(map(stamp, _paths(files)))


def stamp(path: Path) -> tuple[int, int, int]:
    """What changes when a file does."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
