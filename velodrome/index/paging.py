"""Sorted lists, part by part: cursors, and the rows behind or before one.

A cursor holds what its row is sorted by, so a page stays where it is while the file grows.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.index.columns import Column, Columns, Mask, Positions
from velodrome.index.query import Sort

Keys = list[NDArray[np.float64]]
Holds = Callable[[Positions], Mask]  # a condition that is too slow to test for all rows

_WRONG = "page: not a cursor of this list; start at its first page"
_MOST_VALUES = 50_000  # sorting more of them would take longer than a page should
MANY_ROWS = 400  # more than this are tested all at once: looking one up takes as long as listing 300


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in an order: the value sorted by, then what decides between equals."""

    value: float | None
    ties: tuple[int, ...]

    def encode(self, sort: Sort) -> str:
        """As it is in a link."""
        return urlsafe_b64encode(orjson.dumps([str(sort), self.value, *self.ties])).rstrip(b"=").decode()

    @staticmethod
    def decode(text: str, sort: Sort, ties: int) -> Cursor:
        """From a link; one of another order, or of none, is the user's mistake."""
        try:
            parts: Any = orjson.loads(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
        except (binascii.Error, orjson.JSONDecodeError, UnicodeEncodeError):
            raise InputError(_WRONG) from None
        if not isinstance(parts, list) or len(parts) != 2 + ties or parts[0] != str(sort):
            raise InputError(_WRONG)
        value, numbers = parts[1], parts[2:]
        real = value is None or (type(value) in (int, float) and isfinite(value))
        if not (real and all(type(each) is int for each in numbers)):
            raise InputError(_WRONG)
        return Cursor(value, tuple(numbers))


class Order:
    """An order of rows by a column, equals by the ties, all in one direction. Rows without a value come last."""

    def __init__(self, sort: Sort, column: Column | None, ties: Sequence[Column]) -> None:
        self._sort = sort
        self._column = column
        self._ties = list(ties)
        sign = -1.0 if sort.descending else 1.0
        self._keys: Keys = [tie * sign for tie in ties]
        if column is not None:
            self._keys.insert(0, np.where(np.isnan(column), np.inf, column * sign))

    def cursor(self, row: int) -> Cursor:
        """The place of a row."""
        value = None if self._column is None or np.isnan(self._column[row]) else float(self._column[row])
        return Cursor(value, tuple(int(tie[row]) for tie in self._ties))

    def rows(
        self,
        allowed: Mask,
        cursor: Cursor | None,
        *,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Positions:
        """The allowed rows behind a cursor, or before it, nearest first."""
        keys = [-key for key in self._keys] if backwards else self._keys
        if cursor is not None:
            allowed = allowed & self._beyond(keys, cursor, backwards)
        rows = np.flatnonzero(allowed)
        rows = rows if limit is None else _smallest(keys, rows, limit)
        return rows[np.lexsort([key[rows] for key in reversed(keys)])]

    def _beyond(self, keys: Keys, cursor: Cursor, backwards: bool) -> Mask:
        sign = -1.0 if self._sort.descending else 1.0
        edges = [each * sign for each in cursor.ties]
        if self._column is not None:
            edges.insert(0, np.inf if cursor.value is None else cursor.value * sign)
        beyond = np.zeros(len(keys[0]), bool)
        for key, edge in zip(reversed(keys), reversed(edges), strict=True):
            at = -edge if backwards else edge
            beyond = (key > at) | ((key == at) & beyond)
        return beyond

    def page(
        self,
        allowed: Mask,
        *,
        after: str | None,
        before: str | None,
        limit: int,
        holds: Holds | None = None,
    ) -> tuple[Positions, str | None, str | None]:
        """The rows of a page in order, and the cursors of the next and the previous one.

        `holds` is a further condition. It is tested for rows that may be shown, ever more of them until a page is full.
        """
        text, backwards = (after, False) if before is None else (before, True)
        cursor = None if text is None else Cursor.decode(text, self._sort, len(self._ties))
        wanted = size = limit + 1
        while True:
            candidates = self.rows(allowed, cursor, backwards=backwards, limit=size)
            rows = candidates if holds is None else candidates[holds(candidates)]
            if holds is None or len(rows) >= wanted or len(candidates) < size:
                break
            size = size * 8 if size < MANY_ROWS else len(allowed) + 1
        more, rows = len(rows) > limit, rows[:limit]
        rows = rows[::-1] if backwards else rows
        has_next, has_previous = (True, more) if backwards else (more, after is not None)
        return (
            rows,
            self.cursor(int(rows[-1])).encode(self._sort) if has_next and len(rows) else None,
            self.cursor(int(rows[0])).encode(self._sort) if has_previous and len(rows) else None,
        )


def _smallest(keys: Keys, rows: Positions, limit: int) -> Positions:
    """The `limit` rows with the smallest keys, in any order."""
    if len(rows) <= limit or not keys:
        return rows[:limit]
    values = keys[0][rows]
    edge = np.partition(values, limit - 1)[limit - 1]
    sure = rows[values < edge]
    return np.concatenate([sure, _smallest(keys[1:], rows[values == edge], limit - len(sure))])


def text_ranks(columns: Columns, name: str, *, most: int = _MOST_VALUES) -> Column:
    """The place of each entry's text in the order of all; NaN where it has none."""
    outside = columns.outside_texts(name)
    if outside is not None:
        ranks = np.full(len(columns), np.nan)
        for place, text in reversed(list(enumerate(sorted(outside)))):  # of several the first counts
            ranks[columns.positions(outside[text])] = place
        return ranks
    if name in ("task", "key"):
        listed = columns.connection.execute("SELECT json_group_array(id) FROM (SELECT id FROM task ORDER BY name)")
        ids: list[int] = orjson.loads(listed.fetchone()[0])
        ranks = _places(ids)[columns["task"]]
        repeats = np.nan_to_num(columns["repeat"])
        return ranks if name == "task" else ranks + repeats / (repeats.max(initial=0) + 1)
    if name in ("error", "boundary"):
        column = "message" if name == "error" else "boundary"
        failures = columns.connection.execute(f"SELECT number FROM failure ORDER BY {column}, number")
        numbers = [number for (number,) in failures]
        ranks = np.full(len(columns), np.nan)
        ranks[columns.positions(numbers)] = np.arange(len(numbers))
        return ranks
    if name == "state":
        return columns["state"].astype(float)
    coded = columns.coded(name, most)
    if coded is None:
        raise InputError(f'sort: "{name:.60}" has more than {most:,} different values; sort by another field')
    values, codes = coded
    texts = [", ".join(each) for each in values]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    own = np.append(np.where([text == "" for text in texts], np.nan, _places(order)[: len(texts)]), np.nan)
    return own[codes]


def _places(order: Sequence[int]) -> Column:
    """Where each of some small whole numbers is in an order."""
    places = np.full(max(order, default=0) + 1, np.nan)
    places[np.array(order, np.int64)] = np.arange(len(order))
    return places
