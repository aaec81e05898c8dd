"""How a filtered, sorted list is found quickly: from a term that allows few, or along the order, or by looking at all.

A term that allows few entries, by an SQL index or by its words, is taken first and the rest is sorted. Without one,
the list is walked in its order until there is enough; where that takes too long, because what is wanted stands at the
other end, every entry is looked at once.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

import velodrome.index.indices as indices
from velodrome.errors import InputError
from velodrome.index.answers import FAILED
from velodrome.index.fields import Fields
from velodrome.index.heard import Heard, holds, match
from velodrome.index.paging import Cursor, Order
from velodrome.index.query import TASK_FIELDS, Compared, Query, Sort, Words
from velodrome.index.schema import searchable
from velodrome.index.select import Clause, Source, sources, where

_ALL = Clause("rollout r NOT INDEXED")
_MANY_SAMPLES = 20
_NEARLY_ALL = 0.4
_IN_LIST = "json_each(?) few CROSS JOIN rollout r ON r.number = few.value"

Found = tuple[int, Any, tuple[int, ...]]  # a number, the value it is ordered by, ties


@dataclass(frozen=True, slots=True)
class Limits:
    """Where one way to find a list ends and another begins. The short times are of the CPU, however busy it is."""

    few: int = 8000  # candidates of an SQL index that are looked at one by one
    few_named: int = 20_000  # the same of a list by words, names or errors
    many: int = 30_000  # the same once walking took too long; beyond it looking at all entries is no slower
    sample: int = 10_000  # entries from which it is told whether nearly all hold some words
    walk_s: float = 0.02
    walk_tasks_s: float = 0.1  # the same along tasks, where looking at all entries takes longest
    walk_filtered_tasks_s: float = 0.3  # the same where whole tasks are passed over, which is quick
    walk_words_s: float = 0.12  # the same where words are looked up on the way; listing what holds them takes longer
    count_s: float = 0.06
    longest_s: float = 10.0
    slice: int = 1 << 13  # entries between two looks at the clock
    steps: int = 2000  # of SQLite's machine between two looks at the clock


class Plan:
    """One filter on one snapshot of the index."""

    def __init__(self, connection: sqlite3.Connection, query: Query, heard: Heard, limits: Limits) -> None:
        self._db = connection
        self._limits = limits
        self.fields = Fields(connection)
        self._there = indices.names(connection)
        query.check(self.fields.names())
        if query.words and not searchable(connection):
            raise InputError("filter: this Python's SQLite has no full-text search (FTS5); filter by fields")
        self._query = query
        self._where = where(query, self.fields)
        self._where_with_task = where(query, self.fields, with_task=True)
        self._lists = heard

    @cached_property
    def _heard(self) -> Sequence[int] | None:
        """The shortest list of those that hold words; what a condition on words needs is ready when it is known."""
        lists = [self._lists.numbers(self._db, term) for term in self._query.words]
        self._db.create_function("heard", 2, lambda place, number: holds(lists[place], number))
        wanted = [found for found, term in zip(lists, self._query.words, strict=True) if not term.negated]
        return min(wanted, key=len, default=None)

    @cached_property
    def _few(self) -> Sequence[int] | None:
        """The shortest list of candidates that a term gives, if one is short."""
        best = self._heard
        if best is not None and len(best) > self._limits.few_named:
            best = None
        for source in sources(self._query, self.fields, self._there):
            most = self._limits.few_named if source.named else self._limits.few
            found = self._listed(source, most if best is None else min(most, len(best) - 1))
            best = best if found is None else found
        return best

    def _listed(self, source: Source, most: int) -> list[int] | None:
        """The candidates of a source, if there are no more than that."""
        if most < 0:
            return None
        listed = Clause(f"{source.clause.sql} LIMIT ?", (*source.clause.values, most + 1))
        if not source.named and self._rows(Clause(f"SELECT count(*) FROM ({listed.sql})", listed.values))[0][0] > most:
            return None  # counting takes a tenth of the time that listing does
        found = self._rows(listed)
        return [row[0] for row in found] if len(found) <= most else None

    def _rows(self, clause: Clause) -> list[tuple[Any, ...]]:
        found = self._rows_until(clause, time.monotonic, time.monotonic() + self._limits.longest_s)
        if found is None:
            raise InputError(f"filter: it took longer than {self._limits.longest_s:g} s; ask for less")
        return found

    def _rows_until(self, clause: Clause, clock: Callable[[], float], end: float) -> list[tuple[Any, ...]] | None:
        """What a statement gives, or None if it takes longer than that."""
        self._db.set_progress_handler(lambda: clock() > end, self._limits.steps)
        try:
            return self._db.execute(clause.sql, clause.values).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return None
        finally:
            self._db.set_progress_handler(None, 0)

    def _order(self, sort: Sort) -> tuple[Order, str | None]:
        """The order, and the tables to walk along it, if they can be."""
        if sort.field == "number":
            return Order(None, ("r.number",), sort.descending), "rollout r NOT INDEXED"
        if sort.field in TASK_FIELDS:
            order = Order(f"t.{sort.field}", ("t.id", "r.number"), sort.descending)
            by = f"task_by_{sort.field}"
            tables = f"task t INDEXED BY {by} CROSS JOIN rollout r INDEXED BY by_task ON r.task = t.id"
            return order, tables if {by, "by_task"} <= self._there else None
        column = self.fields.column(sort.field, what="sort")
        by = f"by_{column}"
        tables = f"rollout r INDEXED BY {by}"
        return Order(f"r.{column}", ("r.number",), sort.descending), tables if by in self._there else None

    def numbers(self, sort: Sort, cursor: Cursor | None, *, backwards: bool, limit: int) -> list[Found]:
        """The next entries behind (or, backwards, before) a cursor."""
        order, tables = self._order(sort)
        wanted = ", ".join([order.column or "NULL", "r.number", *order.ties])
        rows = self._spoken(sort, cursor, backwards, limit)
        if rows is None and tables is not None:
            start = f"SELECT {wanted} FROM {tables}"
            test = self._everywhere()
            if test is not None:
                rows = self._walked(start, test, order, cursor, backwards, limit, self._limits.walk_words_s)
            if rows is None and self._few is None:
                test = self._where_with_task if sort.field in TASK_FIELDS else self._where
                rows = self._walked(start, test, order, cursor, backwards, limit, self._patience_s(sort))
        if rows is None:
            rows = self._sorted(wanted, sort, order, cursor, backwards, limit)
        return [(row[1], row[0], row[2:]) for row in rows]

    def place(self, sort: Sort, number: int) -> Cursor | None:
        """Where an entry stands in an order."""
        order, _ = self._order(sort)
        wanted = ", ".join([order.column or "NULL", *order.ties])
        sql = f"SELECT {wanted} FROM rollout r JOIN task t ON t.id = r.task WHERE r.number = ?"
        rows = self._rows(Clause(sql, (number,)))
        return Cursor(rows[0][0], rows[0][1:]) if rows else None

    def _spoken(self, sort: Sort, cursor: Cursor | None, backwards: bool, limit: int) -> list[tuple[Any, ...]] | None:
        """What holds some words, in the order of the file: full-text search gives it in that order by itself."""
        word = self._only_word()
        if sort.field != "number" or word is None:
            return None
        others = self._without(word)
        rising = sort.descending == backwards
        beyond = Clause(f"s.rowid {'>' if rising else '<'} ?", cursor.ties) if cursor else Clause("1")
        sql = (
            "SELECT NULL, r.number, r.number FROM search s CROSS JOIN rollout r ON r.number = s.rowid"
            f" WHERE s.search MATCH ? AND {beyond.sql} AND {others.sql}"
            f" ORDER BY s.rowid {'ASC' if rising else 'DESC'} LIMIT ?"
        )
        values = (match(word), *beyond.values, *others.values, limit)
        return self._rows_until(Clause(sql, values), time.thread_time, time.thread_time() + self._limits.walk_s)

    def _only_word(self) -> Words | None:
        words = self._query.words
        return words[0] if len(words) == 1 and not words[0].negated else None

    def _without(self, word: Words) -> Clause:
        return where(Query(tuple(term for term in self._query.terms if term is not word)), self.fields)

    def _everywhere(self) -> Clause | None:
        """A condition that looks the words up for each entry: quicker than any list where nearly all hold them."""
        word = self._only_word()
        if word is None or word.prefix:  # the start of many words takes as long to look up once as to list
            return None
        sample = self._limits.sample
        asked = f"SELECT max(number) FROM rollout WHERE number < {FAILED}"
        if (self._rows(Clause(asked))[0][0] or 0) < _MANY_SAMPLES * sample:
            return None
        asked = "SELECT count(*) FROM search WHERE search MATCH ? AND rowid <= ?"
        if self._rows(Clause(asked, (match(word), sample)))[0][0] < _NEARLY_ALL * sample:
            return None
        others = self._without(word)
        kept = "EXISTS (SELECT 1 FROM search WHERE search MATCH ? AND rowid = r.number)"
        # Failures are at an end of many orders, and hold other words: what does is listed, and looked up there.
        failed = f"r.number IN (SELECT rowid FROM search WHERE search MATCH ? AND rowid > {FAILED})"
        here = f"CASE WHEN r.number < {FAILED} THEN {kept} ELSE {failed} END"
        return Clause(f"{others.sql} AND {here}", (*others.values, match(word), match(word)))

    def _patience_s(self, sort: Sort) -> float:
        """How long to walk. As in the file, and without words to look up, it is the same as looking at all entries."""
        if sort.field == "number" and not self._query.words:
            return self._limits.longest_s
        if sort.field not in TASK_FIELDS:
            return self._limits.walk_s
        passed_over = any(isinstance(term, Compared) and term.field in TASK_FIELDS for term in self._query.terms)
        return self._limits.walk_filtered_tasks_s if passed_over else self._limits.walk_tasks_s

    def _walked(
        self, start: str, test: Clause, order: Order, cursor: Cursor | None, backwards: bool, limit: int, most_s: float
    ) -> list[tuple[Any, ...]] | None:
        rows: list[tuple[Any, ...]] = []
        end = time.thread_time() + most_s
        for clause, by in order.stretches(cursor, backwards=backwards):
            if len(rows) < limit:
                sql = f"{start} WHERE {clause.sql} AND {test.sql} ORDER BY {by} LIMIT ?"
                values = (*clause.values, *test.values, limit - len(rows))
                found = self._rows_until(Clause(sql, values), time.thread_time, end)
                if found is None:
                    return None
                rows += found
        return rows

    def _sorted(
        self, wanted: str, sort: Sort, order: Order, cursor: Cursor | None, backwards: bool, limit: int
    ) -> list[tuple[Any, ...]]:
        clause, by = order.at_once(cursor, backwards=backwards)
        tables = self._many() if self._few is None else _table(self._few)
        by_task = sort.field in TASK_FIELDS
        more, test = (" CROSS JOIN task t ON t.id = r.task", self._where_with_task) if by_task else ("", self._where)
        sql = f"SELECT {wanted} FROM {tables.sql}{more} WHERE ({clause.sql}) AND {test.sql} ORDER BY {by} LIMIT ?"
        return self._rows(Clause(sql, (*tables.values, *clause.values, *test.values, limit)))

    def _many(self) -> Clause:
        """The table with fewest candidates, of those a term allows, else of all."""
        most = self._limits.many
        best: Sequence[int] | None = self._heard if self._heard is not None and len(self._heard) <= most else None
        for source in sources(self._query, self.fields, self._there):
            found = self._listed(source, most if best is None else len(best) - 1)
            best = best if found is None else found
        return _ALL if best is None else _table(best)

    def count(self, most: int) -> tuple[int, bool]:
        """How many entries there are, and whether that is all of them."""
        if len(self._query.terms) == 1:
            for listed in self._alone():
                asked = Clause(f"SELECT count(*) FROM ({listed.sql} LIMIT ?)", (*listed.values, most + 1))
                found = self._rows(asked)[0][0]
                return min(found, most), found <= most
        found, exact = 0, True
        for rows, last in self._asked("count(*)"):
            found, exact = found + rows[0][0], last
            if found > most:
                return most, False
        return found, exact

    def _alone(self) -> list[Clause]:
        """A statement that lists just what the only term allows, if there is one."""
        for term in self._query.words:
            if not term.negated:  # of failures, some that are found may have been tried again
                kept = f"SELECT rowid FROM search WHERE search MATCH ? AND rowid < {FAILED}"
                failed = (
                    "SELECT s.rowid FROM search s CROSS JOIN rollout r ON r.number = s.rowid WHERE s.search MATCH ?"
                )
                both = f"SELECT * FROM ({kept} UNION ALL {failed} AND s.rowid > {FAILED})"
                return [Clause(both, (match(term), match(term)))]
        found = sources(self._query, self.fields, self._there)
        return [source.clause for source in found if source.exact]

    def values(self, column: str) -> Iterator[tuple[list[Any], bool]]:
        """The values of a column, some at a time, and whether these are the last of all."""
        for rows, last in self._asked(f"r.{column}"):
            yield [row[0] for row in rows], last

    def _asked(self, wanted: str) -> Iterator[tuple[list[tuple[Any, ...]], bool]]:
        """Something of every entry of the filter, part by part, as long as there is time."""
        parts = list(self._parts())
        end = time.thread_time() + self._limits.count_s
        for number, (tables, within) in enumerate(parts):
            sql = f"SELECT {wanted} FROM {tables.sql} WHERE {within.sql} AND {self._where.sql}"
            values = (*tables.values, *within.values, *self._where.values)
            yield self._rows(Clause(sql, values)), number == len(parts) - 1
            if time.thread_time() > end:
                return

    def _parts(self) -> Iterator[tuple[Clause, Clause]]:
        """All candidates, in parts short enough to stop between two."""
        listed = self._few if self._few is not None else self._heard
        if listed is not None:
            for start in range(0, max(1, len(listed)), self._limits.slice):
                yield _table(listed[start : start + self._limits.slice]), Clause("1")
            return
        for low, high in ((1, FAILED), (FAILED + 1, 2 * FAILED)):
            asked = "SELECT {}(number) FROM rollout WHERE number BETWEEN ? AND ?"  # both at once would read them all
            first, last = (self._rows(Clause(asked.format(end), (low, high)))[0][0] for end in ("min", "max"))
            for start in range(first or 1, (last or 0) + 1, self._limits.slice):
                yield _ALL, Clause("r.number BETWEEN ? AND ?", (start, min(start + self._limits.slice - 1, last)))


def _table(numbers: Sequence[int]) -> Clause:
    """Candidates as a table."""
    return Clause(_IN_LIST, _told(numbers))


def _told(numbers: Sequence[int]) -> tuple[str]:
    return (orjson.dumps(list(numbers)).decode(),)
