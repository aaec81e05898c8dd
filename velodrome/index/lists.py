"""Lists of entries and of tasks: filtered, sorted, in pages; and summaries of many entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import orjson

from velodrome.errors import InputError
from velodrome.index.answer_types import (
    STATES,
    Entry,
    FailureGroup,
    Page,
    Repeats,
    Spread,
    TaskCounts,
    TaskSummary,
)
from velodrome.index.columns import Column, Columns, Mask, Positions
from velodrome.index.conditions import matching
from velodrome.index.fields import FIELD_NAMES, TASK_FIELDS
from velodrome.index.outside import NotYet
from velodrome.index.query import Query, Sort

_MOST_GROUPS = 200
_FIRST_NUMBERS = 5
_ENTRY = (
    "SELECT e.number, e.key, t.name, a.name, o.name, e.state, f.message, e.prompt, e.answer,"
    " e.numbers"
    " FROM json_each(?) wanted CROSS JOIN entry e ON e.number = wanted.value"
    " LEFT JOIN task t ON t.id = e.task"
    " LEFT JOIN word a ON a.id = e.agent LEFT JOIN word o ON o.id = e.outcome"
    " LEFT JOIN failure f ON f.number = e.number"
)


def in_order(allowed: Mask, sort: Sort, column: Column | None, ties: Sequence[Column]) -> Positions:
    """The allowed rows sorted by a column and then by `ties`. Rows without a value come last."""
    rows = np.flatnonzero(allowed)
    sign = -1.0 if sort.descending else 1.0
    keys = [tie[rows] * sign for tie in reversed(ties)]
    if column is not None:
        values = column[rows]
        keys.append(np.where(np.isnan(values), np.inf, values * sign))
    return rows[np.lexsort(keys)]


def sorted_entries(columns: Columns, allowed: Mask, sort: Sort) -> Positions:
    """The allowed entries in order."""
    if sort.field == "number":
        return in_order(allowed, sort, None, [columns["number"]])
    ties = ["task", "number"] if sort.field in TASK_FIELDS else ["number"]
    return in_order(allowed, sort, columns.field(sort.field, "sort"), [columns[name] for name in ties])


def _part(rows: Positions, since: int, limit: int) -> tuple[Positions, int | None, int | None]:
    """Rows from offset `since`, and the offsets of the next and the previous part. Beyond the end: the first part."""
    since = since if 0 < since < len(rows) else 0
    following = since + limit if since + limit < len(rows) else None
    return rows[since : since + limit], following, max(since - limit, 0) if since else None


def entry_page(columns: Columns, query: Query, sort: Sort, *, since: int, limit: int) -> Page[Entry]:
    """Part of the list of entries."""
    all_rows = sorted_entries(columns, matching(columns, query), sort)
    rows, following, previous = _part(all_rows, since, limit)
    entries = read_entries(columns.connection, columns["number"][rows].tolist())
    return Page(tuple(entries), following, previous, len(all_rows))


def neighbours(columns: Columns, query: Query, sort: Sort, row: int) -> tuple[int | None, int | None]:
    """The numbers of the entries before and after `row` in a list. The row itself need not be in the list."""
    allowed = matching(columns, query)
    allowed[row] = True
    rows = sorted_entries(columns, allowed, sort)
    at = int(np.flatnonzero(rows == row)[0])
    numbers = [int(columns["number"][rows[place]]) if 0 <= place < len(rows) else None for place in (at - 1, at + 1)]
    return numbers[0], numbers[1]


def read_entries(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[Entry]:
    """These entries, in this order. Entries that do not exist are left out."""
    entries = []
    for row in connection.execute(_ENTRY, (orjson.dumps(numbers).decode(),)):
        number, key, task, agent, outcome, state, error, prompt, answer, stored = row
        values, extra = orjson.loads(stored)
        fields = {name: value for name, value in zip(FIELD_NAMES, values, strict=True) if value is not None}
        texts = (agent or "", STATES[state], error, prompt, answer)
        entries.append(Entry(number, key, task, *texts, fields | extra, outcome or ""))
    return entries


def read_values(columns: Columns, numbers: Sequence[int], names: Iterable[str]) -> dict[int, dict[str, str | float]]:
    """The text, or else the number, of each field, by entry. Several texts of one field are joined.

    Unknown entries are left out, and so are fields that are still being computed.
    """
    entries = read_entries(columns.connection, numbers)
    result: dict[int, dict[str, str | float]] = {entry.number: {} for entry in entries}
    places = columns.positions(list(result))
    for name in names:
        with suppress(NotYet):
            texts, values = [""] * len(entries), [np.nan] * len(entries)
            if name in columns.names.texts:
                texts = _texts(columns, name, entries, places)
            if name in columns.names.numbers:
                values = columns.field(name, "cols")[places].tolist()
            for entry_values, text, value in zip(result.values(), texts, values, strict=True):
                if text or value == value:  # not NaN
                    entry_values[name] = text or value
    return result


def _texts(columns: Columns, name: str, entries: Sequence[Entry], places: Positions) -> list[str]:
    if (values := columns.outside_texts(name)) is not None:
        entry_texts: list[list[str]] = [[] for _ in entries]
        for text, numbers in values.items():
            for at in np.flatnonzero(np.isin([entry.number for entry in entries], numbers)).tolist():
                entry_texts[at].append(text)
        return list(map(", ".join, entry_texts))
    if name in ("key", "task", "agent", "outcome", "error", "state"):
        return [getattr(entry, name) or "" for entry in entries]
    if name == "boundary":
        return [(entry.error or "").partition(":")[0] for entry in entries]
    return [", ".join(each) for each in columns.texts_at(name, places)]


def task_page(columns: Columns, query: Query, sort: Sort, *, since: int, limit: int) -> Page[TaskSummary]:
    """Part of the list of tasks with a matching rollout. Sorted by `number`, they are in the order of the file."""
    if sort.field not in (*TASK_FIELDS, "number"):
        raise InputError(f'sort: tasks have no "{sort.field:.60}", only {", ".join(TASK_FIELDS)} and number')
    sums = columns.tasks
    by_number = sort.field == "number"
    ties = columns.first_of_task if by_number else np.arange(len(sums["n"]))
    counts = np.bincount(columns["task"][matching(columns, query)], minlength=len(sums["n"]))
    all_rows = in_order(counts > 0, sort, None if by_number else sums[sort.field], [ties])
    rows, following, previous = _part(all_rows, since, limit)
    tasks = [_summary(columns, row, int(counts[row]) if query.terms else None) for row in rows.tolist()]
    return Page(tuple(tasks), following, previous, len(all_rows))


def count_tasks(columns: Columns) -> TaskCounts:
    """The number of tasks that metrics leave out."""
    listed, keyed = (np.zeros(len(columns.tasks["n"]), bool) for _ in range(2))
    listed[columns["task"]] = True
    keyed[columns["task"][~np.isnan(columns["repeat"])]] = True
    kept = columns.tasks["n"] > 0
    return TaskCounts(int((listed & keyed & ~kept).sum()), int((listed & ~keyed).sum()))


def _summary(columns: Columns, task: int, matching: int | None = None) -> TaskSummary:
    sums = {name: column[task].item() for name, column in columns.tasks.items()}
    [(name,)] = columns.connection.execute("SELECT name FROM task WHERE id = ?", (task,))
    [first] = read_entries(columns.connection, [int(columns.first_of_task[task])])
    return TaskSummary(
        task=name,
        n=sums["n"],
        failed=sums["failed"],
        scored=int(sums["scored"]),
        passed=int(sums["passed"]),
        pass_rate=sums["pass_rate"] if sums["scored"] else None,
        mean_reward=sums["mean_reward"] if sums["scored"] else None,
        prompt=first.prompt,
        matching=matching,
    )


def read_repeats(columns: Columns, task: str, *, since: int, limit: int) -> Repeats | None:
    """Rollouts of a task from offset `since`, by repeat; None if there are none."""
    row = columns.connection.execute("SELECT id FROM task WHERE name = ?", (task,)).fetchone()
    rows = np.flatnonzero(columns["task"] == row[0]) if row else np.zeros(0, np.intp)
    if not len(rows):
        return None
    times = columns["total_s"][rows]
    recorded = times[~np.isnan(times)]
    repeats = columns["repeat"][rows]
    rows = rows[np.argsort(np.where(np.isnan(repeats), -1, repeats), kind="stable")][since : since + limit]
    entries = read_entries(columns.connection, columns["number"][rows].tolist())
    mean_s = round(float(recorded.mean()), 9) if len(recorded) else None
    return Repeats(_summary(columns, row[0]), mean_s, tuple(entries))


def spread(columns: Columns, field: str) -> Spread | None:
    """The minimum, maximum and mean of a field."""
    column = columns.field(field, "field")
    values = column[~np.isnan(column)]
    return Spread(float(values.min()), float(values.max()), float(values.mean())) if len(values) else None


def failure_groups(connection: sqlite3.Connection) -> list[FailureGroup]:
    """Kinds of failures, the most frequent first."""
    kinds = connection.execute(
        "SELECT boundary, pattern, count(*) FROM failure GROUP BY boundary, pattern"
        " ORDER BY count(*) DESC, boundary, pattern LIMIT ?",
        (_MOST_GROUPS,),
    ).fetchall()
    first = "SELECT number, message FROM failure WHERE boundary = ? AND pattern = ? ORDER BY number LIMIT ?"
    groups = []
    for boundary, pattern, count in kinds:
        examples = connection.execute(first, (boundary, pattern, _FIRST_NUMBERS)).fetchall()
        groups.append(FailureGroup(boundary, pattern, count, examples[0][1], tuple(row[0] for row in examples)))
    return groups
