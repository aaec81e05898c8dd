"""Where finished work goes: the rollouts file, the failures file, and the keys file.

A rollout is in the file before it counts as finished. Syncing to disk happens in a thread, at most once in
`sync_every_s`, so a slow disk does not hold up the model. The same thread compares each file with its path once per
second. Other programs may remove, replace, cut or overwrite a file meanwhile: once that is noticed nothing more goes
into it, and its whole lines, the last ones appended and those still to come are saved in a new file beside it.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Any

from velodrome.collector.keys import Earlier, Entry, KeyFile, keys_path
from velodrome.collector.settings import SharedSettings
from velodrome.errors import ChangedError, InputError, StorageError, VelodromeError
from velodrome.records import rollout
from velodrome.records.appender import Appender
from velodrome.records.rollout import key_in
from velodrome.settings.files import find_inputs, is_pattern

Json = dict[str, Any]

_COMPARE_EVERY_S = 1.0


class Sink:
    """The two files of a collection, locked for as long as it lives."""

    def __init__(self, path: Path, *, overwrite: bool = False, sync_every_s: float = 1.0) -> None:
        self.path = path
        self.rows = GuardedFile(path)
        try:
            self.failures = GuardedFile(rollout.beside(path, "failures.jsonl"))
        except VelodromeError:
            self.rows.close()
            raise
        self.notes = [*self.rows.file.notes, *self.failures.file.notes]
        if overwrite:
            keys_path(path).unlink(missing_ok=True)
            self.rows.file.clear()
            self.failures.file.clear()
        self.size_found = self.rows.file.size_found
        self.size_before = self.rows.file.size
        self.rows_before = 0  # how many rollouts that file had, where somebody counted them
        self.keys: KeyFile | None = None
        self._closed = False
        self._trouble: str | None = None
        self._stop = threading.Event()
        self._every_s = max(sync_every_s, 0.01)
        self._syncer = threading.Thread(target=self._watch, name="sync", daemon=True)
        self._syncer.start()

    @property
    def size(self) -> int:
        """Bytes in the rollouts file."""
        return self.rows.file.size

    @property
    def changed(self) -> str | None:
        """Which file another program changed, and how; None while both are as they were left."""
        for each in (self.rows, self.failures):
            if each.changed is not None:
                return f"{each.path}: {each.changed}"
        return None

    @property
    def place(self) -> Path:
        """The file that the rollouts are in."""
        return self.path if self.rows.saved is None else self.rows.saved.path

    def keep(self, line: bytes, entry: Entry | None = None) -> None:
        """Write one encoded rollout. A disk that could not keep what was written before is reported here."""
        if self._trouble is not None:
            raise StorageError(self._trouble)
        self.rows.append(line)
        if self.keys is not None and entry is not None:
            self.keys.add(entry, line)

    def seal(self) -> None:
        """The rows so far are complete: the keys file may say so."""
        if self.keys is not None:
            if self.rows.changed is None:
                self.keys.seal(self.rows.file.size, self.rows.file.changed_at)
            else:
                self.keys.close()

    def fail(self, failure: Json) -> None:
        """Write one failed attempt."""
        self.failures.append(rollout.encode(failure))

    def _watch(self) -> None:
        synced_at = time.monotonic()
        while not self._stop.wait(min(self._every_s, _COMPARE_EVERY_S)):
            try:
                self.compare()
                if time.monotonic() - synced_at >= self._every_s:
                    self.rows.sync()
                    self.failures.sync()
                    synced_at = time.monotonic()
            except OSError as error:
                self._trouble = f"{self.path}: the disk does not keep what is written: {error.strerror or error}"
                return
            except VelodromeError as error:
                self._trouble = str(error)
                return

    def compare(self, *, thorough: bool = False) -> None:
        """Compare both files with their paths, and save the lines of one that changed."""
        self.rows.compare(thorough=thorough)
        self.failures.compare(thorough=thorough)

    def finish(self) -> None:
        """No more lines: stop the thread and compare once more."""
        self._stop.set()
        self._syncer.join()
        self.compare(thorough=True)

    def changes(self) -> list[str]:
        """What happened to files that changed, one line each."""
        files = ((self.rows, "rollouts"), (self.failures, "failures"))
        return [each.report(what) for each, what in files if each.changed is not None]

    def close(self) -> None:
        """Sync and let go of both files; a failures file that stayed empty is removed. Closing twice is fine."""
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
            self.rows.close()
            self.failures.close(remove_empty=True)


class MemorySink:
    """Rollouts and failures in memory, for a run without an output."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.failed: list[Json] = []
        self.notes: list[str] = []
        self.size = self.size_before = self.rows_before = 0
        self.changed: str | None = None
        self.place = None

    def keep(self, line: bytes, entry: Entry | None = None) -> None:
        """Keep one encoded rollout."""
        self.lines.append(line)
        self.size += len(line)

    def fail(self, failure: Json) -> None:
        """Keep one failed attempt."""
        self.failed.append(failure)

    def seal(self) -> None:
        """Nothing: there are no keys."""

    def changes(self) -> list[str]:
        """Nothing: nobody else can change them."""
        return []

    def finish(self) -> None:
        """Nothing to compare."""

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def open_sink(settings: SharedSettings, earlier: Earlier, *, by_task: bool) -> Iterator[Sink | MemorySink]:
    """The output, locked; refused if somebody wrote to it since it was read."""
    output = settings.output
    if output is None:
        yield MemorySink()
        return
    sink = Sink(output, overwrite=settings.overwrite, sync_every_s=getattr(settings, "sync_every_s", 1.0))
    sink.rows_before = earlier.rows
    try:
        if not settings.overwrite and sink.size_found != earlier.size:
            raise InputError(f"{output}: another collection wrote to it just now; run the command again")
        file = sink.rows.file
        sink.keys = KeyFile(output, earlier, file.size, file.changed_at, by_task=by_task)
        yield sink
    finally:
        sink.close()


