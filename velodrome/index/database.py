"""The index file: where it is, its tables, and how it is opened.

It is a copy of what the rollouts file says. An index that cannot be read, or has another version, is deleted and
rebuilt; it is never repaired.

What a list shows is stored by row, in `entry`. Numbers and texts are stored by column as well: a chunk holds the values
of one field for some thousand rows, so that a filter or a sort over a million rows reads a few megabytes.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path

from velodrome.errors import InputError

VERSION = 14
BUSY_S = 30.0

_TABLES = """
CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE entry (
    number INTEGER PRIMARY KEY, offset INTEGER, within INTEGER, size INTEGER,
    key TEXT, prompt TEXT, answer TEXT, numbers TEXT, state INTEGER, task INTEGER, agent INTEGER, outcome INTEGER
);
CREATE INDEX entry_key ON entry (key);
CREATE TABLE field (id INTEGER PRIMARY KEY, name TEXT, text INTEGER, UNIQUE (name, text));
CREATE TABLE chunk (field INTEGER, first INTEGER, data BLOB, PRIMARY KEY (field, first));
CREATE TABLE task (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE word (id INTEGER PRIMARY KEY, field INTEGER, name TEXT, UNIQUE (field, name));
CREATE TABLE failure (number INTEGER PRIMARY KEY, boundary TEXT, pattern TEXT, message TEXT);
CREATE INDEX failure_kind ON failure (boundary, pattern, number);
CREATE VIRTUAL TABLE search USING fts5(prompt, answer, reasoning, tools, content='', tokenize='unicode61');
"""


def index_path(rollouts: Path) -> Path:
    """Where the index of a rollouts file is: beside it, or in the user's cache if that folder cannot be written."""
    beside = rollouts.with_name(f"{rollouts.name}.index.sqlite")
    if os.access(beside.parent, os.W_OK) and _writable(beside):
        return beside
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = blake2b(os.fsencode(rollouts.absolute()), digest_size=12).hexdigest()
    folder = cache / "velodrome" / "index"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{rollouts}: no place for its index: {folder}: {error.strerror or error}") from error
    return folder / f"{name}.sqlite"


def _writable(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError:
        return False
    return True


def connect(path: Path, *, timeout_s: float = BUSY_S) -> sqlite3.Connection:
    """A connection that waits for locks, for one thread at a time."""
    connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    try:
        for setting in ("temp_store=MEMORY", "synchronous=NORMAL", "wal_autocheckpoint=4000"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading: everything read through it is one consistent state, even while others write.

    A file that is missing, or has no tables yet, is a `FileNotFoundError`.
    """
    if not path.stat().st_size:  # connecting would create a database, or disturb a process that is creating one
        raise FileNotFoundError(path)
    with closing(connect(path)) as connection:
        connection.execute("BEGIN")
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            raise FileNotFoundError(path)
        yield connection


@contextmanager
def transaction(connection: sqlite3.Connection, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """A write transaction. It waits for other writers, and calls `waiting` between two attempts."""
    while not connection.in_transaction:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if waiting is None or not is_busy(error):
                raise
            waiting()
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def prepare(path: Path) -> str | None:
    """Create the index file if there is none of this version. Returns why an old one was deleted."""
    reason = None
    if path.exists():
        try:
            with closing(connect(path)) as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == VERSION:
                return None
            reason = f"the index was of version {version}, not {VERSION}" if version else None
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise
            reason = unusable(error)
    if reason:
        discard(path)
    with closing(connect(path)) as connection:
        _use_wal(connection)
        with transaction(connection):
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                make_empty(connection)
    return reason


def unusable(error: Exception) -> str:
    """Why an index file is deleted."""
    return f"the index file could not be read ({error})"


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. Retries, because SQLite does not wait for another process that switches."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def make_empty(connection: sqlite3.Connection) -> None:
    """Replace all tables by empty ones, within an open transaction."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search%' AND name NOT LIKE 'sqlite%'"
    ).fetchall()
    for name in ["search", *(row[0] for row in tables)]:
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={VERSION}")


def is_busy(error: Exception) -> bool:
    """Whether another process has the index file locked."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def discard(path: Path) -> None:
    """Delete an index file and the files that SQLite puts beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
