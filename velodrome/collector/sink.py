"""Writes the rollouts file, the failures file and the keys file of a run.

A rollout is in the file before it counts as finished. A thread syncs the files to disk, so a slow disk does not hold up
the model, and compares them with their paths once per second. If another program removed, replaced, cut or wrote to one
of them, nothing more is written, and the run ends with an error. At the end everything appended is read back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from velodrome.collector.keys import Earlier, Entry, KeyFile, keys_path
from velodrome.collector.settings import SharedSettings
from velodrome.errors import ChangedError, InputError, StorageError, VelodromeError
from velodrome.records.appender import Appender
from velodrome.records.outfile import side_file_problem
from velodrome.records.rollout import SIDECARS, beside, encode
from velodrome.settings.files import find_inputs, is_pattern

Json = dict[str, Any]

_COMPARE_EVERY_S = 1.0


class Sink:
    """The two files of a collection, locked until `close`. The failures file is created with the first failure."""

    def __init__(self, path: Path, *, overwrite: bool = False, sync_every_s: float = 1.0) -> None:
        self.path = path
        self._failures_path = beside(path, "failures.jsonl")
        self._failures: Appender | None = None
        self.rows = Appender(path)
        try:
            if self._failures_path.exists():
                self._failures = Appender(self._failures_path)
        except VelodromeError:
            self.rows.close()
            raise
        self.notes = [note for file in self._files() for note in file.notes]
        self.size_found = self.rows.size_found
        if overwrite:
            keys_path(path).unlink(missing_ok=True)
            self.rows.clear()
            if self._failures is not None:
                self._failures_path.unlink(missing_ok=True)
                self._failures.close()
                self._failures = None
        self.size_before = self.rows.size
        self.rows_before = 0  # rollouts that were in the file before the run
        self.keys: KeyFile | None = None
        self.changed: str | None = None  # the file that another program changed, and how
        self._disk_error: str | None = None
        self._lock = threading.Lock()  # the loop appends, the thread compares
        self._closed = False
        self._stop = threading.Event()
        self._every_s = max(sync_every_s, 0.01)
        self._syncer = threading.Thread(target=self._watch, name="sync", daemon=True)
        self._syncer.start()

    def _files(self) -> list[Appender]:
        return [self.rows] if self._failures is None else [self.rows, self._failures]

    @property
    def size(self) -> int:
        """Bytes in the rollouts file."""
        return self.rows.size

    def keep(self, line: bytes, entry: Entry | None = None) -> None:
        """Write one encoded rollout."""
        self._append(self.rows, line)
        if self.keys is not None and entry is not None:
            self.keys.add(entry)

    def fail(self, failure: Json) -> None:
        """Write one failed attempt."""
        if self._failures is None:
            try:
                self._failures = Appender(self._failures_path)
            except InputError as error:
                raise StorageError(str(error)) from error
        self._append(self._failures, encode(failure))

    def _append(self, file: Appender, line: bytes) -> None:
        """Append a line, or raise if another program changed a file, or if an earlier sync failed."""
        with self._lock:
            if self.changed is not None:
                raise ChangedError(self.changed)
            if self._disk_error is not None:
                raise StorageError(self._disk_error)
            file.append(line)

    def seal(self) -> None:
        """Write the keys of all rollouts so far."""
        if self.keys is not None and self.changed is None:
            self.keys.seal(*self.rows.state())

    def _watch(self) -> None:
        synced_at = time.monotonic()
        while not self._stop.wait(min(self._every_s, _COMPARE_EVERY_S)):
            try:
                self.compare()
                if self.changed is not None:
                    return
                if time.monotonic() - synced_at >= self._every_s:
                    for file in self._files():
                        file.sync()
                    synced_at = time.monotonic()
            except OSError as error:
                self._disk_error = f"{self.path}: the disk does not keep what is written: {error.strerror or error}"
                return
            except StorageError as error:
                self._disk_error = str(error)
                return

    def compare(self, *, reread: bool = False) -> None:
        """Compare both files with their paths; with `reread` also with what was appended."""
        with self._lock:
            for file in self._files() if self.changed is None else ():
                problem = file.change(reread=reread)
                if problem is not None:
                    self.stop_writing(f"{file.path}: {problem}")
                    return

    def stop_writing(self, problem: str) -> None:
        """Write nothing more, because another program changed a file. Remove the keys file: it may be wrong."""
        self.changed = problem
        with suppress(OSError):
            keys_path(self.path).unlink(missing_ok=True)

    def finish(self) -> None:
        """Stop the thread after the last line, and compare once more."""
        self._stop.set()
        self._syncer.join()
        self.compare(reread=True)

    def close(self) -> None:
        """Sync, unlock and close both files. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        self._syncer.join()
        if self.keys is not None:
            self.keys.close()
        try:
            self.compare()
        finally:
            for file in self._files():
                file.close()


class MemorySink:
    """Rollouts and failures in memory, for a run without an output."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.failed: list[Json] = []
        self.notes: list[str] = []
        self.size = self.size_before = self.rows_before = 0
        self.changed: str | None = None
        self.path = None

    def keep(self, line: bytes, entry: Entry | None = None) -> None:
        """Keep one encoded rollout."""
        self.lines.append(line)
        self.size += len(line)

    def fail(self, failure: Json) -> None:
        """Keep one failed attempt."""
        self.failed.append(failure)

    def seal(self) -> None:
        """Nothing to write: there is no keys file."""

    def finish(self) -> None:
        """Nothing to compare."""

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def open_sink(settings: SharedSettings, earlier: Earlier, *, by_task: bool) -> Iterator[Sink | MemorySink]:
    """Open and lock the output. Raises if another program wrote to it after it was read."""
    output = settings.output
    if output is None:
        yield MemorySink()
        return
    sink = Sink(output, overwrite=settings.overwrite, sync_every_s=getattr(settings, "sync_every_s", 1.0))
    sink.rows_before = earlier.rows
    try:
        if not settings.overwrite and sink.size_found != earlier.size:
            raise InputError(f"{output}: another collection wrote to it just now; run the command again")
        sink.keys = KeyFile(output, earlier, *sink.rows.state(), by_task=by_task)
        yield sink
    finally:
        sink.close()


def refuse_output(output: Path, source: Path | None) -> None:
    """Refuse an output that cannot be written. `source` is the input: a file or a pattern of files."""
    if not output.name.endswith((".jsonl", ".jsonl.zst")):
        raise InputError(f"{output}: an output ends in .jsonl or .jsonl.zst")
    if (problem := side_file_problem(output)) is not None:
        raise InputError(problem)
    try:
        exists = output.exists()
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    twin = output.with_suffix("") if output.suffix == ".zst" else output.with_name(f"{output.name}.zst")
    if twin.exists():
        raise InputError(f"{output}: {twin} is there, and both would share one run file; give another name")
    if exists and not output.is_file():
        kind = "a folder" if output.is_dir() else "not a regular file"
        raise InputError(f"{output}: {kind}; give a file")
    if source is None:
        return
    outputs = (output, *(beside(output, kind) for kind in SIDECARS))
    for file in outputs if is_pattern(source) else ():
        if fnmatch(str(file.absolute()), str(source.absolute())):
            raise InputError(f"{output}: the next run would read {file} as an input ({source}); give another output")
    for input_file in find_inputs(source) if is_pattern(source) else [source]:
        for file in outputs:
            if file.exists() and file.samefile(input_file):
                same = f"{output}: input and output are the same file"
                other = f"{input_file}: a collection into {output} writes to it; give another output"
                raise InputError(same if file is output else other)
