"""Where finished work goes: the rollouts file, the failures file, and a disk that is asked to keep them.

A rollout is in the file before anybody is told it is finished. Syncing to the disk happens in a thread, at most
once in `sync_every_s`, so a slow disk does not hold up the model.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from velodrome.errors import StorageError, VelodromeError
from velodrome.records import rollout
from velodrome.records.jsonl import Appender

Json = dict[str, Any]


class Sink:
    """The two files of a collection, locked for as long as it lives."""

    def __init__(self, path: Path, *, overwrite: bool = False, sync_every_s: float = 1.0) -> None:
        self.path = path
        self._rows = Appender(path)
        try:
            self._failures = Appender(rollout.beside(path, "failures.jsonl"))
        except VelodromeError:
            self._rows.close()
            raise
        self.notes = [*self._rows.notes, *self._failures.notes]
        if overwrite:
            self._rows.clear()
            self._failures.clear()
        self.size_found = self._rows.size_found
        self.size_before = self._rows.size
        self._trouble: str | None = None
        self._stop = threading.Event()
        self._every_s = max(sync_every_s, 0.01)
        self._syncer = threading.Thread(target=self._sync, name="sync", daemon=True)
        self._syncer.start()

    @property
    def size(self) -> int:
        """Bytes in the rollouts file."""
        return self._rows.size

    def keep(self, line: bytes) -> None:
        """Write one encoded rollout. A disk that could not keep what was written before is said here."""
        if self._trouble is not None:
            raise StorageError(f"{self.path}: the disk does not keep what is written: {self._trouble}")
        self._rows.append(line)

    def fail(self, failure: Json) -> None:
        """Write one failed attempt."""
        self._failures.append(rollout.encode(failure))

    def _sync(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._rows.sync()
                self._failures.sync()
            except OSError as error:
                self._trouble = error.strerror or str(error)
                return

    def close(self) -> None:
        """Sync and let go of both files; a failures file that stayed empty is removed."""
        self._stop.set()
        self._syncer.join()
        self._rows.close()
        empty = self._failures.size == 0
        self._failures.close()
        if empty:
            self._failures.path.unlink(missing_ok=True)
