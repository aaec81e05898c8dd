"""A SQLite database in memory that a model's query may read and do nothing else with.

The authorizer allows reading and a list of functions. Work is limited by counting SQLite's own instructions, so a
query is stopped at the same point on every machine; rows, bytes and lengths have limits too. `printf` is not among the
functions: SQLite pads before it looks at the length.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.errors import TaskError

_STEP = 1_000  # instructions between two looks
_CPU_S = 10.0  # for functions that take long within one instruction
_LENGTHS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
}
_FUNCTIONS = frozenset(
    (
        *("abs", "avg", "ceil", "ceiling", "char", "coalesce", "concat", "concat_ws", "count", "cume_dist", "date"),
        *("datetime", "dense_rank", "exp", "first_value", "floor", "glob", "group_concat", "hex", "ifnull"),
        *("iif", "instr", "julianday", "lag", "last_value", "lead", "length", "like", "ln", "log", "log10", "lower"),
        *("ltrim", "max", "min", "mod", "nth_value", "ntile", "nullif", "percent_rank", "pow", "power"),
        *("rank", "replace", "round", "row_number", "rtrim", "sign", "sqrt", "strftime", "string_agg", "substr"),
        *("substring", "sum", "time", "total", "trim", "trunc", "typeof", "unicode", "unixepoch", "upper"),
    )
)
_ALLOWED = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))

Rows = Sequence[Sequence[Any]]


class QueryRefused(ValueError):
    """The query is wrong, not allowed or too expensive; the text is for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may take."""

    instructions: int = 20_000_000
    rows: int = 10_000
    result_bytes: int = 1_000_000


class Database:
    """One database in memory with the rows of one fixture. Used from any thread, by one at a time."""

    def __init__(self, schema: str, rows: Mapping[str, Rows], limits: QueryLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._left, self._deadline = 0, 0.0
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        try:
            self._fill(schema, rows)
        except (sqlite3.Error, sqlite3.Warning, TypeError, AttributeError) as error:
            self.close()
            raise TaskError(f'"schema" or "rows" is not a database: {error}') from error
        for limit, value in _LENGTHS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorized)
        self._connection.set_progress_handler(self._look, _STEP)

    def run(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns and the rows of one query."""
        with self._lock:
            self._left, self._deadline = self._limits.instructions, time.thread_time() + _CPU_S
            try:
                return self._rows(query)
            except sqlite3.OperationalError as error:
                if self._left < 0:
                    raise QueryRefused("the query takes too long") from error
                raise QueryRefused(str(error)) from error
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
                raise QueryRefused(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Forget it."""
        with self._lock:
            self._connection.close()

    def _fill(self, schema: str, rows: Mapping[str, Rows]) -> None:
        self._connection.executescript(schema)
        for table, lines in rows.items():
            if lines:
                places = ", ".join("?" * len(lines[0]))
                name = table.replace('"', '""')
                self._connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', lines)

    def _rows(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = self._connection.execute(query)
        try:
            if cursor.description is None:
                raise QueryRefused("the query gives no rows; write one SELECT")
            names, rows, size = [str(each[0]) for each in cursor.description], [], 0
            for row in cursor:
                rows.append(row)
                size += sum(len(each) if isinstance(each, str | bytes) else 8 for each in row)
                if len(rows) > self._limits.rows or size > self._limits.result_bytes:
                    raise QueryRefused("the result is too large")
            return names, rows
        finally:
            cursor.close()

    def _look(self) -> int:
        self._left = -1 if time.thread_time() > self._deadline else self._left - _STEP
        return int(self._left < 0)


def _authorized(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