def refuse_output(output: Path, source: Path | None) -> None:
    """An output that cannot be one, said before anything runs. `source` is a file to read, or a pattern of files."""
    if not output.name.endswith((".jsonl", ".jsonl.zst")):
        raise InputError(f"{output}: an output ends in .jsonl or .jsonl.zst")
    try:
        there = output.exists()
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    twin = output.with_suffix("") if output.suffix == ".zst" else output.with_name(f"{output.name}.zst")
    if twin.exists():
        raise InputError(f"{output}: {twin} is there, and both would share one run file; give another name")
    if there and not output.is_file():
        what = "a folder" if output.is_dir() else "not a regular file"
        raise InputError(f"{output}: {what}; give a file")
    if source is None:
        return
    if is_pattern(source):
        _refuse_matched(output, source)
        return
    if there and output.samefile(source):
        raise InputError(f"{output}: input and output are the same file")
    for kind in ("failures.jsonl", "keys", "metrics.json", "plan", "profile.json", "progress.json", "run.json"):
        file = rollout.beside(output, kind)
        if file.exists() and file.samefile(source):
            raise InputError(f"{source}: a collection into {output} writes to it; give another output")


def _refuse_matched(output: Path, pattern: Path) -> None:
    """A file that the run writes must not be an input of the next one."""
    for file in (output, rollout.beside(output, "failures.jsonl")):
        if fnmatch(str(file.absolute()), str(pattern.absolute())):
            raise InputError(f"{output}: the next run would read {file} as an input ({pattern}); give another output")
    for source in find_inputs(pattern):
        refuse_output(output, source)


