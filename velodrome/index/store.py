"""Writing to the index: the lines read at once are one transaction, dropped if another process was there first.

Two viewers may index one file at the same time. What was read names the place it begins at; if that is no longer the
current one, it is dropped. So nothing is counted twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import orjson

from velodrome.index.answer_types import DEFERRED_STATE, STATES
from velodrome.index.columns import Column, Columns, append_columns
from velodrome.index.database import make_empty, transaction
from velodrome.index.fields import FIELD_NAMES
from velodrome.index.followed_file import FileMark, Place
from velodrome.index.parsed_lines import MOST_NOTES, ParsedLines, pattern

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

    def encode(self) -> str:
        """As kept in the index file."""
        return orjson.dumps(asdict(self)).decode()

    @staticmethod
    def decode(text: str) -> ReadProgress:
        """From the index file."""
        values = orjson.loads(text)
        for name, kind in (("places", Place), ("searched", Place), ("marks", FileMark)):
            values[name] = {file: kind(**each) for file, each in values[name].items()}
        return ReadProgress(**values)


def read_progress(connection: sqlite3.Connection) -> ReadProgress:
    """How far the index is, as of the open transaction, or now."""
    row = connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchone()
    return ReadProgress.decode(row[0]) if row else ReadProgress()


def write_progress(connection: sqlite3.Connection, progress: ReadProgress) -> None:
    """Remember how far the index is, within an open transaction."""
    connection.execute("INSERT OR REPLACE INTO note VALUES ('progress', ?)", (progress.encode(),))


def reset(connection: sqlite3.Connection, known: ReadProgress, why: str, now: float) -> None:
    """Forget everything, because the file is not the one that was read; unless another process did so before."""
    with transaction(connection):
        if read_progress(connection) == known:
            make_empty(connection)
            write_progress(connection, ReadProgress(rebuilt=why, rebuilt_at=now))


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a file that some lines were read from."""

    file: str
    name: str  # of the file, for notes
    start: Place
    end: Place
    mark: FileMark


def add(connection: sqlite3.Connection, parsed: ParsedLines, stretch: Stretch) -> bool:
    """Store lines. False: they are stored already, or are of a file that was replaced meanwhile."""
    with transaction(connection):
        progress = read_progress(connection)
        if progress.places[stretch.file] != stretch.start:
            return False
        keys = [entry[5] for entry in parsed.entries]
        if stretch.file == KEPT:
            _insert(connection, parsed, range(len(keys)))
            progress.rows += len(keys)
            progress.deferred += parsed.states.count(_DEFERRED)
            if progress.failed:
                _forget_failures(connection, keys)
        else:
            _add_failures(connection, parsed, keys)
        progress.failed = connection.execute("SELECT count(*) FROM failure").fetchone()[0]
        progress.places[stretch.file], progress.marks[stretch.file] = stretch.end, stretch.mark
        progress.unreadable += parsed.unreadable
        progress.flaws += parsed.flaws
        room = max(0, MOST_NOTES - len(progress.notes))
        progress.notes += [f"{stretch.name}:{note}" for note in parsed.notes[:room]]
        write_progress(connection, progress)
    return True


def _add_failures(connection: sqlite3.Connection, parsed: ParsedLines, keys: Sequence[str]) -> None:
    """A key is listed once: as kept if it ever was, else by its last failure."""
    _forget_failures(connection, keys)
    kept = _kept_keys(connection, parsed)
    last = {key: place for place, key in enumerate(keys) if key not in kept}
    _insert(connection, parsed, list(last.values()))
    rows = []
    for key, place in last.items():
        boundary, _, message = parsed.errors[place].partition(":")
        rows.append((parsed.entries[place][0], key, boundary, pattern(message.strip()), parsed.errors[place]))
    connection.executemany("INSERT INTO failure VALUES (?, ?, ?, ?, ?)", rows)


def _kept_keys(connection: sqlite3.Connection, parsed: ParsedLines) -> set[str]:
    """The keys of rollouts that were kept, of the tasks that failures belong to."""
    names = set(parsed.tasks)
    ids = [row[0] for name in names for row in connection.execute("SELECT id FROM task WHERE name = ?", (name,))]
    if not ids:
        return set()
    columns = Columns(connection)
    same = np.isin(columns["task"], ids) & (columns["state"] <= _DEFERRED)
    one = "SELECT key FROM entry WHERE number = ?"
    return {connection.execute(one, (number,)).fetchone()[0] for number in columns["number"][same].tolist()}


def _forget_failures(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    """Take out failures that were followed by another attempt."""
    for key in set(keys):
        for (number,) in connection.execute("SELECT number FROM failure WHERE key = ?", (key,)).fetchall():
            connection.execute("DELETE FROM failure WHERE number = ?", (number,))
            connection.execute("DELETE FROM entry WHERE number = ?", (number,))


def _insert(connection: sqlite3.Connection, parsed: ParsedLines, places: Sequence[int]) -> None:
    """Store the rows at these places."""
    if not places:
        return

    def chosen(items: Sequence[Any]) -> list[Any]:
        return [items[place] for place in places]

    entries = chosen(parsed.entries)
    whole = {
        "number": [entry[0] for entry in entries],
        "state": chosen(parsed.states),
        "task": _ids(connection, "task", chosen(parsed.tasks)),
        "agent": _ids(connection, "word", chosen(parsed.agents)),
        "status": _ids(connection, "word", chosen(parsed.statuses)),
    }
    ids = zip(whole["state"], whole["task"], whole["agent"], strict=True)
    rows = (entry + own for entry, own in zip(entries, ids, strict=True))
    connection.executemany(f"INSERT OR REPLACE INTO entry VALUES ({', '.join('?' * 12)})", rows)
    columns: dict[str, Column] = {name: np.array(values, np.int64) for name, values in whole.items()}
    values = np.array(chosen(parsed.values), np.float64)
    columns |= {name: values[:, at] for at, name in enumerate(FIELD_NAMES)}
    extras = chosen(parsed.extras)
    for name in dict.fromkeys(name for extra in extras for name in extra):
        columns[name] = np.array([extra.get(name) for extra in extras], np.float64)
    append_columns(connection, columns)


def _ids(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> list[int]:
    """The id of each name; new names get one."""
    distinct = dict.fromkeys(names, 0)
    connection.executemany(f"INSERT OR IGNORE INTO {table} (name) VALUES (?)", ((name,) for name in distinct))
    for name in distinct:
        distinct[name] = connection.execute(f"SELECT id FROM {table} WHERE name = ?", (name,)).fetchone()[0]
    return [distinct[name] for name in names]
