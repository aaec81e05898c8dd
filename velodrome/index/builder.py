"""Keeps the index up with the file: notices change, reads on, makes SQL indices, then what can be searched.

The order is rows, failures, the indices people need first, the others, search. Every step is a transaction of its
own, so it can stop between any two and another process can take over. Whoever builds says so in the index (a lease),
and others wait for it instead of doing the same work.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import orjson

import velodrome.index.crew as crew
import velodrome.index.indices as indices
import velodrome.index.schema as schema
import velodrome.index.search as search
import velodrome.index.store as store
from velodrome.errors import InputError, ServerError
from velodrome.index.batch import Batch, parse
from velodrome.index.packed import Frames
from velodrome.index.source import CHUNK_BYTES, Lines, Place

_BULK_BYTES = 48 * 1024 * 1024  # from here on other processes help, and SQL indices wait
_SMALL_CHUNK_BYTES = 256 * 1024
_LEASE_S = 5.0
_WAIT_S = 0.05
_SLOW_INDEX_ROWS = 50_000
_SLOW_INDEX_S = 1.0


class Out(Exception):
    """The builder has to stop here for now."""


def opened(path: Path) -> Lines | Frames:
    """A file of lines, plain or compressed."""
    return Frames(path) if path.suffix == ".zst" else Lines(path)


class Builder:
    """Extends one index file. Used by one thread at a time."""

    def __init__(self, files: dict[str, Path], database: Path, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._token = f"{os.getpid()}-{time.monotonic_ns()}"
        self._leased_until = 0.0
        self._size = 0
        self._deadline: float | None = None
        self._stopped: Callable[[], bool] = lambda: False
        self._stepped = False  # whether this call has done anything yet
        self.trouble: dict[str, str] = {}  # what keeps a file from being read on
        self.complete_size = -1  # how long the rollouts file was when all of it was read
        self._database = database
        self.db = schema.connect(database)
        self._file = _identity(database)

    def moved(self) -> bool:
        """Whether the index file is not the one that was opened."""
        return _identity(self._database) != self._file

    def close(self) -> None:
        """Let others build, and let go of the index file. Closing twice is fine."""
        try:
            if self._leased_until:
                self._release()
        finally:
            self.db.close()

    def abandon(self) -> None:
        """Let go of an index file that is of no use any more."""
        self._leased_until = 0.0
        self.close()

    def run(self, budget_s: float | None, *, search: bool, stopped: Callable[[], bool] = lambda: False) -> None:
        """Go as far as the budget allows; without one, to the end. Whatever is found wrong with a file is noted."""
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._stopped = stopped
        self._stepped = False
        try:
            while not (self._rows(store.KEPT) and self._rows(store.FAILURES)):
                pass
            self.complete_size = self._size
            if search:
                self._indices(later=True)
                for file in self._files:
                    self._search(file)
        except Out:
            pass
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            # Somebody else is in the middle of a long step; the next call goes on.
        finally:
            if self._leased_until and not self.db.in_transaction:
                self._release()

    def _pause(self) -> None:
        """Between two steps: stop if the time is over."""
        self._stepped = True
        if self._stopped() or (self._deadline is not None and time.monotonic() >= self._deadline):
            raise Out

    def forget(self, known: store.Progress, why: str) -> None:
        """Start over."""
        self.complete_size = -1
        store.reset(self.db, known, why, self._clock())

    def _rows(self, file: str) -> bool:
        """Read a file on to its end. False: it is not the one that was read, and everything begins anew."""
        path = self._files[file]
        self.trouble.pop(file, None)
        try:
            with closing(opened(path)) as source:
                known = store.read_progress(self.db)
                why = source.change(known.marks[file], known.places[file], now=self._clock())
                if why is not None:
                    self.forget(known, f"{path.name}: {why}; read again from the start")
                    return False
                self._size = source.size if file == store.KEPT else self._size
                self._read(file, source)
        except InputError as error:
            self.trouble[file] = str(error)
        if file == store.KEPT:
            self._indices(later=False)
        return True

    def _read(self, file: str, source: Lines | Frames) -> None:
        place = store.read_progress(self.db).places[file]
        ahead = source.size - place.offset
        if ahead <= 0:
            return
        long = ahead > _BULK_BYTES
        if file == store.KEPT and not long and not place.line:
            self._indices(later=True)
        bulk = long and self._deadline is None
        with _Unsynced(self.db, bulk):
            while not self._stored(file, source, bulk=bulk):
                pass

    def _stored(self, file: str, source: Lines | Frames, *, bulk: bool) -> bool:
        """Read on to the end. False: somebody else did meanwhile, so that what is read here is not what comes next."""
        start = store.read_progress(self.db).places[file]
        with closing(self._batches(file, source, start, bulk=bulk)) as batches:
            for batch, end in batches:
                self._lease()
                if not store.add(self.db, store.Read(batch, file, source.path.name, start, end, source.mark(end))):
                    return False
                start = end
                self._pause()
        return True

    def _batches(
        self, file: str, source: Lines | Frames, start: Place, *, bulk: bool
    ) -> Generator[tuple[Batch, Place], None, None]:
        failed = file == store.FAILURES
        if bulk and isinstance(source, Lines):
            self._lease()
            try:
                for batch, end in crew.batches(source, source.slices(start), failed=failed):
                    yield batch, end
                    start = end
                return
            except ServerError:
                pass  # the rest is read here
        chunk = CHUNK_BYTES if self._deadline is None else _SMALL_CHUNK_BYTES
        for lines, end in source.lines(start, chunk=chunk):
            yield parse(lines, failed=failed), end

    def _indices(self, *, later: bool) -> None:
        for statement in indices.missing(self.db, later=later):
            slow = store.read_progress(self.db).rows > _SLOW_INDEX_ROWS
            short = self._deadline is not None and self._deadline - time.monotonic() < _SLOW_INDEX_S
            if slow and short and self._stepped:
                raise Out  # to be the first step of the next call
            self._lease()
            indices.make(self.db, statement)
            if slow:
                self._pause()

    def _search(self, file: str) -> None:
        progress = store.read_progress(self.db)
        start, end = progress.searched[file], progress.places[file]
        if start.line >= end.line or not schema.searchable(self.db):
            return
        try:
            with closing(opened(self._files[file])) as source:
                if source.change(progress.marks[file], end, now=self._clock()) is not None:
                    return  # the next call says why
                for before, words, behind in search.pieces(source, file, start, end):
                    self._lease()
                    if not search.add(self.db, file, before, words, behind):
                        return
                    self._pause()
        except InputError as error:
            self.trouble[file] = str(error)

    def _lease(self) -> None:
        """Claim the building for the next seconds; wait while somebody else has it."""
        now = self._clock()
        if now < self._leased_until - _LEASE_S / 2:
            return
        while not self._claimed():
            self._pause()
            time.sleep(_WAIT_S)

    def _claimed(self) -> bool:
        now = self._clock()
        with store.transaction(self.db):
            found = self.db.execute("SELECT value FROM note WHERE name = 'builder'").fetchone()
            token, until = orjson.loads(found[0]) if found else ("", 0.0)
            if token != self._token and now < until < now + 2 * _LEASE_S:
                return False
            told = orjson.dumps([self._token, now + _LEASE_S]).decode()
            self.db.execute("INSERT OR REPLACE INTO note VALUES ('builder', ?)", (told,))
        self._leased_until = now + _LEASE_S
        return True

    def _release(self) -> None:
        self._leased_until = 0.0
        like = f'["{self._token}",%'
        self.db.execute("DELETE FROM note WHERE name = 'builder' AND value LIKE ?", (like,))


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


class _Unsynced:
    """While a long file is read the disk is not waited for; the index says so, and one left behind is thrown away."""

    def __init__(self, connection: sqlite3.Connection, active: bool) -> None:
        self._db, self._active = connection, active

    def __enter__(self) -> None:
        if self._active:
            self._db.execute("INSERT OR REPLACE INTO note VALUES ('unsynced', ?)", (schema.boot(),))
            self._db.execute("PRAGMA synchronous=OFF")
            self._db.execute("PRAGMA wal_autocheckpoint=16000")

    def __exit__(self, *_: object) -> None:
        if self._active:
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute("DELETE FROM note WHERE name = 'unsynced'")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA wal_autocheckpoint=1000")
