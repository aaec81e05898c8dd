"""The index of a rollouts file: answers what a viewer or an export asks, without reading the file again.

`refresh` reads on from where the index ends. The index is never trusted over the file: a file that was cut, replaced
or overwritten is read again, and a row is compared with what was indexed before it is returned.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import orjson

import velodrome.index.database as database
import velodrome.index.lists as lists
import velodrome.index.store as store
import velodrome.index.summaries as summaries
from velodrome.errors import InputError
from velodrome.index.answer_types import (
    FAILED,
    Entry,
    FailureGroup,
    FieldHistogram,
    Page,
    Point,
    Repeats,
    State,
    TaskCounts,
    TaskSummary,
)
from velodrome.index.builder import Builder, open_lines
from velodrome.index.columns import Columns, Mask, field_names
from velodrome.index.conditions import all_matching
from velodrome.index.fields import FieldNames
from velodrome.index.judged import JudgedEntries, finished_entries
from velodrome.index.lines.followed_file import same_file
from velodrome.index.outside import NotYet, OutsideField, OutsideValues
from velodrome.index.query import Matched, Query, Sort
from velodrome.records.jsonl import loads
from velodrome.records.people.judgements import Judgements, notes_file
from velodrome.records.rollout import beside

Json = dict[str, Any]
T = TypeVar("T")

SEARCHED = "searched: prompts, answers, reasoning, tools"
_GONE = "the index file was gone"
_LIVE_S = 5.0
_REBUILD_S = 2.0  # how long an answer may wait for an index that had to be rebuilt
_PATIENCE_S = 0.02  # for another thread that is reading on: what it reads is as good
_MOST_ENTRIES = 2000  # of one page, or of one task
_EVERYTHING = Query()


class Index:
    """What is in a rollouts file. Safe to use from several threads, and by several processes at once.

    `outside` are fields that are not in the file, `judged` adds those of people's judgement.
    """

    def __init__(
        self,
        rollouts: Path,
        *,
        outside: Sequence[OutsideField] = (),
        judged: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not rollouts.exists():
            raise InputError(f"{rollouts}: there is no such file")
        open_lines(rollouts).close()
        self.rollouts = rollouts
        self.path = database.index_path(rollouts)
        self._files = {store.KEPT: rollouts, store.FAILURES: beside(rollouts, "failures.jsonl")}
        self._clock = clock
        self.judgements = Judgements(notes_file(rollouts))
        self.judged = JudgedEntries(self.judgements, lambda keys: self._read(partial(finished_entries, keys=keys)))
        self._word_lists: dict[Hashable, Mask] = {}
        self._outside = OutsideValues([*outside, *(self.judged.fields() if judged else ())], self.numbers_of)
        self._building = threading.RLock()
        self._discarded = database.prepare(self.path)
        self._builder = Builder(self._files, self.path, clock)
        self._problem: str | None = None
        self.remade = 0  # how often the index file had to be discarded since it was opened
        self._rebuilt_at = self._read(store.read_progress).rebuilt_at

    def close(self) -> None:
        """Close the files. Closing twice is fine."""
        with self._building:
            self._builder.close()

    def refresh(
        self, budget_s: float | None = None, *, search: bool = True, stopped: Callable[[], bool] = lambda: False
    ) -> State:
        """Read on from where the index ends: rows first, then (by default) the text for searching.

        With a budget it returns within about that time and continues at the next call. `stopped` ends it early.
        """
        patience_s = -1 if budget_s is None else max(0.0, min(budget_s, _PATIENCE_S))
        if self._building.acquire(timeout=patience_s):
            try:
                self._build(budget_s, search, stopped)
            finally:
                self._building.release()
        return self.state

    @property
    def state(self) -> State:
        """How far the index is, right now."""
        return self._read(self._state)

    def fields(self) -> list[str]:
        """The numeric fields a filter or an order can name, including those of tasks."""
        return [name for name in self.names().numbers if name != "number"]

    def names(self) -> FieldNames:
        """Every field a filter can name, by kind."""
        return self._read(lambda connection: field_names(connection, self._outside.names))

    def page(
        self, query: Query, sort: Sort, *, after: str | None = None, before: str | None = None, limit: int = 50
    ) -> Page[Entry]:
        """The entries behind one cursor or before another; without either, the first."""
        limit = max(1, min(limit, _MOST_ENTRIES))

        def answer(columns: Columns) -> Page[Entry]:
            page = lists.entry_page(columns, query, sort, after=after, before=before, limit=limit)
            return replace(page, note=self._note(columns, query))

        return self._listed(answer)

    def count(self, query: Query) -> int:
        """How many entries match."""
        if not query.terms:
            return self.state.entries
        return self._query(lambda columns: int(all_matching(columns, query).sum()))

    def select(self, query: Query, sort: Sort | None = None) -> Iterator[Entry]:
        """Every entry that matches, in order. They are chosen at the start and read some thousand at a time."""

        def choose(columns: Columns) -> list[int]:
            rows = lists.order_of(columns, sort or Sort()).rows(all_matching(columns, query), None)
            numbers: list[int] = columns["number"][rows].tolist()
            return numbers

        numbers = self._query(choose)
        for start in range(0, len(numbers), _MOST_ENTRIES):
            yield from self.entries(numbers[start : start + _MOST_ENTRIES])

    def neighbours(self, query: Query, sort: Sort, number: int) -> tuple[int | None, int | None]:
        """The entries before and after one in a list, whether it is in that list itself or not."""

        def answer(columns: Columns) -> tuple[int | None, int | None]:
            rows = columns.positions([number])
            if not len(rows):
                raise self._missing(number)
            return lists.neighbours(columns, query, sort, int(rows[0]))

        return self._query(answer)

    def entry(self, number: int) -> Entry:
        """One entry; a number that does not exist is an `InputError`."""
        entries = self.entries([number])
        if not entries:
            raise self._missing(number)
        return entries[0]

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """These entries, in this order; one that does not exist is left out."""
        return self._read(lambda connection: lists.read_entries(connection, list(numbers)))

    def texts(self, numbers: Sequence[int], names: Sequence[str]) -> dict[int, dict[str, str]]:
        """Text fields of these entries, by name, as far as an entry has them; several values of one are joined."""
        return self._query(lambda columns: lists.read_texts(columns, list(numbers), names))

    def row(self, number: int) -> Json:
        """The rollout of an entry, read from the file; what JSON has no form for, such as NaN, is null."""
        row: Json = loads(self.line(number), finite=True)
        return row

    def line(self, number: int) -> bytes:
        """The whole line of an entry, read from the file and compared with what was indexed."""
        line = self._verified(number)
        untouched = line is None and self.untouched()
        if line is None:
            self.refresh(_REBUILD_S, search=False)  # which notices most changes
            line = self._verified(number)
        if line is None and untouched:
            self.remake("a rollout is not where the index says")
            line = self._verified(number)
        if line is None:
            known = self._read(store.read_progress)
            if self._building.acquire(timeout=_REBUILD_S):
                try:
                    self._builder.forget(known, f"{self.rollouts.name}: a line was changed; read again from the start")
                finally:
                    self._building.release()
            raise InputError(f"{self.rollouts}: changed since it was indexed; it is being read again")
        return line

    def untouched(self) -> bool:
        """Whether the files are as they were when they were read. Then what is wrong is wrong with the index."""
        marks = self._read(store.read_progress).marks
        return all(same_file(path, marks[file]) for file, path in self._files.items())

    def remake(self, why: str) -> None:
        """Discard the index and start a new one; a long file is read further by `refresh`."""
        self._rebuild(f"the index file was damaged ({why})")

    def find(self, key: str) -> int | None:
        """The number of the first rollout with this key."""
        first = "SELECT min(number) FROM entry WHERE key = ?"
        number: int | None = self._read(lambda connection: connection.execute(first, (key,)).fetchone()[0])
        return number

    def numbers_of(self, keys: Iterable[str]) -> dict[str, int]:
        """The number of the first entry with each of these keys; a key that no entry has is left out."""
        first = (
            "SELECT e.key, min(e.number) FROM json_each(?) wanted CROSS JOIN entry e ON e.key = wanted.value"
            " GROUP BY e.key"
        )
        wanted = orjson.dumps(list(keys)).decode()
        return self._read(lambda connection: dict(connection.execute(first, (wanted,)).fetchall()))

    def repeats(self, task: str, *, since: int = 0, limit: int = _MOST_ENTRIES) -> Repeats | None:
        """The rollouts of a task from `since` on, by repeat, with a summary of all of them; None if it has none."""
        limit = max(1, min(limit, _MOST_ENTRIES))
        return self._query(lambda columns: lists.read_repeats(columns, task, since=since, limit=limit))

    def tasks(
        self,
        sort: Sort,
        query: Query = _EVERYTHING,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page[TaskSummary]:
        """The tasks with a rollout that matches, sorted by a number of tasks or as they appear in the file."""
        limit = max(1, min(limit, _MOST_ENTRIES))

        def answer(columns: Columns) -> Page[TaskSummary]:
            page = lists.task_page(columns, query, sort, after=after, before=before, limit=limit)
            return replace(page, note=self._note(columns, query))

        return self._listed(answer)

    def count_tasks(self, query: Query) -> TaskCounts:
        """How many tasks have a rollout that matches."""
        return self._query(lambda columns: lists.count_tasks(columns, query))

    def failures(self) -> list[FailureGroup]:
        """Kinds of failures, the most frequent first."""
        return self._read(summaries.failure_groups)

    def histogram(self, field: str = "reward") -> FieldHistogram:
        """How the values of a numeric field are distributed."""
        return self._query(lambda columns: summaries.histogram(columns, field))

    def series(self, most: int = 120) -> list[Point]:
        """What finished when."""
        return self._query(lambda columns: summaries.series(columns, most))

    def picture(self, draw: Callable[[Columns], T]) -> T:
        """What a function of `pictures` makes of the columns."""
        return self._query(draw)

    def outside_versions(self) -> Hashable:
        """Changes whenever the values of a field from outside do."""
        return self._outside.versions()

    def _note(self, columns: Columns, query: Query) -> str | None:
        """What a filter looks at, where that is not the whole of every rollout."""
        notes = [_searched(columns.connection)] if query.words else []
        notes += [
            note for term in query.terms if isinstance(term, Matched) and (note := self._outside.note(term.field))
        ]
        return "; ".join(dict.fromkeys(notes)) or None

    def _listed(self, answer: Callable[[Columns], Page[T]]) -> Page[T]:
        """A list; an empty one that says why while a field is still being computed."""
        try:
            return self._query(answer)
        except NotYet as error:
            return Page((), note=error.problems[0], waiting=True)

    def _query(self, answer: Callable[[Columns], T]) -> T:
        return self._read(lambda connection: answer(Columns(connection, self._outside, self._word_lists)))

    def _read(self, answer: Callable[[sqlite3.Connection], T]) -> T:
        """An answer from one snapshot. An index that is gone or damaged is rebuilt first."""
        try:
            with database.snapshot(self.path) as connection:
                return answer(connection)
        except FileNotFoundError:
            why = _GONE
        except sqlite3.DatabaseError as error:
            if not database.is_damage(error):
                raise
            why = f"the index file was damaged ({error})"
        self._rebuild(why)
        with database.snapshot(self.path) as connection:
            return answer(connection)

    def _rebuild(self, why: str) -> None:
        with self._building:
            if why != _GONE or self._builder.replaced():
                self._replace(why)
            else:
                database.prepare(self.path)
            self._build(_REBUILD_S, False, lambda: False)

    def _replace(self, why: str) -> None:
        """Discard the index file, unless another process has done so already."""
        self._discarded = why
        self.remade += 1
        if not self._builder.replaced():
            database.discard(self.path)
        self._builder.close()
        database.prepare(self.path)
        self._builder = Builder(self._files, self.path, self._clock)

    def _build(self, budget_s: float | None, search: bool, stopped: Callable[[], bool]) -> None:
        for _ in range(2):
            try:
                if self._builder.replaced():
                    self._replace(_GONE)
                self._builder.run(budget_s, search=search, stopped=lambda: stopped() or self._builder.replaced())
                self._problem = None
                if stopped() or not self._builder.replaced():
                    return
            except sqlite3.DatabaseError as error:
                if not database.is_damage(error):
                    self._problem = f"{self.path}: cannot be written: {error}"
                    return
                self._replace(f"the index file was damaged ({error})")

    def _state(self, connection: sqlite3.Connection) -> State:
        progress = store.read_progress(connection)
        try:
            status = os.stat(self.rollouts)
            whole = stat.S_ISREG(status.st_mode)  # anything else has a note that it cannot be read
            size, touched = (status.st_size, status.st_mtime) if whole else (0, 0.0)
        except OSError:
            size, touched = 0, 0.0
        read = progress.places[store.KEPT].offset
        notes = list(progress.notes)
        if progress.flaws > len(notes):
            notes.append(f"{self.rollouts.name}: and {progress.flaws - len(notes)} more lines like these")
        notes += [*self._builder.problems.values(), *filter(None, [self._problem])]
        return State(
            rows=progress.rows,
            failed=progress.failed,
            deferred=progress.deferred,
            unreadable=progress.unreadable,
            bytes=read,
            size=size,
            searchable=min(progress.searchable, progress.rows + progress.failed),
            notes=notes,
            rebuilt=(progress.rebuilt if progress.rebuilt_at != self._rebuilt_at else None) or self._discarded,
            rebuilt_at=progress.rebuilt_at,
            live=self._clock() - touched < _LIVE_S,
            complete=read >= size or self._builder.complete_size == size,
        )

    def _verified(self, number: int) -> bytes | None:
        place = "SELECT offset, within, size, crc FROM entry WHERE number = ?"
        row = self._read(lambda connection: connection.execute(place, (number,)).fetchone())
        if row is None:
            raise self._missing(number)
        offset, within, size, crc = row
        with closing(open_lines(self._files[store.FAILURES if number > FAILED else store.KEPT])) as source:
            try:
                line = source.line_at(offset, within, size)
            except InputError:
                return None
        return line if len(line) == size and crc32(line) == crc else None

    def _missing(self, number: int) -> InputError:
        return InputError(f"{self.rollouts}: there is no rollout number {number}")


def _searched(connection: sqlite3.Connection) -> str:
    """What a search covers, and how far it is."""
    progress = store.read_progress(connection)
    if all(progress.searched[file].line >= progress.places[file].line for file in progress.places):
        return SEARCHED
    entries = progress.rows + progress.failed
    return f"{SEARCHED}; {min(progress.searchable, entries):,} of {entries:,} so far"
