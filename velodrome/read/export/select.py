"""Which rollouts are exported, and in which order, by the index beside each file.

Only numbers are held, some thirty bytes a rollout; a row is read from its file when its turn comes. Failures are
never chosen: an attempt that failed is no answer.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.read.export.splits import task_hash
from velodrome.read.index import Index, Query, Sort
from velodrome.read.index.query import MEASURES, TASK_FIELDS

Json = dict[str, Any]

_PAGE_ROWS = 2000


class Selection:
    """The chosen rollouts of some files. `close` lets go of the indexes."""

    def __init__(self, sources: Sequence[Path], where: str) -> None:
        query = Query.parse(where)
        self.read = 0  # rollouts looked at
        self.notes: list[str] = []
        self.numeric: list[str] = []  # top-level fields of the rollouts that are numbers
        self._indexes: list[Index] = []
        self._rebuilt: list[str | None] = []
        self._source, self._number, self._task = array("H"), array("Q"), array("Q")
        try:
            for path in sources:
                self._choose(path, query)
        except InputError:
            self.close()
            raise

    def _choose(self, path: Path, query: Query) -> None:
        index = Index(path)
        self._indexes.append(index)
        state = index.refresh(search=bool(query.words))
        self._rebuilt.append(state.rebuilt)
        self.read += state.rows
        self.notes += state.notes
        known = {*MEASURES, *TASK_FIELDS, *self.numeric}
        self.numeric += [name for name in index.fields() if name not in known]
        after = None
        while True:
            page = index.page(query, Sort(), after=after, limit=_PAGE_ROWS)
            for entry in page.entries:
                if entry.state != "failed":
                    self._source.append(len(self._indexes) - 1)
                    self._number.append(entry.number)
                    self._task.append(task_hash(entry.task or entry.key))
            after = page.next
            if after is None:
                return

    def __len__(self) -> int:
        return len(self._number)

    @property
    def tasks(self) -> set[int]:
        """The tasks the chosen rollouts are of."""
        return set(self._task)

    def units(self, *, by_task: bool, shuffle: bool, seed: int) -> Iterator[tuple[int, list[Json]]]:
        """A task with one of its rollouts, or with all of them, in the order of the files or as the seed has it."""
        groups = self._groups() if by_task else None
        order = list(range(len(self))) if groups is None else list(groups)
        if shuffle:
            random.Random(seed).shuffle(order)
        for place in order:
            places = [place] if groups is None else groups[place]
            yield self._task[places[0]], [self._row(each) for each in places]

    def _groups(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place, task in enumerate(self._task):
            found.setdefault(task, []).append(place)
        return found

    def _row(self, place: int) -> Json:
        index = self._indexes[self._source[place]]
        try:
            return index.row(self._number[place])
        except InputError as error:
            raise _changed(index) from error

    def check(self) -> None:
        """Raise if a file was replaced since its rollouts were chosen: the rows read would be of two files."""
        for index, before in zip(self._indexes, self._rebuilt, strict=True):
            if index.state.rebuilt != before:
                raise _changed(index)

    def close(self) -> None:
        """Let go of the files."""
        for index in self._indexes:
            index.close()


def _changed(index: Index) -> InputError:
    return InputError(f"{index.rollouts}: changed while it was exported; nothing is written; run it again")
