"""Tasks as a list: filtered by what is true of all rollouts of a task, sorted by it, page by page."""

from __future__ import annotations

import sqlite3

from velodrome.errors import InputError
from velodrome.index.answers import Repeats, Task, TaskPage
from velodrome.index.entries import read_entries
from velodrome.index.extract import hashed
from velodrome.index.fields import Fields
from velodrome.index.paging import Cursor, Order
from velodrome.index.query import TASK_FIELDS, Compared, Matched, Query, Sort, Term
from velodrome.index.select import Clause, bounds, folded, held, joined

_COLUMNS = (
    "t.name, t.n, t.failed, t.scored, t.passed, t.pass_rate, t.mean_reward, t.first, coalesce(p.prompt, s.prompt, '')"
)
_TABLES = (
    "task t LEFT JOIN said s ON s.number = t.first"
    " LEFT JOIN said p ON typeof(s.prompt) = 'integer' AND p.number = s.prompt"
)
_SHOWN = Clause("t.n + t.failed > 0")


def read_tasks(
    connection: sqlite3.Connection, query: Query, sort: Sort, *, after: str | None, before: str | None, limit: int
) -> TaskPage:
    """A stretch of the tasks; `number` sorts them as they first stand in the file."""
    if sort.field not in (*TASK_FIELDS, "number"):
        raise InputError(f'sort: tasks have no "{sort.field:.60}", only {", ".join(TASK_FIELDS)} and number')
    by_number = sort.field == "number"
    order = Order(None if by_number else f"t.{sort.field}", ("t.first" if by_number else "t.id",), sort.descending)
    text, backwards = (after, False) if before is None else (before, True)
    cursor = None if text is None else Cursor.decode(text, sort, 1)
    test = joined([_SHOWN, *(_clause(term) for term in query.terms)])
    found: list[tuple[object, ...]] = []
    for clause, by in order.stretches(cursor, backwards=backwards):
        if len(found) <= limit:
            wanted = f"{order.column or 'NULL'}, {order.ties[0]}, {_COLUMNS}"
            sql = f"SELECT {wanted} FROM {_TABLES} WHERE {clause.sql} AND {test.sql} ORDER BY {by} LIMIT ?"
            found += connection.execute(sql, (*clause.values, *test.values, limit + 1 - len(found))).fetchall()
    more, found = len(found) > limit, found[:limit]
    if backwards:
        found.reverse()
    ends = [Cursor(row[0], (row[1],)).encode(sort) for row in (found[-1:] + found[:1])]  # type: ignore[arg-type]
    has_next, has_previous = (True, more) if backwards else (more, after is not None)
    return TaskPage(
        tuple(Task(*row[2:]) for row in found),  # type: ignore[arg-type]
        ends[0] if ends and has_next else None,
        ends[1] if ends and has_previous else None,
    )


def read_repeats(connection: sqlite3.Connection, task: str, *, since: int, limit: int) -> Repeats | None:
    """The rollouts of a task from `since` on, by repeat; None if it has none."""
    wanted = hashed(task)
    sums = connection.execute(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE t.id = ? AND {_SHOWN.sql}", (wanted,)).fetchone()
    if sums is None:
        return None
    mean_s = connection.execute("SELECT round(avg(total_s), 9) FROM rollout WHERE task = ?", (wanted,)).fetchone()[0]
    asked = "SELECT number FROM rollout WHERE task = ? ORDER BY repeat, number LIMIT ? OFFSET ?"
    numbers = [row[0] for row in connection.execute(asked, (wanted, limit, since))]
    return Repeats(Task(*sums), mean_s, tuple(read_entries(connection, Fields(connection), numbers)))


def _clause(term: Term) -> Clause:
    if isinstance(term, Compared) and term.field in TASK_FIELDS:
        found = bounds(term, f"t.{term.field}")
    elif isinstance(term, Matched) and term.field == "task":
        exact = term.op != ":"
        found = (
            Clause("t.id = ?", (hashed(term.value),)) if exact else Clause(held("t.name", False), (folded(term.value),))
        )
        if term.op == "!=":
            found = Clause(f"({found.sql}) IS NOT TRUE", found.values)
    else:
        raise InputError(f"filter, at {term.at}: tasks are filtered by {', '.join(TASK_FIELDS)} and task: alone")
    return Clause(f"({found.sql}) IS NOT TRUE", found.values) if term.negated else found
