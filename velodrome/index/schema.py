"""The index file: where it lies, its tables, and how a connection to it is opened.

It is a copy of what the rollouts file says and may be deleted at any time. One that is damaged, or of another
version, is thrown away and made again.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

from velodrome.errors import InputError
from velodrome.index.batch import COLUMNS
from velodrome.index.query import MEASURES

VERSION = 4
MOST_FIELDS = 64  # numeric fields with a column of their own; more go to one JSON column
BUSY_S = 30.0
_SMALL_BYTES = 12_000_000  # an index that is looked over in a fifth of a second

# A mean is rounded to twelve places, which takes away what the order of rows does to a sum, so that a filter and a sort
# have the same answer in any order.
# A column that is joined needs the type of its partner, or its index is not used; a measure keeps the type it came in.
_COLUMNS = [name if name in MEASURES else f"{name} INTEGER" for name in COLUMNS[1:]]
_TABLES = f"""
CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE rollout (number INTEGER PRIMARY KEY, {", ".join(_COLUMNS)});
CREATE TABLE said (number INTEGER PRIMARY KEY, key TEXT, prompt, answer TEXT, more TEXT);
CREATE TABLE field (name TEXT PRIMARY KEY, place INTEGER) WITHOUT ROWID;
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT);
CREATE TABLE task (
    id INTEGER PRIMARY KEY, name TEXT, n INTEGER, failed INTEGER, scored INTEGER, passed INTEGER, total REAL,
    first INTEGER,
    pass_rate REAL AS (CASE WHEN scored > 0 THEN passed * 1.0 / scored END),
    mean_reward REAL AS (CASE WHEN scored > 0 THEN round(total / scored, 12) END)
);
CREATE TABLE failure (number INTEGER PRIMARY KEY, kind INTEGER, message TEXT);
CREATE TABLE kind (id INTEGER PRIMARY KEY, boundary TEXT, pattern TEXT, example TEXT, count INTEGER);
CREATE TABLE second (at INTEGER PRIMARY KEY, kept INTEGER, failed INTEGER, tokens REAL, scored INTEGER, total REAL);
CREATE INDEX failure_kind ON failure (kind);
"""


class Damaged(sqlite3.DatabaseError):
    """An index whose parts do not fit together."""


def place(rollouts: Path) -> Path:
    """Where the index of a rollouts file lies: beside it, or in the user's cache where that cannot be written."""
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


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for others instead of failing, usable by one thread at a time."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA cache_size=-32000")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA secure_delete=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    return connection


def prepare(path: Path) -> str | None:
    """Make sure there is an index file of this version. Says why an old one was thrown away."""
    reason = None
    if path.exists():
        try:
            with closing(connect(path)) as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version == VERSION:
                    booted = connection.execute("SELECT value FROM note WHERE name = 'unsynced'").fetchone()
                    reason = "the machine went down while the index was made"
                    if booted is None or booted[0] == boot():
                        _look_over(connection, path)
                        return None
                elif version:
                    reason = f"the index was of version {version}, not {VERSION}"
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise
            reason = f"the index file was damaged ({error})"
    if reason:
        discard(path)
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        make_tables(connection)
    return reason


def _look_over(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if a small index is damaged; a large one would take too long, and is found out when it is used."""
    if path.stat().st_size > _SMALL_BYTES:
        return
    told = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if told != "ok":
        raise Damaged(" ".join(told.split())[:100])
    try:
        connection.execute("PRAGMA busy_timeout=0")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'search'").fetchone():
            connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        # Somebody is writing to it, and would find out.


def make_tables(connection: sqlite3.Connection) -> None:
    """Empty tables in place of whatever there is, all at once."""
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        empty(connection)
    connection.execute("COMMIT")


def empty(connection: sqlite3.Connection) -> None:
    """Empty tables in place of whatever there is, within an open transaction."""
    kinds = ("search%", "sqlite%")
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE ? AND name NOT LIKE ?", kinds
    ).fetchall()
    for name in ["search", *(row[0] for row in found)]:
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    if searchable(connection):
        connection.execute(
            "CREATE VIRTUAL TABLE search USING fts5(prompt, answer, content='', tokenize='unicode61', detail='full')"
        )
    connection.execute(f"PRAGMA user_version={VERSION}")


def searchable(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite has full-text search."""
    options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    return "ENABLE_FTS5" in options


def boot() -> str:
    """Names the time since the machine was started, where that can be known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def damaged(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is at fault, and not a lock or a statement."""
    if isinstance(error, Damaged) or str(error).startswith("Could not decode to UTF-8"):
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def discard(path: Path) -> None:
    """Delete an index file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
