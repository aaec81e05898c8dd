"""Cursors, and the stretches of an order that lie behind one: equal values first, then further ones, then none.

Each stretch is what one SQL index serves from a key on, so a page costs the same at any depth.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from math import isfinite
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.index.query import Sort
from velodrome.index.select import Clause

_WRONG = "page: not a cursor of this list; start at its first page"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in an order: the value it is ordered by, then what decides between equals."""

    value: float | int | None
    ties: tuple[int, ...]

    def encode(self, sort: Sort) -> str:
        """As it stands in a link."""
        return urlsafe_b64encode(orjson.dumps([str(sort), self.value, *self.ties])).rstrip(b"=").decode()

    @staticmethod
    def decode(text: str, sort: Sort, ties: int) -> Cursor:
        """From a link; one of another order, or of none, is the user's mistake."""
        try:
            told: Any = orjson.loads(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
        except (binascii.Error, orjson.JSONDecodeError, UnicodeEncodeError):
            raise InputError(_WRONG) from None
        if not isinstance(told, list) or len(told) != 2 + ties or told[0] != str(sort):
            raise InputError(_WRONG)
        value, numbers = told[1], told[2:]
        whole = [type(each) is int and abs(each) < 2**63 for each in numbers]
        real = value is None or (type(value) in (int, float) and isfinite(value) and abs(value) < 2**1000)
        if not (all(whole) and real):
            raise InputError(_WRONG)
        return Cursor(float(value) if type(value) is int and abs(value) >= 2**63 else value, tuple(numbers))


@dataclass(frozen=True, slots=True)
class Order:
    """An order by a column, equals by `ties` in the same direction, so that one SQL index serves it either way.

    Entries without a value come last in both. Without a column the ties alone decide.
    """

    column: str | None
    ties: tuple[str, ...]
    descending: bool

    def stretches(self, cursor: Cursor | None, *, backwards: bool) -> list[tuple[Clause, str]]:
        """Conditions, each with its ORDER BY, to be read one after the other: what lies behind, or before, a cursor."""
        rising = self.descending == backwards
        ties = _by(self.ties, rising)
        beyond = _beyond(self.ties, cursor.ties, rising=rising) if cursor else [Clause("1")]
        if self.column is None:
            return [(clause, ties) for clause in beyond]
        name = self.column
        valued = f"{_by((name,), rising)}, {ties}"
        there, absent = (Clause(f"{name} IS NOT NULL"), valued), (Clause(f"{name} IS NULL"), ties)
        if cursor is None:
            return [absent, there] if backwards else [there, absent]
        if cursor.value is None:
            same = [(Clause(f"{name} IS NULL AND {each.sql}", each.values), ties) for each in beyond]
            return [*same, there] if backwards else same
        value = cursor.value
        same = [(Clause(f"{name} = ? AND {each.sql}", (value, *each.values)), ties) for each in beyond]
        further = (Clause(f"{name} {'>' if rising else '<'} ?", (value,)), valued)
        return [*same, further] if backwards else [*same, further, absent]

    def at_once(self, cursor: Cursor | None, *, backwards: bool) -> tuple[Clause, str]:
        """The same as one condition and one ORDER BY, for a list that is sorted anyway."""
        parts = [clause for clause, _ in self.stretches(cursor, backwards=backwards)] if cursor else [Clause("1")]
        values = tuple(value for clause in parts for value in clause.values)
        either = Clause(" OR ".join(f"({clause.sql})" for clause in parts), values)
        rising = self.descending == backwards
        if self.column is None:
            return either, _by(self.ties, rising)
        nulls = _by((f"{self.column} IS NULL",), not backwards)
        return either, f"{nulls}, {_by((self.column, *self.ties), rising)}"


def _by(ties: tuple[str, ...], rising: bool) -> str:
    return ", ".join(f"{tie} {'ASC' if rising else 'DESC'}" for tie in ties)


def _beyond(ties: tuple[str, ...], values: tuple[int, ...], *, rising: bool) -> list[Clause]:
    """What comes after these ties, nearest first: the last tie further, then the one before it further, …"""
    sign = ">" if rising else "<"
    found = []
    for last in range(len(ties) - 1, -1, -1):
        same = [f"{tie} = ?" for tie in ties[:last]]
        found.append(Clause(" AND ".join([*same, f"{ties[last]} {sign} ?"]), values[: last + 1]))
    return found
