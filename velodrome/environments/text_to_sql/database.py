"""A SQLite database in memory that a model's query can only read.

The authorizer allows reading and a list of functions. Work is limited by counting SQLite's own instructions, so a
query is stopped at the same point on every machine; rows, bytes and lengths have limits too. `printf` is not among the
functions: SQLite pads before it looks at the length. What a model wrote runs in a process that has
limits of its own (`worker.py`).

Two results are the same by their rows: duplicates count, names of columns do not, order only where it was asked for.
"""

from __future__ import annotations

import math
import re
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.answers import last_block

_STEP = 1_000  # instructions between two checks of the limits
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
Result = tuple[list[str], list[tuple[Any, ...]]]


class QueryRefused(ValueError):
    """The query is wrong, not allowed or too expensive; the text is for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The limits of one query."""

    instructions: int = 20_000_000
    rows: int = 10_000
    result_bytes: int = 1_000_000
    memory_mb: int = 256


class Database:
    """One database in memory with the rows of one fixture. Any thread may use it, one at a time."""

    def __init__(self, schema: str, rows: Mapping[str, Rows], limits: QueryLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._left, self._deadline = 0, 0.0
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        try:
            self._connection.execute("PRAGMA temp_store = MEMORY")  # else sorting writes files without a limit
            self._fill(schema, rows)
        except (sqlite3.Error, sqlite3.Warning, TypeError, AttributeError) as error:
            self.close()
            raise TaskError(f'"schema" or "rows" is not a database: {error}') from error
        except MemoryError as error:
            self.close()
            raise TaskError(f'"rows" take more memory than query_memory_mb={limits.memory_mb}') from error
        for limit, value in _LENGTHS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorized)
        self._connection.set_progress_handler(self._look, _STEP)

    def run(self, query: str) -> Result:
        """The names of the columns and the rows of one query."""
        with self._lock:
            self._left, self._deadline = self._limits.instructions, time.thread_time() + _CPU_S
            try:
                return self._rows(query)
            except sqlite3.OperationalError as error:
                if self._left < 0:
                    raise QueryRefused("the query takes too long") from error
                raise QueryRefused(str(error)) from error
            except MemoryError as error:
                raise QueryRefused("the query takes too much memory") from error
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
                raise QueryRefused(str(error)) from error

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def _fill(self, schema: str, rows: Mapping[str, Rows]) -> None:
        self._connection.executescript(schema)
        for table, lines in rows.items():
            if lines:
                places = ", ".join("?" * len(lines[0]))
                name = table.replace('"', '""')
                self._connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', lines)

    def _rows(self, query: str) -> Result:
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


Row = Sequence[Any]

_WORDS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|[()]|\border\s+by\b", re.IGNORECASE | re.DOTALL
)
_MOST_PAIRS = 2_000


def last_query(text: str) -> str | None:
    """The text of the last code block marked sql."""
    block = last_block(text, ("sql", "sqlite"))
    return None if block is None else block.strip()


def is_ordered(query: str) -> bool:
    """Whether the whole result has an order: ORDER BY outside of parentheses, texts and comments."""
    depth = 0
    for word in _WORDS.findall(query):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if not depth and word.lower().startswith("order"):
            return True
    return False


def same_results(rows: Sequence[Row], expected: Sequence[Row], *, ordered: bool) -> bool:
    """Whether both are equal; whole numbers exactly, others within a millionth."""
    if len(rows) != len(expected):
        return False
    if ordered:
        return all(map(_same_row, rows, expected))
    ours, theirs = sorted(rows, key=_key), sorted(expected, key=_key)
    if all(map(_same_row, ours, theirs)):
        return True
    return len(ours) <= _MOST_PAIRS and _matched(ours, theirs)


def _matched(rows: Sequence[Row], expected: Sequence[Row]) -> bool:
    """Match rows one by one, because sorting can separate numbers that are nearly equal."""
    left = list(expected)
    for row in rows:
        partner = next((at for at, each in enumerate(left) if _same_row(row, each)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _same_row(row: Row, expected: Row) -> bool:
    return len(row) == len(expected) and all(map(_same_value, row, expected))


def _same_value(value: Any, expected: Any) -> bool:
    if isinstance(value, int) and isinstance(expected, int):
        return value == expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return value == expected or math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-9)
    return type(value) is type(expected) and bool(value == expected)


def _key(row: Row) -> list[tuple[int, Any]]:
    return [_value_key(each) for each in row]


def _value_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (3, value)