class GuardedFile:
    """One file of a running collection. `changed` says what happened to it; then `saved` is where its lines are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = Appender(path)
        self.changed: str | None = None
        self.saved: Appender | None = None
        self.unsaved: str | None = None  # why not all of its lines could be saved
        self._rescued = False
        self._folders = iter((path.parent, Path(), Path(tempfile.gettempdir())))
        self._lock = threading.Lock()  # the loop appends, a thread compares

    def append(self, line: bytes) -> None:
        """Add one line, wherever lines go by now."""
        with self._lock:
            if self.saved is None:
                try:
                    self.file.append(line)
                    return
                except ChangedError as error:
                    self._leave(str(error).removeprefix(f"{self.path}: "))
            self._save(line)

    def compare(self, *, thorough: bool = False) -> None:
        """Compare the file with its path. With `thorough` lines are read again if somebody touched the file."""
        with self._lock:
            if self.changed is None:
                problem = self.file.difference()
                if problem is not None and self.file.size == 0:
                    problem = self._reopened(problem)
                if problem is None and thorough:
                    problem = self.file.damage()
                if problem is not None:
                    self._leave(problem)
        self._rescue()

    def leave(self, problem: str) -> None:
        """Take the file for changed, because of something that only a reader can see."""
        with self._lock:
            if self.changed is None:
                self._leave(problem)
        self._rescue()

    def _reopened(self, problem: str) -> str | None:
        """An empty file that is gone is made again; there is nothing to lose."""
        if self.path.exists():
            return problem
        try:
            fresh = Appender(self.path)
        except InputError:
            return problem
        if fresh.size:
            fresh.close()
            return problem
        self.file.close()
        self.file = fresh
        return None

    def _leave(self, problem: str) -> None:
        self.changed = problem
        self._save_elsewhere()

    def _save(self, line: bytes) -> None:
        while self.saved is not None:
            try:
                self.saved.append(line)
                return
            except StorageError as error:
                self.unsaved = _reason(error)
                if not self._save_elsewhere():
                    break
        raise StorageError(f"{self.path}: {self.changed}, and its lines cannot be saved: {self.unsaved}")

    def _save_elsewhere(self) -> bool:
        """Save in the next folder that takes what is saved so far; False if there is none."""
        before = self.saved
        for folder in self._folders:
            try:
                new = new_file(folder, self.path.name)
            except InputError as error:
                self.unsaved = _reason(error)
                continue
            try:
                for line in () if before is None else before.whole_lines():
                    new.append(line)
            except StorageError as error:
                self.unsaved = _reason(error)
                _drop(new)
                continue
            self.saved, self.unsaved = new, None
            if before is not None:
                _drop(before)
            return True
        return False

    def _rescue(self) -> None:
        """Of a file that changed, save its whole lines; those that were appended last are taken from memory."""
        if self.changed is None or self._rescued:
            return
        self._rescued = True
        recent = {key_in(line) or line: line for line in self.file.recent}
        try:
            for line in self.file.whole_lines():
                if (key_in(line) or line) not in recent:
                    self._add(line)
            for line in recent.values():
                self._add(line)
        except StorageError:
            return  # `unsaved` says why

    def _add(self, line: bytes) -> None:
        with self._lock:
            self._save(line)

    def report(self, what: str) -> str:
        """What happened, where the lines are by now, and what to do. Only of a file that changed, and is closed."""
        saved = self.saved
        if saved is None or not saved.appended:
            why = f": {self.unsaved}" if self.unsaved else ""
            return f"{self.path}: {self.changed} during the run; none of its {what} could be saved{why}"
        return (
            f"{self.path}: {self.changed} during the run; {saved.appended:,} of its {what} are saved in {saved.path}; "
            + (f"the others could not be saved ({self.unsaved}); " if self.unsaved else "")
            + f"to continue, put that in place of {self.path} and run the same command again"
        )

    def sync(self) -> None:
        """Ask the disk to keep what was written."""
        self.file.sync()
        if self.saved is not None:
            self.saved.sync()

    def close(self, *, remove_empty: bool = False) -> None:
        """Sync and let go of the file. With `remove_empty` it is removed if it is empty and still this one."""
        unused = remove_empty and self.changed is None and self.file.size == 0 and self.file.difference() is None
        if unused:
            self.path.unlink(missing_ok=True)
        self.file.close()
        if self.saved is not None:
            self.saved.close()
            if not self.saved.appended:
                _drop(self.saved)


def new_file(folder: Path, name: str) -> Appender:
    """A file that was not there before: `rollouts.saved-1.jsonl` for `rollouts.jsonl`."""
    stem, _, suffix = name.rpartition(".jsonl")
    paths = (folder / f"{stem}.saved-{number}.jsonl{suffix}" for number in count(1))
    return Appender(next(path for path in paths if not os.path.lexists(path)), new=True)


def _reason(error: VelodromeError) -> str:
    return str(error).partition(";")[0]


def _drop(file: Appender) -> None:
    file.close()
    file.path.unlink(missing_ok=True)
