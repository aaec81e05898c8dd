"""Fields of rollouts that are not in their file: what checks found, what people judged.

A filter names them like any other field, a list shows them, and a number can be sorted by. Their values are computed
when they are first asked for, and again once `version` or the rollouts of the index change:

    tags = OutsideField("tag", "text", lambda numbers_of: {"good": [3, 17]}, version=lambda: notes.changes)
    Index(path, outside=[tags])                    # tag:good, -tag:bad, tag:* (any)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.index.fields import FieldNames

TextValues = Mapping[str, Sequence[int] | NDArray[np.int64]]  # each text, and the entries that have it, by number
NumberValues = Mapping[int, float]  # of each entry that has one, by number
NumbersOf = Callable[[Iterable[str]], dict[str, int]]  # the entries with these keys, by number


class NotYet(InputError):
    """The values of a field are still being computed. A list says so instead of showing anything."""


@dataclass(frozen=True, slots=True)
class OutsideField:
    """`values` is given a function that finds entries by their keys; it may raise `NotYet`.

    `version` changes whenever the values do. `note` says what they do not cover, if anything.
    """

    name: str
    kind: Literal["text", "number"]
    values: Callable[[NumbersOf], TextValues | NumberValues]
    version: Callable[[], Hashable] = lambda: None
    note: Callable[[], str | None] = lambda: None
    choices: tuple[str, ...] = ()  # all texts there can be; a filter for another one is a mistake


class OutsideValues:
    """The outside fields of one index, and their values as far as they were asked for."""

    def __init__(self, fields: Sequence[OutsideField], numbers_of: NumbersOf) -> None:
        self._fields = {field.name: field for field in fields}
        self._numbers_of = numbers_of
        self._known: dict[str, tuple[Hashable, Any]] = {}

    @property
    def names(self) -> FieldNames:
        """The names of the fields, by kind."""
        numbers, texts = (
            tuple(name for name, field in self._fields.items() if field.kind == kind) for kind in ("number", "text")
        )
        return FieldNames(
            numbers, texts, {name: field.choices for name, field in self._fields.items() if field.choices}
        )

    def texts(self, name: str, entries: Hashable) -> TextValues:
        """The values of a text. `entries` changes whenever the entries of the index do."""
        values: TextValues = self._values(name, entries)
        return values

    def numbers(self, name: str, entries: Hashable) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The entries that have this number, and their numbers."""
        values: NumberValues = self._values(name, entries)
        return np.array(list(values), np.int64), np.array(list(values.values()), np.float64)

    def versions(self) -> Hashable:
        """Changes whenever the values of a field do."""
        return tuple(field.version() for field in self._fields.values())

    def note(self, name: str) -> str | None:
        """What the values of a field do not cover."""
        return self._fields[name].note() if name in self._fields else None

    def _values(self, name: str, entries: Hashable) -> Any:
        field = self._fields[name]
        version = (field.version(), entries)
        known = self._known.get(name)
        if known is None or known[0] != version:
            self._known[name] = known = (version, field.values(self._numbers_of))
        return known[1]
