"""The numbers and texts of all entries as columns, in the order of the file, failures last.

A column is read from its chunks when it is first used, within one snapshot of the index. Absent numbers are NaN. A
filter over a million entries is a few vector operations, so there is nothing to plan; only lists of words are kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterator, Sequence
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
from velodrome.index.text_columns import TextChunk, merged, pack, values_of
from velodrome.settings.names import hint

Column = NDArray[Any]
Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]

INTEGERS = ("number", "state", "task", "agent", "status", "stop", "outcome")  # from the task on, ids of names
MOST_FIELDS = 256
MOST_TEXTS = 64
PASS_REWARD = 1.0
_CHUNK_ROWS = 2048


class Columns:
    """The columns of one snapshot. `columns["reward"]` has one value for each entry."""

    def __init__(
        self, connection: sqlite3.Connection, outside: OutsideValues, word_lists: dict[Hashable, Mask]
    ) -> None:
        self.connection = connection
        self.word_lists = word_lists  # of an index: the entries that contain a phrase, for as long as `searched` stays
        self._outside = outside
        self._ids = _field_ids(connection)
        self._loaded: dict[str, Column] = {}
        chunks = {first: _values("number", data) for first, data in self._chunks("number")}
        self._firsts = np.array(list(chunks), dtype=np.int64)
        self._starts = np.cumsum([0, *map(len, chunks.values())])
        self._numbers = stored = np.concatenate([np.zeros(0, np.int64), *chunks.values()])
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
            for first, data in self._chunks(name):
                values = _values(name, data)
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
        """Every field of the entries."""
        return field_names(self.connection, self._outside.names)

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
        return len(self), self._progress.get("rows"), self._progress.get("rebuilt_at")

    @cached_property
    def searched(self) -> tuple[Any, ...]:
        """Changes whenever a search could find something else, or elsewhere: a failure tried again moves others."""
        return *self._entries, self._progress.get("searchable"), *self["number"][-1:].tolist()

    @cached_property
    def _progress(self) -> dict[str, Any]:
        row = self.connection.execute("SELECT value FROM note WHERE name = 'progress'").fetchone()
        values: dict[str, Any] = orjson.loads(row[0]) if row else {}
        return values

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

    def _chunks(self, name: str, *, text: bool = False, only: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The stored parts of a column, or only one of them, each with the number of its first row."""
        chunks = "SELECT first, crc, data FROM chunk WHERE field = ? AND first BETWEEN ? AND ? ORDER BY first"
        ends = (0, 2 * FAILED) if only is None else (only, only)
        for first, crc, data in self.connection.execute(chunks, (self._ids.get((name, text)), *ends)):
            if crc32(data) != crc:
                raise Damaged("a column is not what was stored")
            yield first, data

    def _text_chunks(self, name: str) -> Iterator[tuple[slice, TextChunk]]:
        for first, data in self._chunks(self._stored(name), text=True):
            chunk = TextChunk(data)
            yield self._span(first, len(chunk.codes)), chunk

    def having_text(self, name: str, op: str, value: str) -> Mask:
        """The entries whose text in a stored column is a value, or contains it."""
        stored = np.full(self._starts[-1], op == "=" and not value)
        for span, chunk in self._text_chunks(name):
            stored[span] = chunk.having(op, value)
        return self._counted(stored)

    def coded(self, name: str, most: int = 1000) -> tuple[list[list[str]], Column] | None:
        """The different values of a text, and which of them each entry has (-1: none); None if more than `most` differ.

        Each is a list: an entry may have called several tools.
        """
        if name in INTEGERS:
            names = dict(self.connection.execute("SELECT id, name FROM word"))
            ids, codes = np.unique(self[name], return_inverse=True)
            return ([[names[each]] for each in ids.tolist()], codes) if len(ids) <= most else None
        result = merged([*self._text_chunks(name)], int(self._starts[-1]), most)
        return None if result is None else ([values_of(text) for text in result[0]], self._counted(result[1]))

    def texts_at(self, name: str, numbers: Sequence[int]) -> list[list[str]]:
        """The values that these entries, which exist, have in a stored column."""
        places = np.searchsorted(self._numbers, numbers).tolist()
        result: list[list[str]] = [[] for _ in places]
        firsts = self._firsts[np.searchsorted(self._starts, places, side="right") - 1]
        for first in set(firsts.tolist()):
            for _, data in self._chunks(self._stored(name), text=True, only=first):
                chunk = TextChunk(data)
                start, texts = self._span(first, len(chunk.codes)).start, chunk.texts
                for at in np.flatnonzero(firsts == first).tolist():
                    result[at] = values_of(texts[chunk.codes[places[at] - start]])
        return result

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


