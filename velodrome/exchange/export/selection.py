"""The rollouts of an export and their order, from the index beside each file.

Memory holds about forty bytes per rollout; rows are read from their files one at a time. A shuffle depends on the seed
and the keys, not on the order of the file. Failed attempts are never chosen, because they have no answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import isnan, nan
from pathlib import Path

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.export.split_files import drawn, task_hash
from velodrome.index import Index, Query
from velodrome.index.fields import FIELD_NAMES, TASK_FIELDS
from velodrome.index.judgements import Judgement
from velodrome.index.outside import OutsideField
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import loads
from velodrome.records.rollout import completed
from velodrome.records.task import hashed, is_minimal

OutsideFields = Callable[[Path], Sequence[OutsideField]]  # of a file


class Selection:
    """The chosen rollouts of some files. `close` closes the indexes."""

    def __init__(self, sources: Sequence[Path], where: str, outside: OutsideFields = lambda path: ()) -> None:
        query = Query.parse(where)
        self._outside = outside
        once = len({path.name for path in sources}) == len(sources)
        names = [path.name if once else str(path) for path in sources]
        self._names = [name.encode("utf-8", "backslashreplace").decode() for name in names]
        self.read = 0  # rollouts read
        self.changed = 0  # rollouts with values that are not valid JSON, now null or U+FFFD
        self.notes: list[str] = []
        self.numeric: list[str] = []  # top-level fields of the rollouts that are numbers
        self._indexes: list[Index] = []
        self._judgements: list[
            dict[int, list[Judgement]]
        ] = []  # of each file: what people said, by the number of the rollout
        self._rebuilt: list[str | None] = []
        self.deferred: dict[Path, int] = {}  # by file: rollouts with a deferred reward
        self._source, self._number = array("H"), array("Q")
        self._task, self._key = array("Q"), array("Q")  # hashes
        self._reward = array("d")  # NaN while there is none
        for path in sources:
            self._choose(path, query)

    def _choose(self, path: Path, query: Query) -> None:
        index = Index(path, judged=True, outside=self._outside(path))
        self._indexes.append(index)
        state = index.refresh()
        self._rebuilt.append(state.rebuilt)
        self.read += state.rows
        self.notes += state.notes
        if state.deferred:
            self.deferred[path] = state.deferred
        judgements = dict(index.judged.by_number())
        self._judgements.append(judgements)
        known_names = {*FIELD_NAMES, *TASK_FIELDS, *self.numeric}
        self.numeric = sorted(
            [*self.numeric, *(name for name in _numbers(index, bool(judgements)) if name not in known_names)]
        )
        for entry in index.select(query):
            if entry.state != "failed":
                self._source.append(len(self._indexes) - 1)
                self._number.append(entry.number)
                self._key.append(hashed(entry.key))
                self._task.append(task_hash(entry.task or entry.key))
                self._reward.append(nan if entry.reward is None else entry.reward)

    def __len__(self) -> int:
        return len(self._number)

    @property
    def tasks(self) -> set[int]:
        return set(self._task)

    def spread(self) -> tuple[int, int, int]:
        """The number of chosen tasks, of those with several rollouts, and of those with different rewards."""
        groups = self._groups().values()
        rewards = ({self._reward[place] for place in places if not isnan(self._reward[place])} for places in groups)
        return len(groups), sum(len(places) > 1 for places in groups), sum(len(each) > 1 for each in rewards)

    def units(self, *, by_task: bool, shuffle: bool, seed: int) -> Iterator[tuple[int, list[Json], list[str]]]:
        """Tasks with one rollout, or with all of theirs, and the file of each.

        They are in the order of the files, or shuffled with the seed.
        """
        order: Sequence[int] = self._shuffled(seed) if shuffle else range(len(self))
        groups = self._groups(order) if by_task else None
        if groups is not None:
            order = sorted(groups, key=lambda task: drawn(task, seed, "shuffle")) if shuffle else list(groups)
        for place in order:
            places = [place] if groups is None else groups[place]
            sources = [self._names[self._source[each]] for each in places]
            yield self._task[places[0]], [self._row(each) for each in places], sources

    def _shuffled(self, seed: int) -> list[int]:
        """All places, shuffled by seed and key; rollouts with the same key by file and content."""
        keys = [drawn(key, seed, "shuffle") for key in self._key]
        order: list[int] = []
        for _, alike in groupby(sorted(range(len(keys)), key=keys.__getitem__), keys.__getitem__):
            places = list(alike)
            if len(places) > 1:
                places.sort(key=lambda place: (self._source[place], hashed(self._line(place))))
            order += places
        return order

    def _groups(self, order: Sequence[int] | None = None) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        for place in range(len(self)) if order is None else order:
            groups.setdefault(self._task[place], []).append(place)
        return groups

    def _line(self, place: int) -> bytes:
        index = self._indexes[self._source[place]]
        try:
            return index.line(self._number[place])
        except InputError as error:
            raise _changed(index) from error

    def _row(self, place: int) -> Json:
        line = self._line(place)
        row: Json
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = loads(line, finite=True)
            self.changed += 1
        if is_minimal(row) and not (facts := RowFacts(row)).wrong:
            row = completed(row, facts.task or "line", self._number[place])
        judgements = self._judgements[self._source[place]].get(self._number[place])
        return {**_judged(judgements), **row} if judgements else row

    def check(self) -> None:
        """Raise an `InputError` if a file was replaced since its rollouts were chosen."""
        for index, before in zip(self._indexes, self._rebuilt, strict=True):
            if index.state.rebuilt != before:
                raise _changed(index)


def _numbers(index: Index, judged: bool) -> list[str]:
    """The numbers of the rows by their names there. `rating` is the rows' own, or people's if any was given."""
    names = index.fields()
    own = "row.rating" in names
    return ["rating" if name == "row.rating" else name for name in names if name != "rating" or (judged and not own)]


def _judged(judgements: Sequence[Judgement]) -> Json:
    """Judgements as fields of a row; the row's own fields take precedence."""
    ratings = [each.rating for each in judgements if each.rating is not None]
    fields: Json = {"judgements": [each.words() for each in judgements]}
    return fields | ({"rating": sum(ratings) / len(ratings)} if ratings else {})


def _changed(index: Index) -> InputError:
    return InputError(f"{index.rollouts}: changed while it was exported; nothing is written; run it again")
