"""The numbers and texts of all entries as columns, in the order of the file, failures last.

A column is read from its chunks when it is first used, within one snapshot of the index. Absent numbers are NaN; a text
is the id of its word, 0 if there is none. A filter over a million entries is a few vector operations, so it needs no
query plan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.index.answer_types import FAILED
from velodrome.index.fields import FIELD_NAMES, TASK_FIELDS, TEXT_FIELDS, FieldNames, values_of
from velodrome.index.outside import OutsideValues, TextValues
from velodrome.settings.names import hint

Column = NDArray[Any]
Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]
FieldIds = dict[tuple[str, bool], int]  # by the name of a stored field and whether it is a text

INTEGERS = ("number", "state", "task")
MOST_FIELDS = 256
MOST_TEXTS = 64
PASS_REWARD = 1.0
_CHUNK_ROWS = 2048


class Columns:
    """The columns of one snapshot. `columns["reward"]` has one value for each entry."""

    def __init__(self, connection: sqlite3.Connection, outside: OutsideValues) -> None:
        self.connection = connection
        self._outside = outside
        self._ids = field_ids(connection)
        self._cache: dict[tuple[str, bool], Column] = {}
        chunks = dict(self._chunks("number", text=False))
        self._chunk_firsts = list(chunks)
        self._chunk_starts = np.cumsum([0, *map(len, chunks.values())]).tolist()
        stored = np.concatenate([np.zeros(0, np.int64), *chunks.values()])
        self._kept = int(np.searchsorted(stored, FAILED))
        # Failures that were tried again stay in the chunks; the table has only the current ones.
        failures = np.array(connection.execute("SELECT number FROM failure ORDER BY number").fetchall(), np.int64)
        self._failures = np.searchsorted(stored[self._kept :], failures.ravel()) + self._kept
        self._cache["number", False] = self._without_retried(stored)

    def __len__(self) -> int:
        return len(self._cache["number", False])

    def __getitem__(self, name: str) -> Column:
        return self._column(name, text=False)

    def ids(self, name: str) -> Column:
        """The word id of a stored text, for each entry."""
        return self._column(self._stored_name(name), text=True)

    def _column(self, name: str, *, text: bool) -> Column:
        if (name, text) not in self._cache:
            whole = text or name in INTEGERS
            stored = np.zeros(self._chunk_starts[-1], np.int64) if whole else np.full(self._chunk_starts[-1], np.nan)
            for first, values in self._chunks(name, text=text):
                start = self._chunk_starts[self._chunk_firsts.index(first)]
                stored[start : start + len(values)] = values
            self._cache[name, text] = self._without_retried(stored)
        return self._cache[name, text]

    def _chunks(self, name: str, *, text: bool) -> list[tuple[int, Column]]:
        """The stored parts of a column, each with the number of its first row."""
        chunks = "SELECT first, data FROM chunk WHERE field = ? ORDER BY first"
        kind = _dtype(name, text)
        rows = self.connection.execute(chunks, (self._ids.get((name, text)),))
        return [(first, np.frombuffer(data, kind)) for first, data in rows]

    def _without_retried(self, stored: Column) -> Column:
        """A stored column without the failures that were tried again."""
        if self._kept + len(self._failures) == len(stored):
            return stored
        return np.concatenate([stored[: self._kept], stored[self._failures]])

    def field(self, name: str, what: str) -> Column:
        """The column of a field of the entries or of their tasks. An error message begins with `what`."""
        if name in TASK_FIELDS:
            return self.tasks[name][self["task"]]
        if name not in self.names.numbers:
            problem = f'"{name:.60}" is a text' if name in self.names.texts else f'no field "{name:.60}"'
            raise InputError(f"{what}: {problem}{hint(name, self.names.numbers)}")
        if name not in self._outside.names.numbers:
            return self[self._stored_name(name)]
        numbers, values = self._outside.numbers(name, self.version)
        column = np.full(len(self), np.nan)
        exists = np.isin(numbers, self["number"])
        column[self.positions(numbers[exists])] = values[exists]
        return column

    @cached_property
    def names(self) -> FieldNames:
        """Every field of the entries."""
        return field_names(self.connection, self._outside.names)

    def _stored_name(self, name: str) -> str:
        """The name of a field in the index."""
        short, outside = name.removeprefix("row."), self._outside.names
        return short if short != name and short in (*outside.numbers, *outside.texts) else name

    def outside_texts(self, name: str) -> TextValues | None:
        """The values of an outside text, with the entries of each; None if the field is not an outside text."""
        return self._outside.texts(name, self.version) if name in self._outside.names.texts else None

    @cached_property
    def version(self) -> tuple[Any, ...]:
        """Changes whenever the entries do."""
        row = self.connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchone()
        progress: dict[str, Any] = orjson.loads(row[0]) if row else {}
        return len(self), progress.get("rows"), progress.get("rebuilt_at"), *self["number"][-1:].tolist()

    def positions(self, numbers: Sequence[int] | Column) -> Positions:
        """The positions of these entries. Entries that do not exist are left out."""
        numbers = np.asarray(numbers, np.int64)
        positions = np.searchsorted(self["number"], numbers)
        exists = positions < len(self)
        exists[exists] = self["number"][positions[exists]] == numbers[exists]
        return positions[exists]

    def mask(self, numbers: Sequence[int] | Column) -> Mask:
        """True for these entries."""
        mask = np.zeros(len(self), bool)
        mask[self.positions(numbers)] = True
        return mask

    @cached_property
    def tasks(self) -> dict[str, Column]:
        """Counts and rates of each task, by its id."""
        task, kept = self["task"], self._kept
        size = int(task.max(initial=0)) + 1
        kept_tasks, reward = task[:kept], self["reward"][:kept]

        def total(weights: Column | None = None) -> Column:
            return np.bincount(kept_tasks, weights=weights, minlength=size)

        scored = total(~np.isnan(reward))
        passed = total(reward >= PASS_REWARD)
        with np.errstate(invalid="ignore"):
            pass_rate = passed / scored
            # Rounded, because a sum of floats depends on the order of the rows.
            mean_reward = np.round(total(np.nan_to_num(reward)) / scored, 12)
        failed = np.bincount(task[kept:], minlength=size)
        counts = {"n": total(), "failed": failed, "scored": scored, "passed": passed}
        return counts | {"pass_rate": pass_rate, "mean_reward": mean_reward}

    @cached_property
    def first_of_task(self) -> Column:
        """The number of the first entry of each task, by its id."""
        numbers = np.zeros(len(self.tasks["n"]), np.int64)
        numbers[self["task"][::-1]] = self["number"][::-1]  # of equal tasks the first entry is written last
        return numbers

    def words(self, name: str, ids: Sequence[int]) -> dict[int, list[str]]:
        """The values of a stored text, by word id. A rollout that called several tools has several."""
        query = "SELECT w.id, w.name FROM json_each(?) wanted CROSS JOIN word w ON w.id = wanted.value"
        rows = self.connection.execute(query, (orjson.dumps(list(ids)).decode(),))
        return {0: [], **{id: values_of(text) for id, text in rows}}

    def word_ids(self, name: str, test: str, values: Sequence[str]) -> Mask:
        """The entries whose stored text fulfils an SQL condition on the column `name` of words."""
        field = self._ids.get((self._stored_name(name), True))
        query = f"SELECT json_group_array(id) FROM word WHERE field = ? AND ({test})"
        ids = orjson.loads(self.connection.execute(query, (field, *values)).fetchone()[0])
        return has_id(self.ids(name), ids)

    def coded(self, name: str, most: int = 1000) -> tuple[list[list[str]], Column] | None:
        """The distinct values of a text, and the place of each entry's value; None if there are more than `most`."""
        ids, codes = np.unique(self.ids(name), return_inverse=True)
        if len(ids) > most + 1:
            return None
        words = self.words(name, ids.tolist())
        return [words[each] for each in ids.tolist()], codes

    def texts_at(self, name: str, positions: Positions) -> list[list[str]]:
        """The values of a stored text in some entries."""
        ids = self.ids(name)[positions].tolist()
        words = self.words(name, ids)
        return [words[each] for each in ids]


