"""Keeps the index up to date with the file: notices changes, reads on, then makes texts searchable.

The order is rows, failures, search. Every step is a transaction of its own, so building can stop between any two and
another process can continue. Whoever builds says so in the index (a lease), and others wait instead of doing the same
work.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import orjson

import velodrome.index.database as database
import velodrome.index.store as store
from velodrome.errors import InputError
from velodrome.index.followed_file import CHUNK_BYTES, PlainLines
from velodrome.index.parsed_lines import parse
from velodrome.index.search import add_texts, read_texts
from velodrome.index.zst_lines import ZstLines

_SMALL_CHUNK_BYTES = 256 * 1024
_LEASE_S = 5.0
_WAIT_S = 0.05


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
        self._token = f"{os.getpid()}-{time.monotonic_ns()}"
        self._leased_until = 0.0
        self._size = 0
        self._deadline: float | None = None
        self._stopped: Callable[[], bool] = lambda: False
        self.problems: dict[str, str] = {}  # what keeps a file from being read on
        self.complete_size = -1  # how long the rollouts file was when all of it was read
        self._path = path
        self._db = database.connect(path)
        self._identity = _identity(path)

    def replaced(self) -> bool:
        """Whether the index file is not the one that was opened."""
        return _identity(self._path) != self._identity

    def close(self) -> None:
        """Let others build, and close the index file. Closing twice is fine."""
        try:
            if self._leased_until:
                self._release()
        finally:
            self._db.close()

    def abandon(self) -> None:
        """Close an index file that is of no use any more."""
        self._leased_until = 0.0
        self.close()

    def run(self, budget_s: float | None, *, search: bool, stopped: Callable[[], bool]) -> None:
        """Build as far as the budget allows; without one, to the end. What is wrong with a file is noted."""
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._stopped = stopped
        try:
            while not (self._read(store.KEPT) and self._read(store.FAILURES)):
                pass
            self.complete_size = self._size
            for file in self._files if search and database.searchable(self._db) else ():
                self._make_searchable(file)
        except _OutOfTime:
            pass
        except sqlite3.OperationalError as error:
            if not database.is_busy(error):  # another process is in the middle of a long step
                raise
        finally:
            if self._leased_until and not self._db.in_transaction:
                self._release()

    def forget(self, known: store.ReadProgress, why: str) -> None:
        """Start over."""
        self.complete_size = -1
        store.reset(self._db, known, why, self._clock())

    def _pause(self) -> None:
        """Between two steps: stop if the time is over."""
        if self._stopped() or (self._deadline is not None and time.monotonic() >= self._deadline):
            raise _OutOfTime

    def _read(self, file: str) -> bool:
        """Read a file to its end. False: it is not the one that was read, and everything starts over."""
        path = self._files[file]
        self.problems.pop(file, None)
        try:
            with closing(open_lines(path)) as source:
                known = store.read_progress(self._db)
                why = source.change(known.marks[file], known.places[file], now=self._clock())
                if why is not None:
                    self.forget(known, f"{path.name}: {why}; read again from the start")
                    return False
                self._size = source.size if file == store.KEPT else self._size
                while not self._store(file, source):
                    pass
        except InputError as error:
            self.problems[file] = str(error)
        return True

    def _store(self, file: str, source: PlainLines | ZstLines) -> bool:
        """Store the rest of a file. False: another process stored some of it, so that something else comes next."""
        start = store.read_progress(self._db).places[file]
        chunk = CHUNK_BYTES if self._deadline is None else _SMALL_CHUNK_BYTES
        for lines, end in source.lines(start, chunk=chunk) if start.offset < source.size else ():
            self._lease()
            parsed = parse(lines, failed=file == store.FAILURES)
            stretch = store.Stretch(file, source.path.name, start, end, source.mark(end))
            if not store.add(self._db, parsed, stretch):
                return False
            start = end
            self._pause()
        return True

    def _make_searchable(self, file: str) -> None:
        progress = store.read_progress(self._db)
        start, end = progress.searched[file], progress.places[file]
        if start.line >= end.line:
            return
        try:
            with closing(open_lines(self._files[file])) as source:
                if source.change(progress.marks[file], end, now=self._clock()) is not None:
                    return  # the next call says why
                for before, texts, behind in read_texts(source, file, start, end):
                    self._lease()
                    if not add_texts(self._db, file, before, texts, behind):
                        return
                    self._pause()
        except InputError as error:
            self.problems[file] = str(error)

    def _lease(self) -> None:
        """Claim the building for the next seconds; wait while another process has it."""
        if self._clock() < self._leased_until - _LEASE_S / 2:
            return
        while not self._claimed():
            self._pause()
            time.sleep(_WAIT_S)

    def _claimed(self) -> bool:
        now = self._clock()
        with database.transaction(self._db):
            row = self._db.execute("SELECT value FROM note WHERE name = 'builder'").fetchone()
            token, until = orjson.loads(row[0]) if row else ("", 0.0)
            if token != self._token and now < until < now + 2 * _LEASE_S:
                return False
            lease = orjson.dumps([self._token, now + _LEASE_S]).decode()
            self._db.execute("INSERT OR REPLACE INTO note VALUES ('builder', ?)", (lease,))
        self._leased_until = now + _LEASE_S
        return True

    def _release(self) -> None:
        self._leased_until = 0.0
        own = f'["{self._token}",%'
        self._db.execute("DELETE FROM note WHERE name = 'builder' AND value LIKE ?", (own,))


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
