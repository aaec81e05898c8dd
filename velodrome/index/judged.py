"""People's judgement as fields: `tag:good`, `rating>3`, `note:word`, `by:anna`, `judged:yes`.

A judgement counts for the rollout it was made of: the same key, finished at the same time. `rating` is the mean of all
who rated.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import orjson

from velodrome.index.fields import FIELD_NAMES
from velodrome.index.outside import NumbersOf, OutsideField, TextValues
from velodrome.records.people.judgements import Judgement, Judgements

Finished = list[tuple[str, int, float | None]]  # key, number and time of entries

_ENTRIES = (
    f"SELECT e.key, e.number, json_extract(e.numbers, '$[0][{FIELD_NAMES.index('finished_at')}]')"
    " FROM json_each(?) wanted CROSS JOIN entry e ON e.key = wanted.value"
)


def finished_entries(connection: sqlite3.Connection, keys: Iterable[str]) -> Finished:
    """Every entry with one of these keys, and when it finished."""
    return connection.execute(_ENTRIES, (orjson.dumps(list(keys)).decode(),)).fetchall()


class JudgedEntries:
    """The judgements of a file, joined with the entries of its index."""

    def __init__(self, judgements: Judgements, find: Callable[[Iterable[str]], Finished]) -> None:
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
        made = [OutsideField(name, "text", self._texts(read), self._version) for name, read in texts.items()]
        return [*made, OutsideField("rating", "number", self._ratings, self._version)]

    def pairs(self) -> list[tuple[int, Judgement]]:
        """Every judgement that counts, with the number of its entry."""
        judgements = self._judgements.refresh()
        found = [(number, judgements.of(key), at) for key, number, at in self._find(judgements.keys())]
        return [(number, each) for number, said, at in found for each in said if each.is_of(at)]

    def by_number(self) -> dict[int, list[Judgement]]:
        """The same, by the number of the entry."""
        made: dict[int, list[Judgement]] = defaultdict(list)
        for number, judgement in self.pairs():
            made[number].append(judgement)
        return made

    def _version(self) -> Hashable:
        return self._judgements.refresh().version

    def _texts(self, read: Callable[[Judgement], Iterable[str]]) -> Callable[[NumbersOf], TextValues]:
        def values(_: NumbersOf) -> TextValues:
            numbers: dict[str, list[int]] = defaultdict(list)
            for number, judgement in self.pairs():
                for text in read(judgement):
                    numbers[text].append(number)
            return numbers

        return values

    def _ratings(self, _: NumbersOf) -> dict[int, float]:
        every = {number: [each.rating for each in said if each.rating] for number, said in self.by_number().items()}
        return {number: sum(ratings) / len(ratings) for number, ratings in every.items() if ratings}
