"""Measurements of whole files: made in the background, kept until the file changes, shown when ready.

A page never waits longer than it chose to. While a file grows the last numbers stay, marked as stale; if another file
takes its place they do not. `updates` tells a page with stale numbers about new ones.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from velodrome.errors import InputError, blame
from velodrome.records.rollout import beside
from velodrome.viewer.measure import MeasuringProcess, measured

SMALL_BYTES = 8_000_000  # up to here reading a file is quicker than starting a process
PAUSE_S = 2.0  # between two readings of a file that grows
_PAUSE_SHARE = 4.0  # and at least this many times as long as the last one took


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


class Version(NamedTuple):
    """What changes when a file does."""

    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    rebuilt_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Something measured. `value` is None until it is known; `stale` if the file changed since."""

    value: Any = None
    stale: bool = False
    error: str | None = None


@dataclass(slots=True)
class _Known:
    value: Any = None
    error: str | None = None
    versions: list[Version] | None = None
    running: Future[None] | None = None
    next_at: float = 0.0
    wanted: bool = False  # a page has stale numbers, and no new ones are being made
    updates: int = 0


class Measurements:
    """The numbers of all files that are viewed. One measurement runs at a time."""

    def __init__(self, *, small_bytes: int = SMALL_BYTES, pause_s: float = PAUSE_S) -> None:
        self._small_bytes, self._pause_s = small_bytes, pause_s
        self._known: dict[tuple[str, tuple[MeasuredFile, ...]], _Known] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="measure")
        self._elsewhere: MeasuringProcess | None = None
        self._closed = False

    def read(self, kind: str, *files: MeasuredFile, patience_s: float = 0.0) -> Measurement:
        """What is known now. If it is missing or stale, measuring starts, and this waits up to `patience_s` for it."""
        versions = _versions(files)
        with self._lock:
            known = self._known.setdefault((kind, files), _Known())
            if known.versions is not None and _replaced(known.versions, versions):
                known.value, known.error = None, None
            if known.versions != versions or known.error is not None:
                self._begin(known, kind, files)
            running = known.running
        if running is not None and patience_s > 0:
            wait([running], timeout=patience_s)
        with self._lock:
            stale = known.versions != versions
            known.wanted |= stale
            return Measurement(known.value, stale, known.error)

    def updates(self, file: MeasuredFile) -> int:
        """Grows whenever something new is known about a file. Starts what is wanted and due."""
        with self._lock:
            entries = [(*key, known) for key, known in self._known.items() if file in key[1]]
            for kind, files, known in entries:
                known.wanted = known.wanted and known.versions != _versions(files)
                if known.wanted:
                    self._begin(known, kind, files)
            return sum(known.updates for *_, known in entries)

    def _begin(self, known: _Known, kind: str, files: tuple[MeasuredFile, ...]) -> None:
        """Measure, unless it is running or ran a moment ago."""
        if known.running is None and time.monotonic() >= known.next_at and not self._closed:
            known.wanted = False
            known.running = self._pool.submit(self._update, known, kind, files)

    def close(self) -> None:
        """Stop measuring."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._elsewhere is not None:
            self._elsewhere.kill()
        self._pool.shutdown()

    def _update(self, known: _Known, kind: str, files: tuple[MeasuredFile, ...]) -> None:
        began, versions = time.monotonic(), _versions(files)
        value, problem = None, None
        try:
            with blame(InputError, ", ".join(file.path.name for file in files)):
                value = files[0].saved(kind)
                if value is None:
                    value = self._measured(kind, [file.path for file in files], sum(each.size for each in versions))
                    if versions == _versions(files):
                        files[0].save(kind, value)
        except InputError as error:
            problem = error.problems[0]
        took_s = time.monotonic() - began
        with self._lock:
            if problem is None or (known.error, known.versions) != (problem, versions):
                known.updates += 1
            known.value, known.error, known.versions = value, problem, versions
            known.running = None
            known.next_at = time.monotonic() + max(self._pause_s, _PAUSE_SHARE * took_s)

    def _measured(self, kind: str, paths: list[Path], size: int) -> Any:
        if size <= self._small_bytes:
            return measured(kind, paths)
        self._elsewhere = MeasuringProcess()
        if self._closed:
            self._elsewhere.kill()
        return self._elsewhere.run(kind, *paths)


def _versions(files: tuple[MeasuredFile, ...]) -> list[Version]:
    return [
        _version(path, file.rebuilt_at) for file in files for path in (file.path, beside(file.path, "failures.jsonl"))
    ]


def _version(path: Path, rebuilt_at: float) -> Version:
    try:
        status = path.stat()
    except OSError:
        return Version()
    return Version(status.st_size, status.st_mtime_ns, status.st_ino, rebuilt_at)


def _replaced(before: list[Version], now: list[Version]) -> bool:
    """Whether a file is not merely longer, but gone, shorter, rewritten or replaced."""
    return any(
        old.inode and (new.inode != old.inode or new.size < old.size or new.rebuilt_at != old.rebuilt_at)
        for old, new in zip(before, now, strict=True)
    )
