"""Keeps the index up to date with the file: notices changes, reads on, then makes texts searchable.

The order is rows, failures, search. Every step is a transaction of its own, so building can stop between any two and
another process can continue. Lines are parsed within the transaction: of several processes that build one index, one
works while the others wait, and then start from where it is.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

import velodrome.index.database as database
import velodrome.index.store as store
from velodrome.errors import InputError
from velodrome.index.lines.followed_file import CHUNK_BYTES, PlainLines
from velodrome.index.lines.parsed_lines import parse, texts
from velodrome.index.lines.zst_lines import ZstLines

_SMALL_CHUNK_BYTES = 256 * 1024
_SEARCH_CHUNK_BYTES = 1024 * 1024
_ADD_TEXTS = "INSERT INTO search (rowid, prompt, answer, reasoning, tools) VALUES (?, ?, ?, ?, ?)"
_LOCK_S = 0.02  # how long to wait for another writer before looking whether the time is over

_FORGET_S = 2.0


class _OutOfTime(Exception):
    """The builder has to stop here for now."""


def open_lines(path: Path) -> PlainLines | ZstLines:
    """A file of lines, plain or compressed."""
    return ZstLines(path) if path.suffix == ".zst" else PlainLines(path)


class Builder:
    """Extends one index file. Used by one thread at a time."""

    def __init__(self, files: dict[str, Path], path: Path, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._size = 0
        self._deadline: float | None = None
        self._stopped: Callable[[], bool] = lambda: False
        self.problems: dict[str, str] = {}  # what keeps a file from being read on
        self.complete_size = -1  # how long the rollouts file was when all of it was read
        self._path = path
        self._db = database.connect(path, timeout_s=_LOCK_S)
        self._identity = _identity(path)

    def replaced(self) -> bool:
        """Whether the index file is not the one that was opened."""
        return _identity(self._path) != self._identity

    def close(self) -> None:
        """Close the index file. Closing twice is fine."""
        self._db.close()

    def run(self, budget_s: float | None, *, search: bool, stopped: Callable[[], bool]) -> None:
        """Build as far as the budget allows; without one, to the end. What is wrong with a file is noted."""
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._stopped = stopped
        try:
            while not (self._read(store.KEPT) and self._read(store.FAILURES)):
                pass
            self.complete_size = self._size
            for file in self._files if search and database.searchable(self._db) else ():
                while not self._make_searchable(file):
                    pass
        except _OutOfTime:
            pass
        except sqlite3.OperationalError as error:
            if not database.is_busy(error):  # another process is in the middle of a long step
                raise

    def forget(self, known: store.ReadProgress, why: str) -> None:
        """Read everything again at the next `run`."""
        self._deadline, self._stopped = time.monotonic() + _FORGET_S, lambda: False
        with suppress(_OutOfTime):
            self._start_over(known, why)

    def _start_over(self, known: store.ReadProgress, why: str) -> None:
        """Empty the index, because the file is not the one that was read; unless another process did so before."""
        self.complete_size = -1
        with self._transaction():
            if store.read_progress(self._db) == known:
                database.make_empty(self._db)
                store.write_progress(self._db, store.ReadProgress(rebuilt=why, rebuilt_at=self._clock()))

    def _transaction(self) -> AbstractContextManager[None]:
        return database.transaction(self._db, waiting=self._pause)

    def _pause(self) -> None:
        """Between two steps: stop if the time is over."""
        if self._stopped() or (self._deadline is not None and time.monotonic() >= self._deadline):
            raise _OutOfTime

    def _read(self, file: str) -> bool:
        """Read a file to its end. False: it is another one, or another process read some of it; look again."""
        path = self._files[file]
        self.problems.pop(file, None)
        try:
            with closing(open_lines(path)) as source:
                known = store.read_progress(self._db)
                start = known.places[file]
                why = source.change(known.marks[file], start, now=self._clock())
                if why is not None:
                    self._start_over(known, f"{path.name}: {why}; read again from the start")
                    return False
                self._size = source.size if file == store.KEPT else self._size
                chunk = CHUNK_BYTES if self._deadline is None else _SMALL_CHUNK_BYTES
                for lines, end in source.lines(start, chunk=chunk) if start.offset < source.size else ():
                    with self._transaction():
                        progress = store.read_progress(self._db)
                        if progress.places[file] != start:
                            return False
                        parsed = parse(lines, failed=file == store.FAILURES)
                        store.add(self._db, parsed, progress, file, path.name)
                        progress.places[file], progress.marks[file] = end, source.mark(end)
                        store.write_progress(self._db, progress)
                    start = end
                    self._pause()
        except InputError as error:
            self.problems[file] = str(error)
        return True

    def _make_searchable(self, file: str) -> bool:
        """Add what was read to the text search. False: another process did some of it; look again."""
        known = store.read_progress(self._db)
        start, end = known.searched[file], known.places[file]
        if start.line >= end.line:
            return True
        try:
            with closing(open_lines(self._files[file])) as source:
                if source.change(known.marks[file], end, now=self._clock()) is not None:
                    return True  # the next call says why
                for lines, behind in source.lines(start, chunk=_SEARCH_CHUNK_BYTES):
                    behind = end if behind.line >= end.line else behind
                    with self._transaction():
                        progress = store.read_progress(self._db)
                        if progress.searched[file] != start or progress.places[file].line < behind.line:
                            return False
                        rows = texts(lines, end.line, failed=file == store.FAILURES)
                        self._db.executemany(_ADD_TEXTS, rows)
                        progress.searched[file] = behind
                        progress.searchable += len(rows)
                        store.write_progress(self._db, progress)
                    start = behind
                    if start == end:
                        return True
                    self._pause()
        except InputError as error:
            self.problems[file] = str(error)
        return True


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
