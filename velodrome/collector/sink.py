"""Where finished work goes: the rollouts file, the failures file, and a disk that is asked to keep them.

A rollout is in the file before anybody is told it is finished. Syncing to the disk happens in a thread, at most
once in `sync_every_s`, so a slow disk does not hold up the model. The same thread compares each file with its path
once per second: lines that would be lost go to a new file beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from velodrome.collector.guarded import GuardedFile
from velodrome.collector.keys import Earlier, Entry, KeyFile, keys_path
from velodrome.collector.settings import SharedSettings
from velodrome.errors import InputError, StorageError, VelodromeError
from velodrome.records import rollout

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
    """An output that cannot be one, said before anything runs."""
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
    if there and output.samefile(source):
        raise InputError(f"{output}: input and output are the same file")
    for kind in ("failures.jsonl", "keys", "metrics.json", "plan", "profile.json", "run.json"):
        file = rollout.beside(output, kind)
        if file.exists() and file.samefile(source):
            raise InputError(f"{source}: a collection into {output} writes to it; give another output")
