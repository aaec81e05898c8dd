"""The numbers of all entries as numpy columns, in the order of the file, failures last.

A column is read from its chunks when it is first used, within one snapshot of the index. Absent numbers are NaN. A
filter over a million entries is a few vector operations, so there is nothing to plan and nothing to cache.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import orjson
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.index.answer_types import FAILED
from velodrome.index.database import Damaged
from velodrome.index.fields import FIELD_NAMES, TASK_FIELDS, TEXT_FIELDS, FieldNames
from velodrome.index.outside import OutsideValues, TextValues
from velodrome.settings.names import hint

Column = NDArray[Any]
Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]

INTEGERS = ("number", "state", "task", "agent", "status", "stop", "outcome")  # from the task on, ids of names
MOST_FIELDS = 256
PASS_REWARD = 1.0
_CHUNK_ROWS = 2048


class Columns:
    """The columns of one snapshot. `columns["reward"]` has one value for each entry."""

    def __init__(self, connection: sqlite3.Connection, outside: OutsideValues) -> None:
        self.connection = connection
        self._outside = outside
        self._ids: dict[str, int] = dict(connection.execute("SELECT name, id FROM field ORDER BY id"))
        self._loaded: dict[str, Column] = {}
        chunks = self._chunks("number")
        self._firsts = np.array(list(chunks), dtype=np.int64)
        self._starts = np.cumsum([0, *map(len, chunks.values())])
        stored = np.concatenate([np.zeros(0, np.int64), *chunks.values()])
        self._kept = int(np.searchsorted(stored, FAILED))
        # Failures that were tried again stay in the chunks; the table has those that count.
        failures = np.array(connection.execute("SELECT number FROM failure ORDER BY number").fetchall(), np.int64)
        self._failures = np.searchsorted(stored[self._kept :], failures.ravel()) + self._kept
        self._loaded["number"] = self._counted(stored)

    def __len__(self) -> int:
        return len(self._loaded["number"])

    def __getitem__(self, name: str) -> Column:
        if name not in self._loaded:
            stored = np.full(self._starts[-1], np.nan)
            for first, values in self._chunks(name).items():
                stored[self._span(first, len(values))] = values
            if name in INTEGERS:
                stored = stored.astype(np.int64)
            self._loaded[name] = self._counted(stored)
        return self._loaded[name]

    def field(self, name: str, what: str) -> Column:
        """The column of a field a person named, of its own or of its task; an unknown one is the user's mistake."""
        if name in TASK_FIELDS:
            return self.tasks[name][self["task"]]
        if name not in self.names.numbers:
            wrong = f'"{name:.60}" is a text' if name in self.names.texts else f'no field "{name:.60}"'
            raise InputError(f"{what}: {wrong}{hint(name, self.names.numbers)}")
        if name not in self._outside.names.numbers:
            return self[self._stored(name)]
        if name not in self._loaded:
            numbers, values = self._outside.numbers(name, self._entries)
            column = np.full(len(self), np.nan)
            there = np.isin(numbers, self["number"])
            column[self.positions(numbers[there])] = values[there]
            self._loaded[name] = column
        return self._loaded[name]

    @cached_property
    def names(self) -> FieldNames:
        """Every field of the entries. One of the file whose name an outside field has is `row.<name>`."""
        outside = self._outside.names
        taken = (*outside.numbers, *outside.texts)
        numbers = [f"row.{name}" if name in taken else name for name in field_names(self.connection)]
        return FieldNames((*numbers, "number"), TEXT_FIELDS) | outside | FieldNames(TASK_FIELDS)

    def _stored(self, name: str) -> str:
        """The name a field has in the index."""
        own, outside = name.removeprefix("row."), self._outside.names
        return own if own != name and own in (*outside.numbers, *outside.texts) else name

    def outside_texts(self, name: str) -> TextValues | None:
        """The values of an outside text, with the entries that have each; None if it is not one."""
        return self._outside.texts(name, self._entries) if name in self._outside.names.texts else None

    @cached_property
    def _entries(self) -> tuple[Any, ...]:
        """Changes whenever the entries do."""
        [(progress,)] = self.connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchall() or [
            ("{}",)
        ]
        values = orjson.loads(progress)
        return len(self), values.get("rows"), values.get("rebuilt_at")

    def positions(self, numbers: Sequence[int] | Column) -> Positions:
        """Where these entries are; those that do not exist are left out."""
        wanted = np.asarray(numbers, np.int64)
        here = np.searchsorted(self["number"], wanted)
        exist = here < len(self)
        exist[exist] = self["number"][here[exist]] == wanted[exist]
        return here[exist]

    def mask(self, numbers: Sequence[int] | Column) -> Mask:
        """True for these entries."""
        mask = np.zeros(len(self), bool)
        mask[self.positions(numbers)] = True
        return mask

    @cached_property
    def tasks(self) -> dict[str, Column]:
        """What is true of each task, by its id: counts and rates."""
        task, kept = self["task"], self._kept
        size = int(task.max(initial=0)) + 1
        own, reward = task[:kept], self["reward"][:kept]

        def total(weights: Column | None = None) -> Column:
            return np.bincount(own, weights=weights, minlength=size)

        scored = total(~np.isnan(reward))
        passed = total(reward >= PASS_REWARD)
        with np.errstate(invalid="ignore"):
            pass_rate = passed / scored
            # Rounding removes what the order of the rows does to a sum.
            mean_reward = np.round(total(np.nan_to_num(reward)) / scored, 12)
        failed = np.bincount(task[kept:], minlength=size)
        counts = {"n": total(), "failed": failed, "scored": scored, "passed": passed}
        return counts | {"pass_rate": pass_rate, "mean_reward": mean_reward}

    @cached_property
    def first_of_task(self) -> Column:
        """The number of the first entry of each task, by its id."""
        first = np.zeros(len(self.tasks["n"]), np.int64)
        first[self["task"][::-1]] = self["number"][::-1]
        return first

    def _chunks(self, name: str) -> dict[int, Column]:
        """The stored parts of a column, by the number of the first row in each."""
        rows = self.connection.execute(
            "SELECT first, crc, data FROM chunk WHERE field = ? ORDER BY first", (self._ids.get(name),)
        )
        return {number: _values(name, crc, data) for number, crc, data in rows}

    def _span(self, first: int, length: int) -> slice:
        chunk = int(np.searchsorted(self._firsts, first))
        start = int(self._starts[chunk])
        if self._firsts[chunk] != first or start + length != self._starts[chunk + 1]:
            raise Damaged("columns of different lengths")
        return slice(start, start + length)

    def _counted(self, stored: Column) -> Column:
        """A stored column without the failures that do not count."""
        if self._kept + len(self._failures) == len(stored):
            return stored
        return np.concatenate([stored[: self._kept], stored[self._failures]])


