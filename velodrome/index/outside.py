"""Fields of rollouts that are not in their file: what checks found, what people judged.

A filter names them like any other field, a list shows them, and a number can be sorted by. Their values are computed
when they are first needed, and again once `version` or the rollouts of the index change:

    tags = OutsideField("tag", "text", lambda: {"good": [3, 17]}, version=lambda: notes.changes)
    Index(path, outside=[tags])                    # tag:good, -tag:bad, tag:* (any)

A judgement counts for the rollout it was made of: the same key, finished at the same time. `rating` is the mean of all
who rated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.index.fields import FieldNames
from velodrome.index.judgements import Judgement, Judgements

TextValues = Mapping[str, Sequence[int] | NDArray[np.int64]]  # each text, and the entries that have it, by number
NumberValues = Mapping[int, float]  # of each entry that has one, by number
FinishedEntries = list[tuple[str, int, float | None]]  # key, number and time of entries


class NotYet(InputError):
    """The values of a field are still being computed. A list says so instead of showing anything."""


@dataclass(frozen=True, slots=True)
class OutsideField:
    """`values` may raise `NotYet`.

    `version` changes whenever the values do. `note` says what they do not cover, if anything.
    """

    name: str
    kind: Literal["text", "number"]
    values: Callable[[], TextValues | NumberValues]
    version: Callable[[], Hashable] = lambda: None
    note: Callable[[], str | None] = lambda: None
    choices: tuple[str, ...] = ()  # all texts there can be; a filter for another one is a mistake


class OutsideValues:
    """The outside fields of one index, and their values as far as they were needed."""

    def __init__(self, fields: Sequence[OutsideField]) -> None:
        self._fields = {field.name: field for field in fields}
        self._known: dict[str, tuple[Hashable, Any]] = {}
        numbers, texts = (tuple(each.name for each in fields if each.kind == kind) for kind in ("number", "text"))
        self.names = FieldNames(numbers, texts, {each.name: each.choices for each in fields if each.choices})

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
            self._known[name] = known = (version, field.values())
        return known[1]


class JudgedEntries:
    """The judgements of a file, joined with the entries of its index."""

    def __init__(self, judgements: Judgements, find: Callable[[Iterable[str]], FinishedEntries]) -> None:
        self._judgements = judgements
        self._find = find

    def fields(self) -> list[OutsideField]:
        """The fields that a filter, a list and a chart can name."""
        texts: dict[str, Callable[[Judgement], Iterable[str]]] = {
            "tag": lambda each: each.tags,
            "note": lambda each: filter(None, [each.note]),
            "by": lambda each: [each.by],
            "judged": lambda each: ["yes"],
        }
        made = [OutsideField(name, "text", partial(self._texts, read), self._version) for name, read in texts.items()]
        return [*made, OutsideField("rating", "number", self._ratings, self._version)]

    def pairs(self) -> list[tuple[int, Judgement]]:
        """Every judgement that counts, with the number of its entry."""
        judgements = self._judgements.refresh()
        entries = [(number, judgements.of(key), at) for key, number, at in self._find(judgements.keys())]
        return [(number, each) for number, said, at in entries for each in said if each.is_of(at)]

    def by_number(self) -> dict[int, list[Judgement]]:
        """The same, by the number of the entry."""
        made: dict[int, list[Judgement]] = defaultdict(list)
        for number, judgement in self.pairs():
            made[number].append(judgement)
        return made

    def _version(self) -> Hashable:
        return self._judgements.refresh().version

    def _texts(self, read: Callable[[Judgement], Iterable[str]]) -> TextValues:
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, judgement in self.pairs():
            for text in read(judgement):
                numbers[text].append(number)
        return numbers

    def _ratings(self) -> dict[int, float]:
        every = {number: [each.rating for each in said if each.rating] for number, said in self.by_number().items()}
        return {number: sum(ratings) / len(ratings) for number, ratings in every.items() if ratings}