def has_id(column: Column, ids: Sequence[int]) -> Mask:
    """Where a column has one of these ids."""
    allowed = np.zeros(int(column.max(initial=0)) + 1, bool)
    id_array = np.array(ids, np.int64)
    allowed[id_array[id_array < len(allowed)]] = True
    mask: Mask = allowed[column]
    return mask


def field_names(connection: sqlite3.Connection, outside: FieldNames) -> FieldNames:
    """Every field. A field of the file that has the name of an outside field is called `row.<name>`."""
    stored = _stored_fields(connection)
    numbers = dict.fromkeys((*FIELD_NAMES, *(name for name, text in stored if not text and name not in INTEGERS)))
    texts = dict.fromkeys((*TEXT_FIELDS, *(name for name, text in stored if text)))
    reserved = (*outside.numbers, *outside.texts)
    stored_names = [tuple(f"row.{name}" if name in reserved else name for name in each) for each in (numbers, texts)]
    return FieldNames((*stored_names[0], "number"), stored_names[1]) | outside | FieldNames(TASK_FIELDS)


def _stored_fields(connection: sqlite3.Connection) -> FieldIds:
    stored = connection.execute("SELECT name, text, id FROM field ORDER BY id")
    return {(name, bool(text)): id for name, text, id in stored}


