"""Answers of models, by a digest of what was asked: one SQLite file that any number of processes read and write.

An answer is in the file before its rollout continues, so every rollout that a killed run has written can be replayed.
Requests are not stored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from velodrome.errors import InputError

log = logging.getLogger(__name__)

NAME = "answers.sqlite"
_VERSION = 1
_BUSY_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS answer (key BLOB PRIMARY KEY, answer BLOB NOT NULL, stored_at REAL NOT NULL)"


class AnswerStore:
    """The answers in one folder. Reading happens on the event loop, writing in a thread, because a disk can be slow."""

    def __init__(self, folder: Path, *, recorded: bool) -> None:
        self.path = folder / NAME
        if recorded and not self.path.is_file():
            raise InputError(
                f"{folder}: no recorded answers in it ({NAME}); set model_cache_mode to record or auto to record them"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._reader = self._open(fixed=recorded and not os.access(folder, os.W_OK))
            self._writer = self._reader if recorded else self._open()
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{self.path}: cannot be used as a model_cache: {error}") from error
        self._thread = ThreadPoolExecutor(1, "velodrome-answers")
        self._refused = False

    def _open(self, *, fixed: bool = False) -> sqlite3.Connection:
        """A connection. With `fixed` nobody can write there, and no lock files can be made either."""
        name = f"{self.path.absolute().as_uri()}?{'immutable=1' if fixed else 'mode=rwc'}"
        connection = sqlite3.connect(name, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise InputError(f"{self.path}: made by another version of velodrome ({version}); give another folder")
            if not fixed:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection

    def get(self, key: bytes) -> bytes | None:
        """The answer to what has this digest."""
        try:
            row = self._reader.execute("SELECT answer FROM answer WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._report(f"cannot be read: {error}")
            return None
        return None if row is None else row[0]

    async def put(self, key: bytes, answer: bytes) -> None:
        """Store an answer in the place of one that is there. A disk that refuses it costs the next run a call."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, key, answer)
        except sqlite3.Error as error:
            self._report(f"answers cannot be stored: {error}")

    def _insert(self, key: bytes, answer: bytes) -> None:
        self._writer.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", (key, answer, time.time()))

    def _report(self, what: str) -> None:
        if not self._refused:
            self._refused = True
            log.warning("%s: %s", self.path, what)

    def count(self) -> int:
        """How many answers there are."""
        with closing(self._reader.execute("SELECT count(*) FROM answer")) as rows:
            return int(rows.fetchone()[0])

    def size(self) -> int:
        """How many bytes they take on the disk."""
        files = (self.path, self.path.with_name(f"{NAME}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Let go of the file."""
        self._thread.shutdown()
        self._reader.close()
        self._writer.close()
