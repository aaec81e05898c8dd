"""Connections for readers: as many as are in use at once, each answer from one snapshot of the index.

In WAL mode a reader is never in a writer's way, nor the other way round.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import velodrome.index.schema as schema

_MOST_IDLE = 4


class Pool:
    """Open connections that nobody uses right now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._idle: list[tuple[tuple[int, int], sqlite3.Connection]] = []

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection with a transaction open, so that all that is read is of one moment."""
        file, connection = self._taken()
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append((file, connection))
                return
        connection.close()

    def _taken(self) -> tuple[tuple[int, int], sqlite3.Connection]:
        status = os.stat(self._path)
        file = (status.st_dev, status.st_ino)
        with self._lock:
            while self._idle:
                of, connection = self._idle.pop()
                if of == file:
                    return file, connection
                connection.close()  # the index file was thrown away
        return file, schema.connect(self._path)

    def close(self) -> None:
        """Close what is idle; what is in use is closed by its user."""
        with self._lock:
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()
