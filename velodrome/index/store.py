"""Writing to the index: one batch of lines is one transaction, and only if nobody else was there before.

Two viewers may index one file at once: each batch names the place it begins at, and a batch whose place is no longer
the current one is dropped. So sums are never counted twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

import velodrome.index.schema as schema
from velodrome.index.answers import FAILED_STATE, STATES
from velodrome.index.batch import COLUMNS, MOST_NOTES, Batch
from velodrome.index.extract import hashed, number, pattern
from velodrome.index.source import Mark, Place

KEPT, FAILURES = "kept", "failures"  # the two files of a collection
_MOST_KINDS = 2000
_OTHER_KIND = "(other messages)"
_STATE = COLUMNS.index("state")
_TASK = COLUMNS.index("task")
_KEY = COLUMNS.index("key")
_FAILED = STATES.index(FAILED_STATE)
_MOST_SECONDS = 8000
_SECOND = (
    "INSERT INTO second VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (at) DO UPDATE SET kept = kept + excluded.kept,"
    " failed = failed + excluded.failed, tokens = tokens + excluded.tokens, scored = scored + excluded.scored,"
    " total = total + excluded.total"
)


@dataclass(slots=True)
class Progress:
    """How far each file is read, what it was like then, and what was counted on the way."""

    places: dict[str, Place] = field(default_factory=lambda: {KEPT: Place(), FAILURES: Place()})
    marks: dict[str, Mark] = field(default_factory=lambda: {KEPT: Mark(), FAILURES: Mark()})
    rows: int = 0
    failed: int = 0
    deferred: int = 0
    unreadable: int = 0
    flaws: int = 0
    notes: list[str] = field(default_factory=list)
    searched: dict[str, Place] = field(default_factory=lambda: {KEPT: Place(), FAILURES: Place()})
    searchable: int = 0
    second_s: int = 1  # how long a row of `second` is
    seconds: int = 0  # how many such rows there may be
    rebuilt: str | None = None
    rebuilt_at: float = 0.0

    def encode(self) -> str:
        """As kept in the index file."""
        return orjson.dumps(asdict(self)).decode()

    @staticmethod
    def decode(text: str) -> Progress:
        """From the index file."""
        told = orjson.loads(text)
        told["places"] = {name: Place(**each) for name, each in told["places"].items()}
        told["searched"] = {name: Place(**each) for name, each in told["searched"].items()}
        told["marks"] = {name: Mark(**each) for name, each in told["marks"].items()}
        return Progress(**told)


def read_progress(connection: sqlite3.Connection) -> Progress:
    """How far the index is, as of the open transaction, or now."""
    found = connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchone()
    return Progress.decode(found[0]) if found else Progress()


def write_progress(connection: sqlite3.Connection, progress: Progress) -> None:
    """Remember how far the index is, within an open transaction."""
    connection.execute("INSERT OR REPLACE INTO note VALUES ('progress', ?)", (progress.encode(),))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; waits for other writers first."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def reset(connection: sqlite3.Connection, known: Progress, why: str, now: float) -> None:
    """Forget everything, because the file is another than the one that was read; unless somebody did so before."""
    with transaction(connection):
        if read_progress(connection) == known:
            schema.empty(connection)
            write_progress(connection, Progress(rebuilt=why, rebuilt_at=now))


@dataclass(frozen=True, slots=True)
class Read:
    """A batch, the file it is of, and from where to where it was read."""

    batch: Batch
    file: str
    name: str  # of the file, for notes
    start: Place
    end: Place
    mark: Mark


def add(connection: sqlite3.Connection, read: Read) -> bool:
    """Store what was read. False: these lines are stored already, or are of a file that was read anew meanwhile."""
    batch, file = read.batch, read.file
    with transaction(connection):
        progress = read_progress(connection)
        if progress.places[file] != read.start:
            return False
        if file == KEPT:
            _add_kept(connection, batch, progress)
        else:
            _add_failures(connection, batch, progress)
        _add_seconds(connection, batch, progress)
        connection.executemany("INSERT OR IGNORE INTO word VALUES (?, ?)", batch.words.items())
        progress.places[file], progress.marks[file] = read.end, read.mark
        progress.unreadable += batch.unreadable
        progress.flaws += batch.flaws
        room = MOST_NOTES - len(progress.notes)
        progress.notes += [f"{read.name}:{note}" for note in batch.notes[: max(0, room)]]
        write_progress(connection, progress)
    return True


def _add_kept(connection: sqlite3.Connection, batch: Batch, progress: Progress) -> None:
    _insert(connection, batch)
    progress.rows += len(batch.rows)
    progress.deferred += batch.deferred
    connection.executemany(
        "INSERT INTO task VALUES (?, ?, ?, 0, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET n = n + excluded.n,"
        " scored = scored + excluded.scored, passed = passed + excluded.passed, total = total + excluded.total,"
        " first = min(coalesce(first, excluded.first), excluded.first)",
        ((sums[0], name, *sums[1:]) for name, sums in batch.tasks.items()),
    )
    if progress.failed and batch.rows:
        first, last = batch.rows[0][0], batch.rows[-1][0]
        again = connection.execute(
            "SELECT f.number FROM rollout r CROSS JOIN rollout f ON f.key = r.key AND f.state = ?"
            " WHERE r.number BETWEEN ? AND ?",
            (_FAILED, first, last),
        ).fetchall()
        for (entry,) in dict.fromkeys(again):
            _forget(connection, entry, progress)


def _add_failures(connection: sqlite3.Connection, batch: Batch, progress: Progress) -> None:
    """A key is listed once: as kept if it ever was, else by its last failure."""
    rows, said = batch.rows, {row[0]: row for row in batch.said}
    names = {sums[0]: name for name, sums in batch.tasks.items()}
    last = {row[_KEY]: row for row in rows}
    batch.rows, batch.said = [], []
    for key, row in last.items():
        earlier = connection.execute("SELECT number, state FROM rollout WHERE key = ?", (key,)).fetchall()
        if any(state != _FAILED for _, state in earlier):
            continue
        for entry, _ in earlier:
            _forget(connection, entry, progress)
        batch.rows.append(row)
        batch.said.append(said[row[0]])
        progress.failed += 1
        connection.execute(
            "INSERT INTO task VALUES (?, ?, 0, 1, 0, 0, 0.0, ?) ON CONFLICT (id) DO UPDATE SET failed = failed + 1,"
            " first = min(coalesce(first, excluded.first), excluded.first)",
            (row[_TASK], names[row[_TASK]], row[0]),
        )
        _add_error(connection, row[0], batch.errors[row[0]])
    _insert(connection, batch)


def _add_error(connection: sqlite3.Connection, entry: int, error: str) -> None:
    boundary, _, message = error.partition(":")
    folded = pattern(message.strip())
    kind = hashed(f"{boundary}\n{folded}")
    if not connection.execute("SELECT 1 FROM kind WHERE id = ?", (kind,)).fetchone():
        if connection.execute("SELECT count(*) FROM kind").fetchone()[0] >= _MOST_KINDS:
            folded = _OTHER_KIND
            kind = hashed(f"{boundary}\n{folded}")
        connection.execute("INSERT OR IGNORE INTO kind VALUES (?, ?, ?, ?, 0)", (kind, boundary, folded, error))
    connection.execute("UPDATE kind SET count = count + 1 WHERE id = ?", (kind,))
    connection.execute("INSERT OR REPLACE INTO failure VALUES (?, ?, ?)", (entry, kind, error))


def _forget(connection: sqlite3.Connection, entry: int, progress: Progress) -> None:
    """Take out a failure that was followed by another attempt."""
    progress.failed -= 1
    task = connection.execute("SELECT task FROM rollout WHERE number = ?", (entry,)).fetchone()[0]
    connection.execute(
        "UPDATE kind SET count = count - 1 WHERE id = (SELECT kind FROM failure WHERE number = ?)", (entry,)
    )
    for table in ("rollout", "said", "failure"):
        connection.execute(f"DELETE FROM {table} WHERE number = ?", (entry,))
    connection.execute(
        "UPDATE task SET failed = failed - 1, first = (SELECT min(number) FROM rollout WHERE task = ?1) WHERE id = ?1",
        (task,),
    )


def _add_seconds(connection: sqlite3.Connection, batch: Batch, progress: Progress) -> None:
    """Add to the sums over time. Where there are too many rows of them, rows become longer."""
    width = progress.second_s
    connection.executemany(_SECOND, ((at // width * width, *sums) for at, sums in batch.seconds.items()))
    progress.seconds += len(batch.seconds)
    if progress.seconds < _MOST_SECONDS:
        return
    progress.seconds = connection.execute("SELECT count(*) FROM second").fetchone()[0]
    while progress.seconds > _MOST_SECONDS / 2:
        progress.second_s *= 2
        rows = connection.execute("SELECT * FROM second").fetchall()
        connection.execute("DELETE FROM second")
        connection.executemany(_SECOND, ((row[0] // progress.second_s * progress.second_s, *row[1:]) for row in rows))
        progress.seconds = connection.execute("SELECT count(*) FROM second").fetchone()[0]


def _insert(connection: sqlite3.Connection, batch: Batch) -> None:
    if not batch.rows:
        return
    columns = _columns(connection, batch.names)
    kept = [place for place, column in enumerate(columns) if column is not None]
    rows: list[tuple[Any, ...]] = batch.rows
    more: list[tuple[str, int]] = []
    if len(kept) < len(columns):
        rows, more = _split(batch, columns)
    names = [*COLUMNS, *(columns[place] or "" for place in kept)]
    statement = f"INSERT OR REPLACE INTO rollout ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    try:
        connection.executemany(statement, rows)
    except OverflowError:
        fixed = slice(_STATE, len(COLUMNS))
        connection.executemany(
            statement,
            ((*map(number, row[:_STATE]), *row[fixed], *map(number, row[len(COLUMNS) :])) for row in rows),
        )
    connection.executemany("INSERT OR REPLACE INTO said (number, key, prompt, answer) VALUES (?, ?, ?, ?)", batch.said)
    connection.executemany("UPDATE said SET more = ? WHERE number = ?", more)


def _columns(connection: sqlite3.Connection, names: list[str]) -> list[str | None]:
    """The column of each field, new ones added; None: there is no room for another."""
    known = dict(connection.execute("SELECT name, place FROM field"))
    for name in names:
        if name not in known and len(known) < schema.MOST_FIELDS:
            known[name] = len(known)
            connection.execute(f"ALTER TABLE rollout ADD COLUMN c{known[name]}")
            connection.execute("INSERT INTO field VALUES (?, ?)", (name, known[name]))
    return [f"c{known[name]}" if name in known else None for name in names]


def _split(batch: Batch, columns: list[str | None]) -> tuple[list[tuple[Any, ...]], list[tuple[str, int]]]:
    """The rows without the values that have no column, and those values as JSON."""
    own = len(COLUMNS)
    rows, more = [], []
    for row in batch.rows:
        extra = list(zip(batch.names, columns, row[own:], strict=True))
        rows.append((*row[:own], *(value for _, column, value in extra if column is not None)))
        left = {name: value for name, column, value in extra if column is None and value is not None}
        if left:
            more.append((orjson.dumps(left).decode(), row[0]))
    return rows, more
