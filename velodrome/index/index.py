"""The index of a rollouts file: what a viewer or an export asks, answered without reading the file again.

It follows the file: `refresh` reads on from where it was, `start` does so in a thread. It is never trusted over the
file: one that was cut, replaced or written over is read anew, and a row is compared with what was read before it is
given out.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import orjson

import velodrome.index.figures as figures
import velodrome.index.schema as schema
import velodrome.index.store as store
from velodrome.errors import InputError
from velodrome.index.answers import FAILED, Entry, Group, Histogram, Page, Point, Repeats, State, TaskPage
from velodrome.index.builder import Builder, opened
from velodrome.index.entries import read_entries
from velodrome.index.extract import key_of
from velodrome.index.fields import Fields
from velodrome.index.heard import Heard
from velodrome.index.paging import Cursor
from velodrome.index.plan import Found, Limits, Plan
from velodrome.index.pool import Pool
from velodrome.index.query import TASK_FIELDS, Query, Sort
from velodrome.index.source import same_file
from velodrome.index.tasks import read_repeats, read_tasks
from velodrome.records.lenient import loads
from velodrome.records.rollout import beside

Json = dict[str, Any]
T = TypeVar("T")

_GONE = "the index file was gone"
_LIVE_S = 5.0
_MEND_S = 2.0  # how long an answer may wait for an index that had to be made anew
_PATIENCE_S = 0.02  # for another thread that is reading on: what it reads is as good
_MOST_DRAWN = 64
_MOST_ENTRIES = 2000  # of one page, or of one task


class Index:
    """What is in a rollouts file. Safe to use from several threads, and by several processes at once."""

    def __init__(self, rollouts: Path, *, clock: Callable[[], float] = time.time, limits: Limits | None = None) -> None:
        if not rollouts.exists():
            raise InputError(f"{rollouts}: there is no such file")
        opened(rollouts).close()
        self.rollouts = rollouts
        self.path = schema.place(rollouts)
        self._files = {store.KEPT: rollouts, store.FAILURES: beside(rollouts, "failures.jsonl")}
        self._clock = clock
        self._limits = limits or Limits()
        self._building = threading.RLock()
        self._stop = threading.Event()
        self._useless = threading.Event()  # the index file is gone or damaged, and is to be made anew first
        self._thread: threading.Thread | None = None
        self._thrown_away = schema.prepare(self.path)
        self._pool = Pool(self.path)
        self._heard = Heard()
        self._drawn: dict[tuple[object, ...], Histogram] = {}
        self._builder = Builder(self._files, self.path, clock)
        self._trouble: str | None = None
        self.remade = 0  # how often the index file had to be thrown away since it was opened
        self._rebuilt_at = self._ask(store.read_progress).rebuilt_at

    def close(self) -> None:
        """Stop following and let go of the files. Closing twice is fine."""
        self.stop()
        with self._building:
            self._builder.close()
        self._pool.close()

    def refresh(self, budget_s: float | None = None, *, search: bool = True) -> State:
        """Read on from where the index ends: rows first, then, unless told otherwise, what can be searched.

        With a budget it returns within about that time and goes on at the next call. While `start` is at work it
        only tells how far that is.
        """
        following = self._thread is not None and self._thread is not threading.current_thread()
        if budget_s is not None and following:
            return self.state
        patience_s = -1 if budget_s is None else max(0.0, min(budget_s, _PATIENCE_S))
        if self._building.acquire(timeout=patience_s):
            try:
                self._build(budget_s, search)
            finally:
                self._building.release()
        return self.state

    def start(self, interval_s: float = 0.5) -> None:
        """Follow the file in a thread of its own until `stop` or `close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, args=(interval_s,), name="index", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop following; what is being read is let go of, and kept up to there."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._stop.clear()

    @property
    def state(self) -> State:
        """How far the index is, right now."""
        return self._ask(self._told)

    def fields(self) -> list[str]:
        """The numeric fields a filter or an order can name, those of tasks too."""
        return self._ask(lambda db: [*Fields(db).names(), *TASK_FIELDS])

    def page(
        self, query: Query, sort: Sort, *, after: str | None = None, before: str | None = None, limit: int = 50
    ) -> Page:
        """The entries behind one cursor or before another; without either, the first."""
        limit = max(1, min(limit, _MOST_ENTRIES))
        text, backwards = (after, False) if before is None else (before, True)
        cursor = None if text is None else Cursor.decode(text, sort, 2 if sort.field in TASK_FIELDS else 1)

        def answer(db: sqlite3.Connection) -> Page:
            plan = self._plan(db, query)
            found = plan.numbers(sort, cursor, backwards=backwards, limit=limit + 1)
            more, found = len(found) > limit, found[:limit]
            if backwards:
                found.reverse()
            has_next, has_previous = (True, more) if backwards else (more, after is not None)
            return Page(
                tuple(read_entries(db, plan.fields, [number for number, _, _ in found])),
                _cursor(found[-1:], sort) if has_next else None,
                _cursor(found[:1], sort) if has_previous else None,
                _unsearched(db) if query.words else None,
            )

        return self._ask(answer)

    def count(self, query: Query, *, most: int = 100_000) -> tuple[int, bool]:
        """How many entries there are, and whether that is all: counting ends at `most`, and where it takes too long."""

        def answer(db: sqlite3.Connection) -> tuple[int, bool]:
            if query.terms:
                return self._plan(db, query).count(most)
            progress = store.read_progress(db)
            return progress.rows + progress.failed, True

        return self._ask(answer)

    def neighbours(self, query: Query, sort: Sort, number: int) -> tuple[int | None, int | None]:
        """The entries before and after one in a list, whether it is in that list itself or not."""

        def answer(db: sqlite3.Connection) -> tuple[int | None, int | None]:
            here = self._plan(db, Query()).place(sort, number)
            if here is None:
                raise self._missing(number)
            plan = self._plan(db, query)
            sides = [plan.numbers(sort, here, backwards=backwards, limit=1) for backwards in (True, False)]
            before, after = (found[0][0] if found else None for found in sides)
            return before, after

        return self._ask(answer)

    def entry(self, number: int) -> Entry:
        """One entry; a number that is not there is an `InputError`."""
        found = self.entries([number])
        if not found:
            raise self._missing(number)
        return found[0]

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """These entries, in this order; one that is not there is left out."""
        return self._ask(lambda db: read_entries(db, Fields(db), numbers))

    def row(self, number: int) -> Json:
        """The rollout of an entry, read from the file; what JSON has no form for, as NaN, is null."""
        found: Json = loads(self.line(number), finite=True)
        return found

    def line(self, number: int) -> bytes:
        """The whole line of an entry, read from the file and compared with what was indexed."""
        line = self._verified(number)
        untouched = line is None and self.untouched()
        if line is None:
            self.refresh(_MEND_S, search=False)  # which notices most changes
            line = self._verified(number)
        if line is None and untouched:
            self.remake("a rollout is not where the index says")
            line = self._verified(number)
        if line is None:
            known = self._ask(store.read_progress)
            if self._building.acquire(timeout=_MEND_S):
                try:
                    self._builder.forget(known, f"{self.rollouts.name}: a line was changed; read again from the start")
                finally:
                    self._building.release()
            raise InputError(f"{self.rollouts}: changed since it was indexed; it is being read again")
        return line

    def untouched(self) -> bool:
        """Whether the files are as they were when they were read. Then what is wrong is wrong with the index."""
        marks = self._ask(store.read_progress).marks
        return all(same_file(path, marks[file]) for file, path in self._files.items())

    def remake(self, why: str) -> None:
        """Throw the index away and begin it anew; a long file is read further by `refresh`."""
        self._useless.set()  # whoever builds it lets go
        with self._building:
            self._useless.clear()
            self._mend(f"the index file was damaged ({why})")
            self._build(_MEND_S, search=False)

    def find(self, key: str) -> int | None:
        """The number of the rollout with this key."""
        asked = "SELECT min(number) FROM rollout WHERE key = ?"
        found: int | None = self._ask(lambda db: db.execute(asked, (key_of(key),)).fetchone()[0])
        return found

    def there(self, numbers: Sequence[int]) -> set[int]:
        """Which of these are numbers of entries."""
        asked = "SELECT number FROM rollout WHERE number IN (SELECT value FROM json_each(?))"
        told = orjson.dumps(list(numbers)).decode()
        return self._ask(lambda db: {row[0] for row in db.execute(asked, (told,))})

    def repeats(self, task: str, *, since: int = 0, limit: int = _MOST_ENTRIES) -> Repeats | None:
        """The rollouts of a task from `since` on, by repeat, with the sums of all of them; None if it has none."""
        limit = max(1, min(limit, _MOST_ENTRIES))
        return self._ask(lambda db: read_repeats(db, task, since=since, limit=limit))

    def task(self, task: str) -> list[Entry]:
        """All rollouts of a task, by repeat; the first two thousand."""
        found = self.repeats(task)
        return list(found.entries) if found else []

    def tasks(
        self,
        query: Query | None = None,
        sort: Sort | None = None,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> TaskPage:
        """The tasks, filtered by `n`, `pass_rate`, `mean_reward` and `task:`, sorted by one of the first three."""
        asked = (query or Query(), sort or Sort())
        limit = max(1, min(limit, _MOST_ENTRIES))
        return self._ask(lambda db: read_tasks(db, *asked, after=after, before=before, limit=limit))

    def failures(self) -> list[Group]:
        """Kinds of failures, the most frequent first."""
        return self._ask(figures.failures)

    def histogram(self, field: str = "reward", bins: int = 20, query: Query | None = None) -> Histogram:
        """Where the values of a numeric field lie."""
        asked = query or Query()

        def answer(db: sqlite3.Connection) -> Histogram:
            known = (field, bins, asked.terms, store.read_progress(db).encode())
            if known not in self._drawn:
                if len(self._drawn) >= _MOST_DRAWN:
                    self._drawn.clear()
                plan = self._plan(db, asked)
                self._drawn[known] = figures.histogram(db, plan, field, bins, filtered=bool(asked.terms))
            return self._drawn[known]

        return self._ask(answer)

    def series(self, points: int = 120) -> list[Point]:
        """What finished when."""
        return self._ask(lambda db: figures.series(db, points))

    def _ask(self, answer: Callable[[sqlite3.Connection], T]) -> T:
        """An answer from one snapshot. A damaged index is made anew first."""
        try:
            with self._pool.reading() as db:
                return answer(db)
        except FileNotFoundError:
            why, gone = _GONE, True
        except sqlite3.DatabaseError as error:
            if not schema.damaged(error):
                raise
            why, gone = f"the index file was damaged ({error})", False
        self._useless.set()  # whoever builds it lets go
        with self._building:
            self._useless.clear()
            if not gone or self._builder.moved():
                self._mend(why)
            self._build(_MEND_S, search=False)
        with self._pool.reading() as db:
            return answer(db)

    def _mend(self, why: str) -> None:
        """Throw the index away, unless somebody else has done so already."""
        self._thrown_away = why
        self.remade += 1
        self._pool.close()
        if not self._builder.moved():
            schema.discard(self.path)
        self._builder.abandon()
        schema.prepare(self.path)
        self._builder = Builder(self._files, self.path, self._clock)

    def _build(self, budget_s: float | None, search: bool) -> None:
        for _ in range(2):
            try:
                if self._builder.moved():
                    self._mend(_GONE)
                self._builder.run(budget_s, search=search, stopped=self._stopped)
                self._trouble = None
                return
            except sqlite3.DatabaseError as error:
                if not schema.damaged(error):
                    self._trouble = f"{self.path}: cannot be written: {error}"
                    return
                self._mend(f"the index file was damaged ({error})")

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._useless.is_set()

    def _follow(self, interval_s: float) -> None:
        while not self._stop.is_set():
            with self._building:
                self._build(None, search=True)
            self._stop.wait(interval_s)

    def _told(self, db: sqlite3.Connection) -> State:
        progress = store.read_progress(db)
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
        notes += [*self._builder.trouble.values(), *filter(None, [self._trouble])]
        anew = progress.rebuilt if progress.rebuilt_at != self._rebuilt_at else None
        return State(
            rows=progress.rows,
            failed=progress.failed,
            deferred=progress.deferred,
            unreadable=progress.unreadable,
            bytes=read,
            size=size,
            searchable=min(progress.searchable, progress.rows + progress.failed),
            notes=notes,
            rebuilt=anew or self._thrown_away,
            anew_at=progress.rebuilt_at,
            live=self._clock() - touched < _LIVE_S,
            complete=read >= size or self._builder.complete_size == size,
        )

    def _verified(self, number: int) -> bytes | None:
        asked = "SELECT offset, within, size, crc FROM rollout WHERE number = ?"
        found = self._ask(lambda db: db.execute(asked, (number,)).fetchone())
        if found is None:
            raise self._missing(number)
        offset, within, size, crc = found
        source = opened(self._files[store.FAILURES if number > FAILED else store.KEPT])
        try:
            line = source.line_at(offset, within, size)
        except InputError:
            return None
        finally:
            source.close()
        return line if len(line) == size and crc32(line) == crc else None

    def _plan(self, db: sqlite3.Connection, query: Query) -> Plan:
        return Plan(db, query, self._heard, self._limits)

    def _missing(self, number: int) -> InputError:
        return InputError(f"{self.rollouts}: there is no rollout number {number}")


def _cursor(found: list[Found], sort: Sort) -> str | None:
    return Cursor(found[0][1], found[0][2]).encode(sort) if found else None


def _unsearched(db: sqlite3.Connection) -> str | None:
    """What a search does not cover yet."""
    progress = store.read_progress(db)
    there = progress.rows + progress.failed
    if all(progress.searched[file].line >= progress.places[file].line for file in progress.places):
        return None
    return f"text search covers {min(progress.searchable, there):,} of {there:,} rollouts so far"
