"""The index of a rollouts file: answers questions of a viewer or an export without reading the file again.

`refresh` reads the file from where the index ends. If the file was replaced (its size and time or its start differ), it
is read from the start. An index that cannot be read is deleted and rebuilt.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson

import velodrome.index.database as database
import velodrome.index.lists as lists
from velodrome.errors import InputError
from velodrome.index.answer_types import (
    FAILED,
    FAILED_STATE,
    Entry,
    FailureGroup,
    Page,
    Repeats,
    Spread,
    State,
    TaskSummary,
)
from velodrome.index.builder import FAILURES, KEPT, Builder, read_progress
from velodrome.index.columns import Columns, field_names
from velodrome.index.conditions import matching
from velodrome.index.fields import FIELD_NAMES, FieldNames
from velodrome.index.judgements import Judgements, notes_file
from velodrome.index.lines import open_lines
from velodrome.index.outside import FinishedEntries, JudgedEntries, NotYet, OutsideField, OutsideValues
from velodrome.index.query import Matched, Query, Sort
from velodrome.records.jsonl import loads
from velodrome.records.rollout import beside

Json = dict[str, Any]
T = TypeVar("T")

SEARCHED = "searched: prompts, answers, reasoning, tools"
_LIVE_S = 5.0
_REBUILD_S = 2.0  # how long an answer may wait for an index that had to be rebuilt
_PATIENCE_S = 0.02  # for another thread that is refreshing
_MOST_ENTRIES = 2000  # of one page, or of one task
_ALL = Query()
_FINISHED_AT = (
    f"SELECT e.key, e.number, json_extract(e.numbers, '$[0][{FIELD_NAMES.index('finished_at')}]')"
    " FROM json_each(?) wanted CROSS JOIN entry e ON e.key = wanted.value"
)


class Index:
    """The contents of a rollouts file. Safe to use from several threads, and by several processes at once.

    `outside` are fields that are not in the file; `judged` adds the fields of judgements.
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
        self._files = {KEPT: rollouts, FAILURES: beside(rollouts, "failures.jsonl")}
        self._clock = clock
        self.judgements = Judgements(notes_file(rollouts))
        self.judged = JudgedEntries(self.judgements, self._finished_entries)
        self._outside = OutsideValues([*outside, *(self.judged.fields() if judged else ())])
        self._build_lock = threading.RLock()
        self._discarded = database.prepare(self.path)
        self._builder = Builder(self._files, self.path, clock)
        self._problem: str | None = None
        self._rebuilt_at = self._read(read_progress).rebuilt_at

    def refresh(self, budget_s: float | None = None, *, patience_s: float = _PATIENCE_S) -> State:
        """Read the file from where the index ends.

        With a budget it returns after about that time, and the next call continues. It waits at most `patience_s` for
        another thread that is reading.
        """
        if self._build_lock.acquire(timeout=-1 if budget_s is None else max(0.0, min(budget_s, patience_s))):
            try:
                self._build(budget_s)
            finally:
                self._build_lock.release()
        return self.state

    @property
    def state(self) -> State:
        """How much of the file is in the index now."""
        return self._read(self._state)

    def fields(self) -> list[str]:
        """The numeric fields for filters and sorting, including those of tasks."""
        return [name for name in self.names().numbers if name != "number"]

    def names(self) -> FieldNames:
        """Every field for filters, by kind."""
        return self._read(lambda connection: field_names(connection, self._outside.names))

    def page(self, query: Query, sort: Sort, *, since: int = 0, limit: int = 50) -> Page[Entry]:
        """Up to `limit` of the matching entries, in order, from offset `since`."""
        limit = max(1, min(limit, _MOST_ENTRIES))

        def answer(columns: Columns) -> Page[Entry]:
            page = lists.entry_page(columns, query, sort, since=since, limit=limit)
            return replace(page, note=self._note(query))

        return self._page(answer)

    def count(self, query: Query) -> int:
        """How many entries match."""
        if not query.terms:
            return self.state.entries
        return self._query(lambda columns: int(matching(columns, query).sum()))

    def select(self, query: Query, sort: Sort | None = None) -> Iterator[Entry]:
        """Every matching entry, in order. They are selected at the start and read in batches."""

        def selected(columns: Columns) -> list[int]:
            rows = lists.sorted_entries(columns, matching(columns, query), sort or Sort())
            numbers: list[int] = columns["number"][rows].tolist()
            return numbers

        numbers = self._query(selected)
        for start in range(0, len(numbers), _MOST_ENTRIES):
            yield from self.entries(numbers[start : start + _MOST_ENTRIES])

    def neighbours(self, query: Query, sort: Sort, number: int) -> tuple[int | None, int | None]:
        """The entries before and after an entry in a list. The entry itself need not be in the list."""

        def answer(columns: Columns) -> tuple[int | None, int | None]:
            rows = columns.positions([number])
            if not len(rows):
                raise self._missing_error(number)
            return lists.neighbours(columns, query, sort, int(rows[0]))

        return self._query(answer)

    def entry(self, number: int) -> Entry:
        """One entry; a number that does not exist is an `InputError`."""
        entries = self.entries([number])
        if not entries and not self.state.complete:  # another thread may be reading the file again
            self.refresh(_REBUILD_S, patience_s=_REBUILD_S)
            entries = self.entries([number])
        if not entries:
            raise self._missing_error(number)
        return entries[0]

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """These entries, in this order. Entries that do not exist are left out."""
        return self._read(lambda connection: lists.read_entries(connection, list(numbers)))

    def values(self, numbers: Sequence[int], names: Iterable[str]) -> dict[int, dict[str, str | float]]:
        """The fields that these entries have, by name. Several texts of one field are joined."""
        return self._query(lambda columns: lists.read_values(columns, list(numbers), names))

    def row(self, number: int) -> Json:
        """The rollout of an entry, read from the file. NaN and infinity become null."""
        row: Json = loads(self.line(number), finite=True)
        return row

    def line(self, number: int) -> bytes:
        """The whole line of an entry, read from the file. If the file was replaced, it is indexed again first."""
        place = "SELECT offset, within, size FROM entry WHERE number = ?"
        file = FAILURES if number > FAILED else KEPT
        for _ in range(2):
            row, progress = self._read(lambda db: (db.execute(place, (number,)).fetchone(), read_progress(db)))
            with closing(open_lines(self._files[file])) as source:
                if row is not None and source.change(progress.marks[file], progress.places[file]) is None:
                    return source.line_at(*row)
            self.refresh(_REBUILD_S, patience_s=_REBUILD_S)
        if row is None:
            raise self._missing_error(number)
        raise InputError(f"{self.rollouts}: changed since it was indexed; it is being read again")

    def find(self, key: str) -> int | None:
        """The number of the first rollout with this key."""
        query = "SELECT min(number) FROM entry WHERE key = ?"
        number: int | None = self._read(lambda connection: connection.execute(query, (key,)).fetchone()[0])
        return number

    def _finished_entries(self, keys: Iterable[str]) -> FinishedEntries:
        """Every entry with one of these keys, and its finish time."""
        key_list = orjson.dumps(list(keys)).decode()
        return self._read(lambda connection: connection.execute(_FINISHED_AT, (key_list,)).fetchall())

    def repeats(self, task: str, *, since: int = 0, limit: int = _MOST_ENTRIES) -> Repeats | None:
        """Rollouts of a task from offset `since`, by repeat, with a summary of all; None if there are none."""
        limit = max(1, min(limit, _MOST_ENTRIES))
        return self._query(lambda columns: lists.read_repeats(columns, task, since=since, limit=limit))

    def tasks(self, sort: Sort, query: Query = _ALL, *, since: int = 0, limit: int = 50) -> Page[TaskSummary]:
        """The tasks with a matching rollout, sorted by a field of tasks or by their place in the file."""
        limit = max(1, min(limit, _MOST_ENTRIES))

        def answer(columns: Columns) -> Page[TaskSummary]:
            page = lists.task_page(columns, query, sort, since=since, limit=limit)
            return replace(page, note=self._note(query))

        return self._page(answer)

    def failures(self) -> list[FailureGroup]:
        """Kinds of failures, the most frequent first."""
        return self._read(lists.failure_groups)

    def spread(self, field: str = "reward") -> Spread | None:
        """The minimum, maximum and mean of a field; None if no entry has it."""
        return self._query(lambda columns: lists.spread(columns, field))

    def saved(self, name: str, stamps: list[Any]) -> Any:
        """The result that `save` stored under a name, if it has these stamps."""
        row = self._read(lambda db: db.execute("SELECT value FROM note WHERE name = ?", (name,)).fetchone())
        value = orjson.loads(row[0]) if row else {}
        return value["result"] if value.get("stamps") == stamps else None

    def save(self, name: str, stamps: list[Any], result: Any) -> None:
        """Store a result that was computed from the files while they had these stamps."""
        options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
        value = orjson.dumps({"stamps": stamps, "result": result}, option=options).decode()
        with self._build_lock, suppress(sqlite3.DatabaseError), closing(database.connect(self.path)) as db:
            db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (name, value))

    def picture(self, draw: Callable[[Columns], T]) -> T:
        """The result of a function of `lists` or `pictures` on the columns."""
        return self._query(draw)

    def outside_versions(self) -> Hashable:
        """Changes whenever the values of an outside field change."""
        return self._outside.versions()

    def _note(self, query: Query) -> str | None:
        """What a filter searches, if it does not search whole rollouts."""
        notes = [SEARCHED] if query.words else []
        notes += [
            note for term in query.terms if isinstance(term, Matched) and (note := self._outside.note(term.field))
        ]
        return "; ".join(dict.fromkeys(notes)) or None

    def _page(self, answer: Callable[[Columns], Page[T]]) -> Page[T]:
        """A page of a list; while a field is still being computed, an empty page with a note."""
        try:
            return self._query(answer)
        except NotYet as error:
            return Page((), note=error.problems[0], waiting=True)

    def _query(self, answer: Callable[[Columns], T]) -> T:
        return self._read(lambda connection: answer(Columns(connection, self._outside)))

    def _read(self, answer: Callable[[sqlite3.Connection], T]) -> T:
        """An answer from one snapshot. If the index is missing or cannot be read, it is rebuilt first."""
        try:
            with database.snapshot(self.path) as connection:
                return answer(connection)
        except (FileNotFoundError, sqlite3.DatabaseError) as error:
            if database.is_busy(error):
                raise
            with self._build_lock:
                self._discard(error)
                self._build(_REBUILD_S)
        with database.snapshot(self.path) as connection:
            return answer(connection)

    def _discard(self, error: Exception) -> None:
        """Start a new index in place of one that is missing or cannot be read."""
        self._discarded = "the index file was gone" if isinstance(error, OSError) else database.unusable(error)
        if not isinstance(error, OSError):
            database.discard(self.path)
        database.prepare(self.path)

    def _build(self, budget_s: float | None) -> None:
        try:
            if not self.path.exists():
                self._discard(FileNotFoundError(self.path))
            self._builder.run(budget_s)
            self._problem = None
        except sqlite3.OperationalError as error:
            self._problem = f"{self.path}: cannot be written: {error}"
        except sqlite3.DatabaseError as error:
            self._discard(error)
            self._builder.run(budget_s)

    def _state(self, connection: sqlite3.Connection) -> State:
        progress = read_progress(connection)
        try:
            status = os.stat(self.rollouts)
            is_regular = stat.S_ISREG(status.st_mode)  # for anything else a note says that it cannot be read
            size, modified_at = (status.st_size, status.st_mtime) if is_regular else (0, 0.0)
        except OSError:
            size, modified_at = 0, 0.0
        read_bytes = progress.places[KEPT].offset
        notes = list(progress.notes)
        if progress.flaws > len(notes):
            notes.append(f"{self.rollouts.name}: and {progress.flaws - len(notes)} more lines like these")
        notes += [*self._builder.problems.values(), *filter(None, [self._problem])]
        return State(
            rows=progress.rows,
            failed=progress.failed,
            deferred=progress.deferred,
            unreadable=progress.unreadable,
            bytes=read_bytes,
            size=size,
            notes=notes,
            rebuilt=(progress.rebuilt if progress.rebuilt_at != self._rebuilt_at else None) or self._discarded,
            rebuilt_at=progress.rebuilt_at,
            live=self._clock() - modified_at < _LIVE_S,
            complete=read_bytes >= size or self._builder.complete_size == size,
        )

    def _missing_error(self, number: int) -> InputError:
        return InputError(f"{self.rollouts}: there is no rollout number {number}")


def matching_lines(
    path: Path, where: str, *, sort: str = "", outside: Sequence[OutsideField] = ()
) -> Iterator[tuple[int, bytes]]:
    """Each rollout that matches `where`, as its line number and its line; failures are left out.

    `where` is a filter as in the viewer (`reward<1 tools>3`), `sort` a numeric field (`-total_s`); the default order is
    that of the file. A mistake in either is an `InputError` with its place. The index beside the file is built or
    brought up to date first; lines are read one by one on demand. `outside` are further fields.
    """
    query, order = Query.parse(where), Sort.parse(sort)
    index = Index(path, judged=True, outside=outside)
    index.refresh()
    for entry in index.select(query, order):
        if entry.state != FAILED_STATE:
            yield entry.number, index.line(entry.number)
