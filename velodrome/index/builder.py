"""Keeps the index up to date with the files: detects changes and reads new lines, rows first, then failures.

Every step is a transaction, so building can stop between two steps and another process can continue. Lines are parsed
within the transaction: if several processes build one index, one works while the others wait; they then continue
from its position.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import orjson

import velodrome.index.database as database
from velodrome.errors import InputError
from velodrome.index.answer_types import DEFERRED_STATE, FAILED, STATES
from velodrome.index.columns import Column, append_columns, field_ids
from velodrome.index.fields import FIELD_NAMES
from velodrome.index.lines import CHUNK_BYTES, FileMark, Place, open_lines
from velodrome.index.parsed import ParsedLines, ParsedRow, parse, pattern
from velodrome.records.rows import MOST_NOTES

KEPT, FAILURES = "kept", "failures"  # the two files of a collection
_SMALL_CHUNK_BYTES = 256 * 1024
_ADD_TEXTS = "INSERT INTO search (rowid, prompt, answer, reasoning, tools) VALUES (?, ?, ?, ?, ?)"
_LOCK_S = 0.02  # how long to wait for another writer between checks of the deadline
_DEFERRED = STATES.index(DEFERRED_STATE)


@dataclass(slots=True)
class ReadProgress:
    """How far each file is read, its mark at that time, and the counts so far."""

    places: dict[str, Place] = field(default_factory=lambda: {KEPT: Place(), FAILURES: Place()})
    marks: dict[str, FileMark] = field(default_factory=lambda: {KEPT: FileMark(), FAILURES: FileMark()})
    rows: int = 0
    failed: int = 0
    deferred: int = 0
    unreadable: int = 0
    flaws: int = 0
    notes: list[str] = field(default_factory=list)
    rebuilt: str | None = None
    rebuilt_at: float = 0.0


def read_progress(connection: sqlite3.Connection) -> ReadProgress:
    """The progress stored in the index."""
    row = connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchone()
    values = orjson.loads(row[0]) if row else {}
    for name, kind in (("places", Place), ("marks", FileMark)) if row else ():
        values[name] = {file: kind(**each) for file, each in values[name].items()}
    return ReadProgress(**values)


def _write_progress(connection: sqlite3.Connection, progress: ReadProgress) -> None:
    connection.execute("INSERT OR REPLACE INTO note VALUES ('progress', ?)", (orjson.dumps(asdict(progress)).decode(),))


class _OutOfTime(Exception):
    """The time budget is used up."""


class Builder:
    """Extends one index file. Used by one thread at a time."""

    def __init__(self, files: dict[str, Path], path: Path, clock: Callable[[], float]) -> None:
        self._files = files
        self._path = path
        self._clock = clock
        self.problems: dict[str, str] = {}  # by file: why it cannot be read further
        self.complete_size = -1  # size of the rollouts file when it was last read completely

    def run(self, budget_s: float | None) -> None:
        """Build for up to `budget_s` seconds, or to the end of the files. Problems with files go to `problems`."""
        deadline = None if budget_s is None else time.monotonic() + budget_s

        def pause() -> None:
            if deadline is not None and time.monotonic() >= deadline:
                raise _OutOfTime

        chunk = CHUNK_BYTES if budget_s is None else _SMALL_CHUNK_BYTES
        try:
            with closing(database.connect(self._path, timeout_s=_LOCK_S)) as db:
                size = self._read(db, KEPT, chunk, pause)
                self._read(db, FAILURES, chunk, pause)
                self.complete_size = size
        except _OutOfTime:
            pass
        except sqlite3.OperationalError as error:
            if not database.is_busy(error):  # another process is in the middle of a long step
                raise

    def _read(self, db: sqlite3.Connection, file: str, chunk: int, pause: Callable[[], None]) -> int:
        """Read a file to its end; from its start if it was replaced. Returns its size, or -1 if it cannot be read."""
        path = self._files[file]
        self.problems.pop(file, None)
        try:
            with closing(open_lines(path)) as source:
                while True:
                    start = self._start(db, file, pause, source.change)
                    for lines, end in source.lines(start, chunk=chunk) if start.offset < source.size else ():
                        with database.transaction(db, waiting=pause):
                            progress = read_progress(db)
                            if progress.places[file] != start:  # another process read some of it
                                break
                            parsed = parse(lines, failed=file == FAILURES)
                            _add(db, parsed, progress, file, path.name)
                            progress.places[file], progress.marks[file] = end, source.mark(end)
                            _write_progress(db, progress)
                        start = end
                        pause()
                    else:
                        return source.size
        except InputError as error:
            self.problems[file] = str(error)
            return -1

    def _start(
        self,
        db: sqlite3.Connection,
        file: str,
        pause: Callable[[], None],
        change: Callable[[FileMark, Place], str | None],
    ) -> Place:
        """Where to continue reading. If the file was replaced, the index is emptied first."""
        progress = read_progress(db)
        reason = change(progress.marks[file], progress.places[file])
        if reason is None:
            return progress.places[file]
        self.complete_size = -1
        with database.transaction(db, waiting=pause):
            if read_progress(db) == progress:  # no other process has emptied it
                database.make_empty(db)
                note = f"{self._files[file].name}: {reason}; read again from the start"
                _write_progress(db, ReadProgress(rebuilt=note, rebuilt_at=self._clock()))
        return self._start(db, file, pause, change)


def _add(connection: sqlite3.Connection, parsed: ParsedLines, progress: ReadProgress, file: str, name: str) -> None:
    """Store and count the rows of some lines. `name` is the file name in notes."""
    rows = parsed.rows
    if file == KEPT:
        _insert(connection, rows)
        progress.rows += len(rows)
        progress.deferred += sum(row.state == _DEFERRED for row in rows)
        if progress.failed:
            _delete_failures(connection, rows)
    else:
        _add_failures(connection, rows)
    progress.failed = connection.execute("SELECT count(*) FROM failure").fetchone()[0]
    progress.unreadable += parsed.unreadable
    progress.flaws += parsed.flaws
    room = max(0, MOST_NOTES - len(progress.notes))
    progress.notes += [f"{name}:{note}" for note in parsed.notes[:room]]


def _add_failures(connection: sqlite3.Connection, rows: Sequence[ParsedRow]) -> None:
    """Store failures. A key is listed once: as kept if it was ever kept, otherwise with its last failure."""
    _delete_failures(connection, rows)
    kept = "SELECT 1 FROM entry WHERE key = ?"
    last = {row.key: row for row in rows if not connection.execute(kept, (row.key,)).fetchone()}
    listed = sorted(last.values(), key=lambda row: row.entry[0])  # columns are in the order of numbers
    _insert(connection, listed)
    failures = []
    for row in listed:
        boundary, _, message = row.error.partition(":")
        failures.append((row.entry[0], boundary, pattern(message.strip()), row.error))
    connection.executemany("INSERT INTO failure VALUES (?, ?, ?, ?)", failures)


def _delete_failures(connection: sqlite3.Connection, rows: Iterable[ParsedRow]) -> None:
    """Delete the failures of keys that were attempted again."""
    failed = "SELECT number FROM entry WHERE key = ? AND number > ?"
    for key in {row.key for row in rows}:
        for (number,) in connection.execute(failed, (key, FAILED)).fetchall():
            connection.execute("DELETE FROM failure WHERE number = ?", (number,))
            connection.execute("DELETE FROM entry WHERE number = ?", (number,))


def _insert(connection: sqlite3.Connection, rows: Sequence[ParsedRow]) -> None:
    """Insert rows into their tables and columns, within an open transaction."""
    if not rows:
        return
    integers = {
        "number": [row.entry[0] for row in rows],
        "state": [row.state for row in rows],
        "task": _ids(connection, "task", (), [row.task for row in rows]),
    }
    columns: dict[str, Column] = {name: np.array(values, np.int64) for name, values in integers.items()}
    values = zip(*(row.values for row in rows), strict=True)
    columns |= {name: np.array(column, np.float64) for name, column in zip(FIELD_NAMES, values, strict=True)}
    for name in dict.fromkeys(name for row in rows for name in row.extra):
        columns[name] = np.array([row.extra.get(name) for row in rows], np.float64)
    names = dict.fromkeys(("agent", "outcome", *(name for row in rows for name in row.texts)))
    fields = field_ids(connection, [*columns], [*names])
    texts = {
        name: _ids(connection, "word", (fields[name, True],), [row.texts.get(name, "") for row in rows])
        for name in names
        if (name, True) in fields
    }
    append_columns(connection, fields, columns, {name: np.array(ids, np.int64) for name, ids in texts.items()})
    ids = zip(integers["state"], integers["task"], texts["agent"], texts["outcome"], strict=True)
    entries = (row.entry + row_ids for row, row_ids in zip(rows, ids, strict=True))
    connection.executemany(f"INSERT OR REPLACE INTO entry VALUES ({', '.join('?' * 12)})", entries)
    connection.executemany(_ADD_TEXTS, ((row.entry[0], *row.searched) for row in rows))


def _ids(connection: sqlite3.Connection, table: str, within: tuple[int, ...], names: Sequence[str]) -> list[int]:
    """The id of each name, inserted if new. For a word, `within` is its field, and the id of an empty text is 0."""
    ids = dict.fromkeys(names, 0)
    key_columns = "field, name" if within else "name"
    placeholders = ", ".join("?" * (len(within) + 1))
    test = "field = ? AND name = ?" if within else "name = ?"
    stored = [name for name in ids if name or not within]
    connection.executemany(
        f"INSERT OR IGNORE INTO {table} ({key_columns}) VALUES ({placeholders})", ((*within, name) for name in stored)
    )
    for name in stored:
        row = connection.execute(f"SELECT id FROM {table} WHERE {test}", (*within, name)).fetchone()
        ids[name] = row[0]
    return [ids[name] for name in names]