def field_names(connection: sqlite3.Connection) -> list[str]:
    """Every numeric field of the entries."""
    stored = [row[0] for row in connection.execute("SELECT name FROM field ORDER BY id")]
    return [*FIELD_NAMES, *(name for name in stored if name not in (*FIELD_NAMES, *INTEGERS))]


def _values(name: str, crc: int, data: bytes) -> Column:
    if crc32(data) != crc:
        raise Damaged("numbers are not what was stored")
    return np.frombuffer(data, _dtype(name))


def append_columns(connection: sqlite3.Connection, columns: dict[str, Column]) -> None:
    """Add rows, within an open transaction: to the last chunk while it has room, then to new ones.

    Columns must have one length. Beyond `MOST_FIELDS` fields, new ones are not stored.
    """
    numbers = columns["number"]
    ids: dict[str, int] = dict(connection.execute("SELECT name, id FROM field"))
    for name in [each for each in columns if each not in ids][: MOST_FIELDS - len(ids)]:
        ids[name] = connection.execute("INSERT INTO field (name) VALUES (?)", (name,)).lastrowid or 0
    low, high = (FAILED, 2 * FAILED) if numbers[0] > FAILED else (0, FAILED)
    last = connection.execute(
        "SELECT first, length(data) / 8 FROM chunk WHERE field = ? AND first BETWEEN ? AND ? ORDER BY first DESC",
        (ids["number"], low, high),
    ).fetchone()
    first, held = last if last and last[1] < _CHUNK_ROWS else (int(numbers[0]), 0)
    for name, field in ids.items():
        old = connection.execute("SELECT data FROM chunk WHERE field = ? AND first = ?", (field, first)).fetchone()
        new = columns.get(name)
        if (new is None or (new != new).all()) and not old:
            continue
        before = np.frombuffer(old[0], _dtype(name)) if old else np.full(held, np.nan, _dtype(name))
        after = np.full(len(numbers), np.nan) if new is None else new
        data = np.concatenate([before, after]).astype(_dtype(name)).tobytes()
        connection.execute("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?)", (field, first, crc32(data), data))


def _dtype(name: str) -> type[np.generic]:
    return np.int64 if name in INTEGERS else np.float64
