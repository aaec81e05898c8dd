"""Results that take a moment: computed in the background, cached until their files change, shown when ready.

A page sets how long it waits. While a file grows, the last result is shown as stale; if the file is replaced, the
result is dropped.
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
from velodrome.viewer.measure import measure_files, measure_in_child

SMALL_BYTES = 8_000_000  # up to this size, reading a file is faster than starting a process
PAUSE_S = 2.0  # between two measurements of a growing file
_PAUSE_SHARE = 4.0  # and at least this many times the duration of the last one

Version = tuple[Hashable, Hashable]  # the first changes when a file is replaced


@dataclass(frozen=True, slots=True)
class Measurement:
    """A result. `value` is None until it is known; `stale` means that its files have changed since."""

    value: Any = None
    stale: bool = False
    error: str | None = None


@dataclass(slots=True)
class _CachedResult:
    value: Any = None
    error: str | None = None
    version: Version | None = None
    running: Future[None] | None = None
    next_at: float = 0.0
    updates: int = 0
    missed: bool = False  # whether a page was shown without the newest result


class Background:
    """Results by key, computed one at a time. `late` counts results that arrived after a page asked for them."""

    def __init__(self, name: str, *, pause_s: float = 0.0) -> None:
        self.late = 0
        self._pause_s = pause_s
        self._results: dict[Hashable, _CachedResult] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._closed = False

    def answer(self, key: Hashable, version: Version, make: Callable[[], Any], *, patience_s: float) -> Measurement:
        """The current result. If it is missing or stale, `make` starts, and this waits up to `patience_s` for it."""
        with self._lock:
            result = self._results.setdefault(key, _CachedResult())
            running = self._start(result, version, make)
        if running is not None and patience_s > 0:
            wait([running], timeout=patience_s)
        with self._lock:
            if _is_replaced(result, version):  # what ran was about the file before
                self._start(result, version, make)
            stale = result.version != version
            result.missed |= stale
            return Measurement(result.value, stale, result.error)

    def _start(self, result: _CachedResult, version: Version, make: Callable[[], Any]) -> Future[None] | None:
        """Drop the result of a replaced file, and start `make` if it is due. Returns what runs."""
        if _is_replaced(result, version):
            result.value, result.error = None, None
        is_due = result.running is None and time.monotonic() >= result.next_at and not self._closed
        if (result.version != version or result.error is not None) and is_due:
            result.running = self._pool.submit(self._update, result, version, make)
        return result.running

    def updated(self, key: Hashable) -> int:
        """The number of results so far for a key."""
        return self._results[key].updates

    def close(self) -> None:
        """Stop."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(cancel_futures=True)

    def _update(self, result: _CachedResult, version: Version, make: Callable[[], Any]) -> None:
        started_at, value, problem = time.monotonic(), None, None
        try:
            with blame(InputError, "the viewer"):
                value = make()
        except InputError as error:
            problem = error.problems[0]
        duration_s = time.monotonic() - started_at
        with self._lock:
            if problem is None or (result.error, result.version) != (problem, version):
                result.updates += 1
                self.late += result.missed
            result.missed = False
            result.value, result.error, result.version, result.running = value, problem, version, None
            if self._pause_s:
                result.next_at = time.monotonic() + max(self._pause_s, _PAUSE_SHARE * duration_s)


def _is_replaced(result: _CachedResult, version: Version) -> bool:
    return result.version is not None and result.version[0] != version[0]


class MeasuredFile(Protocol):
    """A followed file, as measurements need it."""

    path: Path
    rebuilt_at: float  # when it was last found to be replaced

    def saved(self, kind: str) -> Any:
        """The result of an earlier viewer, if the file is unchanged; else None."""
        ...

    def save(self, kind: str, value: Any) -> None:
        """Save a result for later viewers."""
        ...


class Measurements(Background):
    """The measurements of all viewed files."""

    def __init__(self, *, small_bytes: int = SMALL_BYTES, pause_s: float = PAUSE_S) -> None:
        super().__init__("measure", pause_s=pause_s)
        self._small_bytes = small_bytes
        self._child: Child | None = None

    def read(self, kind: str, *files: MeasuredFile, patience_s: float = 0.0) -> Measurement:
        """The current measurement of some files."""
        make = partial(self._make, kind, files)
        return self.answer((kind, *files), _version(files), make, patience_s=patience_s)

    def updates(self, file: MeasuredFile) -> int:
        """The number of results so far for a file. Starts new measurements in place of stale ones."""
        keys: list[Any] = [key for key in list(self._results) if file in key]  # type: ignore[operator]
        for key in keys:
            self.read(*key)
        return sum(map(self.updated, keys))

    def close(self) -> None:
        """Stop measuring."""
        self._closed = True
        if self._child is not None:
            self._child.kill()
        super().close()

    def _make(self, kind: str, files: tuple[MeasuredFile, ...]) -> Any:
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
        if size <= self._small_bytes:
            return measure_files(kind, paths)
        return measure_in_child(kind, paths, self._set_child)

    def _set_child(self, child: Child) -> None:
        self._child = child
        if self._closed:
            child.kill()


def _paths(files: tuple[MeasuredFile, ...]) -> list[Path]:
    return [path for file in files for path in (file.path, beside(file.path, "failures.jsonl"))]


def _version(files: tuple[MeasuredFile, ...]) -> Version:
    return tuple(file.rebuilt_at for file in files), tuple(map(stamp, _paths(files)))


def stamp(path: Path) -> tuple[int, int, int]:
    """The inode, size and time of a file: they change when the file does."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
