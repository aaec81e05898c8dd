"""Fields of rollouts that are not in their file: findings of checks, and judgements.

A filter names them like any other field, a list shows them, and a number can be sorted by. Their values are computed
when they are first needed, and again once `version` or the rollouts of the index change:

    tags = OutsideField("tag", "text", lambda: {"good": [3, 17]}, version=lambda: notes.changes)
    Index(path, outside=[tags])                    # tag:good, -tag:bad, tag:* (any)

A judgement belongs to the rollout with its key and its finish time. `rating` is the mean over all people.
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

TextValues = Mapping[str, Sequence[int] | NDArray[np.int64]]  # by text: the numbers of its entries
NumberValues = Mapping[int, float]  # by the number of the entry
FinishedEntries = list[tuple[str, int, float | None]]  # key, number and time of entries


class NotYet(InputError):
    """The values of a field are still being computed. A list shows this message instead of entries."""


@dataclass(frozen=True, slots=True)
class OutsideField:
    """`values` may raise `NotYet`.

    `version` changes whenever the values change. `note` says what the values do not cover.
    """

    name: str
    kind: Literal["text", "number"]
    values: Callable[[], TextValues | NumberValues]
    version: Callable[[], Hashable] = lambda: None
    note: Callable[[], str | None] = lambda: None
    choices: tuple[str, ...] = ()  # all possible texts; a filter for another text is an error


class OutsideValues:
    """The outside fields of one index. Their values are cached."""

    def __init__(self, fields: Sequence[OutsideField]) -> None:
        self._fields = {field.name: field for field in fields}
        self._cache: dict[str, tuple[Hashable, Any]] = {}
        numbers, texts = (tuple(each.name for each in fields if each.kind == kind) for kind in ("number", "text"))
        self.names = FieldNames(numbers, texts, {each.name: each.choices for each in fields if each.choices})

    def texts(self, name: str, entries: Hashable) -> TextValues:
        """The values of a text field. `entries` changes whenever the entries of the index change."""
        values: TextValues = self._values(name, entries)
        return values

    def numbers(self, name: str, entries: Hashable) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The entries that have this numeric field, and their values."""
        values: NumberValues = self._values(name, entries)
        return np.array(list(values), np.int64), np.array(list(values.values()), np.float64)

    def versions(self) -> Hashable:
        """Changes whenever the values of a field change."""
        return tuple(field.version() for field in self._fields.values())

    def note(self, name: str) -> str | None:
        """What the values of a field do not cover."""
        return self._fields[name].note() if name in self._fields else None

    def _values(self, name: str, entries: Hashable) -> Any:
        field = self._fields[name]
        version = (field.version(), entries)
        cached = self._cache.get(name)
        if cached is None or cached[0] != version:
            self._cache[name] = cached = (version, field.values())
        return cached[1]


class JudgedEntries:
    """The judgements of a file, joined with the entries of its index."""

    def __init__(self, judgements: Judgements, find: Callable[[Iterable[str]], FinishedEntries]) -> None:
        self._judgements = judgements
        self._find = find

    def fields(self) -> list[OutsideField]:
        """The fields for filters, lists and charts."""
        texts: dict[str, Callable[[Judgement], Iterable[str]]] = {
            "tag": lambda each: each.tags,
            "note": lambda each: filter(None, [each.note]),
            "by": lambda each: [each.by],
            "judged": lambda each: ["yes"],
        }
        text_fields = [
            OutsideField(name, "text", partial(self._texts, read), self._version) for name, read in texts.items()
        ]
        return [*text_fields, OutsideField("rating", "number", self._ratings, self._version)]

    def pairs(self) -> list[tuple[int, Judgement]]:
        """Every judgement that counts, with the number of its entry."""
        judgements = self._judgements.refresh()
        entries = [(number, judgements.of(key), at) for key, number, at in self._find(judgements.keys())]
        return [(number, each) for number, own, at in entries for each in own if each.is_of(at)]

    def by_number(self) -> dict[int, list[Judgement]]:
        """Every judgement that counts, by the number of its entry."""
        judgements: dict[int, list[Judgement]] = defaultdict(list)
        for number, judgement in self.pairs():
            judgements[number].append(judgement)
        return judgements

    def _version(self) -> Hashable:
        return self._judgements.refresh().version

    def _texts(self, read: Callable[[Judgement], Iterable[str]]) -> TextValues:
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, judgement in self.pairs():
            for text in read(judgement):
                numbers[text].append(number)
        return numbers

    def _ratings(self) -> dict[int, float]:
        judgements = self.by_number().items()
        ratings = {number: [each.rating for each in own if each.rating] for number, own in judgements}
        return {number: sum(each) / len(each) for number, each in ratings.items() if each}
