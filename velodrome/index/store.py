"""Writing to the index: how far it is, and the rows of the lines that were read, within an open transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import orjson

from velodrome.index.answer_types import DEFERRED_STATE, FAILED, STATES
from velodrome.index.columns import Column, append_columns
from velodrome.index.fields import FIELD_NAMES
from velodrome.index.lines.followed_file import FileMark, Place
from velodrome.index.lines.parsed_lines import MOST_NOTES, ParsedLines, ParsedRow, pattern

KEPT, FAILURES = "kept", "failures"  # the two files of a collection
_DEFERRED = STATES.index(DEFERRED_STATE)


@dataclass(slots=True)
class ReadProgress:
    """How far each file is read, what it was like then, and what was counted on the way."""

    places: dict[str, Place] = field(default_factory=lambda: {KEPT: Place(), FAILURES: Place()})
    marks: dict[str, FileMark] = field(default_factory=lambda: {KEPT: FileMark(), FAILURES: FileMark()})
    rows: int = 0
    failed: int = 0
    deferred: int = 0
    unreadable: int = 0
    flaws: int = 0
    notes: list[str] = field(default_factory=list)
    searched: dict[str, Place] = field(default_factory=lambda: {KEPT: Place(), FAILURES: Place()})
    searchable: int = 0
    rebuilt: str | None = None
    rebuilt_at: float = 0.0


def read_progress(connection: sqlite3.Connection) -> ReadProgress:
    """How far the index is, as of the open transaction, or now."""
    row = connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchone()
    values = orjson.loads(row[0]) if row else {}
    for name, kind in (("places", Place), ("searched", Place), ("marks", FileMark)) if row else ():
        values[name] = {file: kind(**each) for file, each in values[name].items()}
    return ReadProgress(**values)


def write_progress(connection: sqlite3.Connection, progress: ReadProgress) -> None:
    """Remember how far the index is."""
    connection.execute("INSERT OR REPLACE INTO note VALUES ('progress', ?)", (orjson.dumps(asdict(progress)).decode(),))


def add(connection: sqlite3.Connection, parsed: ParsedLines, progress: ReadProgress, file: str, name: str) -> None:
    """Store the rows of some lines, and count them. `name` is the file's, for notes."""
    rows = parsed.rows
    if file == KEPT:
        _insert(connection, rows)
        progress.rows += len(rows)
        progress.deferred += sum(row.state == _DEFERRED for row in rows)
        if progress.failed:
            _forget_failures(connection, rows)
    else:
        _add_failures(connection, rows)
    progress.failed = connection.execute("SELECT count(*) FROM failure").fetchone()[0]
    progress.unreadable += parsed.unreadable
    progress.flaws += parsed.flaws
    room = max(0, MOST_NOTES - len(progress.notes))
    progress.notes += [f"{name}:{note}" for note in parsed.notes[:room]]


def _add_failures(connection: sqlite3.Connection, rows: Sequence[ParsedRow]) -> None:
    """A key is listed once: as kept if it ever was, else by its last failure."""
    _forget_failures(connection, rows)
    kept = "SELECT 1 FROM entry WHERE key = ?"
    last = {row.key: row for row in rows if not connection.execute(kept, (row.key,)).fetchone()}
    listed = sorted(last.values(), key=lambda row: row.entry[0])  # columns are in the order of numbers
    _insert(connection, listed)
    failures = []
    for row in listed:
        boundary, _, message = row.error.partition(":")
        failures.append((row.entry[0], boundary, pattern(message.strip()), row.error))
    connection.executemany("INSERT INTO failure VALUES (?, ?, ?, ?)", failures)


def _forget_failures(connection: sqlite3.Connection, rows: Iterable[ParsedRow]) -> None:
    """Take out failures that were followed by another attempt."""
    failed = "SELECT number FROM entry WHERE key = ? AND number > ?"
    for key in {row.key for row in rows}:
        for (number,) in connection.execute(failed, (key, FAILED)).fetchall():
            connection.execute("DELETE FROM failure WHERE number = ?", (number,))
            connection.execute("DELETE FROM entry WHERE number = ?", (number,))


def _insert(connection: sqlite3.Connection, rows: Sequence[ParsedRow]) -> None:
    if not rows:
        return
    whole = {
        "number": [row.entry[0] for row in rows],
        "state": [row.state for row in rows],
        "task": _ids(connection, "task", [row.task for row in rows]),
        "agent": _ids(connection, "word", [row.agent for row in rows]),
        "status": _ids(connection, "word", [row.status for row in rows]),
        "stop": _ids(connection, "word", [row.stop for row in rows]),
        "outcome": _ids(connection, "word", [row.outcome for row in rows]),
    }
    ids = zip(*(whole[name] for name in ("state", "task", "agent", "outcome")), strict=True)
    entries = (row.entry + own for row, own in zip(rows, ids, strict=True))
    connection.executemany(f"INSERT OR REPLACE INTO entry VALUES ({', '.join('?' * 13)})", entries)
    columns: dict[str, Column] = {name: np.array(values, np.int64) for name, values in whole.items()}
    values = zip(*(row.values for row in rows), strict=True)
    columns |= {name: np.array(column, np.float64) for name, column in zip(FIELD_NAMES, values, strict=True)}
    for name in dict.fromkeys(name for row in rows for name in row.extra):
        columns[name] = np.array([row.extra.get(name) for row in rows], np.float64)
    texts = {
        name: [row.texts.get(name, "") for row in rows] for name in {name: 0 for row in rows for name in row.texts}
    }
    append_columns(connection, columns, texts)


def _ids(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> list[int]:
    """The id of each name; new names get one."""
    distinct = dict.fromkeys(names, 0)
    connection.executemany(f"INSERT OR IGNORE INTO {table} (name) VALUES (?)", ((name,) for name in distinct))
    for name in distinct:
        distinct[name] = connection.execute(f"SELECT id FROM {table} WHERE name = ?", (name,)).fetchone()[0]
    return [distinct[name] for name in names]