def field_names(connection: sqlite3.Connection, outside: FieldNames) -> FieldNames:
    """Every field there is. One of the file whose name an outside field has is `row.<name>`."""
    stored = _field_ids(connection)
    numbers = dict.fromkeys((*FIELD_NAMES, *(name for name, text in stored if not text and name not in INTEGERS)))
    texts = dict.fromkeys((*TEXT_FIELDS, *(name for name, text in stored if text)))
    taken = (*outside.numbers, *outside.texts)
    own = [tuple(f"row.{name}" if name in taken else name for name in each) for each in (numbers, texts)]
    return FieldNames((*own[0], "number"), own[1]) | outside | FieldNames(TASK_FIELDS)


def _field_ids(connection: sqlite3.Connection) -> dict[tuple[str, bool], int]:
    """The ids of the stored fields, by their name and whether they are texts."""
    return {
        (name, bool(text)): id for name, text, id in connection.execute("SELECT name, text, id FROM field ORDER BY id")
    }


def _values(name: str, data: bytes) -> Column:
    return np.frombuffer(data, _dtype(name))


def append_columns(connection: sqlite3.Connection, columns: dict[str, Column], texts: dict[str, list[str]]) -> None:
    """Add rows, within an open transaction: to the last chunk while it has room, then to new ones.

    Columns must have one length. Beyond `MOST_FIELDS` numbers and `MOST_TEXTS` texts, new fields are not stored.
    """
    numbers = columns["number"]
    ids = _field_ids(connection)
    for new, text, most in ((columns, False, MOST_FIELDS), (texts, True, MOST_TEXTS)):
        room = most - sum(known == text for _, known in ids)
        for name in [name for name in new if (name, text) not in ids][:room]:
            add = "INSERT INTO field (name, text) VALUES (?, ?)"
            ids[name, text] = connection.execute(add, (name, text)).lastrowid or 0
    low, high = (FAILED, 2 * FAILED) if numbers[0] > FAILED else (0, FAILED)
    last = connection.execute(
        "SELECT first, length(data) / 8 FROM chunk WHERE field = ? AND first BETWEEN ? AND ? ORDER BY first DESC",
        (ids["number", False], low, high),
    ).fetchone()
    first, held = last if last and last[1] < _CHUNK_ROWS else (int(numbers[0]), 0)
    for (name, text), field in ids.items():
        old = connection.execute("SELECT data FROM chunk WHERE field = ? AND first = ?", (field, first)).fetchone()
        data = (
            _more_texts(old and old[0], texts.get(name), held, len(numbers))
            if text
            else _more_numbers(name, old and old[0], columns.get(name), held, len(numbers))
        )
        if data is not None:
            connection.execute("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?)", (field, first, crc32(data), data))


def _more_numbers(name: str, old: bytes | None, new: Column | None, held: int, count: int) -> bytes | None:
    """A chunk with more rows; None if no row has the number."""
    if (new is None or (new != new).all()) and not old:
        return None
    before = np.frombuffer(old, _dtype(name)) if old else np.full(held, np.nan, _dtype(name))
    after = np.full(count, np.nan) if new is None else new
    return np.concatenate([before, after]).astype(_dtype(name)).tobytes()


def _more_texts(old: bytes | None, new: list[str] | None, held: int, count: int) -> bytes | None:
    """A chunk with more rows; None if no row has the text."""
    if not new and not old:
        return None
    return pack([*(TextChunk(old).unpacked() if old else [""] * held), *(new or [""] * count)])


def _dtype(name: str) -> type[np.generic]:
    return np.int64 if name in INTEGERS else np.float64
