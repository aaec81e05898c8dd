"""The profile of one server (or of the collector) in a folder: parts of processes, and readable files made from them.

Each process saves its part every few seconds. A part is complete or absent, and remains if its process is killed. After
saving, a process rebuilds the files from all parts, under a lock, so nothing has to be written at the end. Files of the
previous run are kept as `.1`, of the run before it as `.2`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import NamedTuple

import orjson

from velodrome.errors import InputError
from velodrome.forks import close_alone, keep_alone, lock_holders
from velodrome.timing.tables import Table, as_callgrind, as_pstat, as_text, from_json, merged

PARTS = ".parts"
_CLAIM_S = 5.0  # the workers of a run that was killed need about three seconds to end


class Part(NamedTuple):
    """The part of one process: its worker, its life (new for each start of a worker), and its table."""

    worker: int
    life: str
    table: Table


class Profiles:
    """The files of one server."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = re.sub(r"[^\w.-]", "_", name)
        self._parts = directory / PARTS / self.name

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Start a new profile, with a lock; files of earlier runs are rotated."""
        with self._lock_file("claim") as lock:
            deadline = time.monotonic() + _CLAIM_S
            while not _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if time.monotonic() > deadline:
                    raise InputError(
                        f"{self.directory}: another run writes the profile of {self.name} there"
                        f"{lock_holders(self._parts / 'claim.lock')};"
                        " give another +profiling_results_dirpath"
                    )
                time.sleep(0.05)
            self._rotate()
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Join the current profile; it cannot be rotated while this is open."""
        with self._lock_file("claim") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def save(self, part: Part) -> None:
        """Replace the part of one process."""
        _replace(self._parts / f"{part.worker}.{part.life}.json", orjson.dumps(part.table.as_json()))

    def saved(self) -> list[Part]:
        """All saved parts."""
        parts = []
        for path in sorted(self._parts.glob("*.json")):
            worker, life, _ = path.name.split(".")
            with contextlib.suppress(FileNotFoundError):
                parts.append(Part(int(worker), life, from_json(orjson.loads(path.read_bytes()))))
        return parts

    def write(self, *, workers: int, unless_within_s: float = 0.0) -> None:
        """Make the files from all parts, unless they are newer than `unless_within_s`."""
        with self._lock_file("write") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if time.time() - self._file(".log").stat().st_mtime < unless_within_s:
                    return
            self._write(self.saved(), workers)

    def _write(self, parts: list[Part], workers: int) -> None:
        clock = parts[0].table.clock if parts else "cpu"
        total = merged(clock, [part.table for part in parts])
        _replace(self._file(".log"), as_text(total).encode())
        _replace(self._file(".pstat"), as_pstat(total))
        _replace(self._callgrind, as_callgrind(total, self.name).encode())
        for worker in range(workers) if workers > 1 else ():
            worker_table = merged(clock, [part.table for part in parts if part.worker == worker])
            _replace(self._file(f".worker{worker}.log"), as_text(worker_table).encode())

    def _file(self, ending: str) -> Path:
        return self.directory / f"{self.name}{ending}"

    @property
    def _callgrind(self) -> Path:
        """The name that kcachegrind's own dialog looks for."""
        return self.directory / f"callgrind.out.{self.name}"

    @contextlib.contextmanager
    def _lock_file(self, name: str) -> Iterator[int]:
        self._parts.mkdir(parents=True, exist_ok=True)
        number = keep_alone(os.open(self._parts / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644))
        try:
            yield number
        finally:
            close_alone(number)

    def _rotate(self) -> None:
        """Rotate the files of the previous run, rebuilt from all its parts."""
        parts = self.saved()
        if parts:
            self._write(parts, 1 + max(part.worker for part in parts))
        fixed = [self._file(ending) for ending in (".log", ".pstat")]
        for path in (*fixed, self._callgrind, *self.directory.glob(f"{escape(self.name)}.worker*.log")):
            shift(path)
        for path in self._parts.glob("*.json"):
            path.unlink()


def shift(path: Path) -> None:
    """Rotate a file: `x` becomes `x.1`, `x.1` becomes `x.2`, and so on."""
    if not path.exists():
        return
    number = 1
    while _numbered(path, number).exists():
        number += 1
    for each in range(number, 1, -1):
        os.replace(_numbered(path, each - 1), _numbered(path, each))
    os.replace(path, _numbered(path, 1))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _locked(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        return False
    return True


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def place(enabled: bool, directory: Path | None) -> Path | None:
    """The folder of profiles, which is created and writable; None if profiling is off."""
    if not enabled:
        return None
    if directory is None:
        raise InputError("profiling_enabled is set, but not where profiles go: give +profiling_results_dirpath=DIR")
    try:
        (directory / PARTS).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory / PARTS):
            return directory.absolute()
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"profiling_results_dirpath {directory}: cannot be written: {why}; give another") from error