def field_ids(connection: sqlite3.Connection, numbers: Sequence[str] = (), texts: Sequence[str] = ()) -> FieldIds:
    """The stored fields. New names are added, up to `MOST_FIELDS` numbers and `MOST_TEXTS` texts."""
    ids = _stored_fields(connection)
    for names, text, most in ((numbers, False, MOST_FIELDS), (texts, True, MOST_TEXTS)):
        room = most - sum(is_text == text for _, is_text in ids)
        for name in [name for name in names if (name, text) not in ids][:room]:
            add = "INSERT INTO field (name, text) VALUES (?, ?)"
            ids[name, text] = connection.execute(add, (name, text)).lastrowid or 0
    return ids


def append_columns(
    connection: sqlite3.Connection, ids: FieldIds, columns: Mapping[str, Column], texts: Mapping[str, Column]
) -> None:
    """Add rows, within an open transaction: to the last chunk while it has room, then to new ones.

    All columns must have the same length. A field that is not in `ids` is not stored.
    """
    numbers = columns["number"]
    low, high = (FAILED, 2 * FAILED) if numbers[0] > FAILED else (0, FAILED)
    last = connection.execute(
        "SELECT first, length(data) / 8 FROM chunk WHERE field = ? AND first BETWEEN ? AND ? ORDER BY first DESC",
        (ids["number", False], low, high),
    ).fetchone()
    first, stored_rows = last if last and last[1] < _CHUNK_ROWS else (int(numbers[0]), 0)
    for (name, text), field in ids.items():
        old = connection.execute("SELECT data FROM chunk WHERE field = ? AND first = ?", (field, first)).fetchone()
        new, kind = (texts if text else columns).get(name), _dtype(name, text)
        if old is None and (new is None or not (new if text else new == new).any()):
            continue  # no row has it
        absent: Any = 0 if text else np.nan
        before = np.frombuffer(old[0], kind) if old else np.full(stored_rows, absent, kind)
        after = np.full(len(numbers), absent, kind) if new is None else new
        data = np.concatenate([before, after]).astype(kind).tobytes()
        connection.execute("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?)", (field, first, data))


def _dtype(name: str, text: bool) -> type[np.generic]:
    return np.int64 if text or name in INTEGERS else np.float64
