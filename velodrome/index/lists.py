"""Lists of entries and of tasks: filtered, sorted, part by part."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np
import orjson

import velodrome.index.database as database
from velodrome.errors import InputError
from velodrome.index.answer_types import STATES, Entry, Page, Repeats, TaskCounts, TaskSummary
from velodrome.index.columns import INTEGERS, Column, Columns, Mask, Positions
from velodrome.index.conditions import all_matching, matching
from velodrome.index.fields import FIELD_NAMES, TASK_FIELDS
from velodrome.index.paging import Order, text_ranks
from velodrome.index.query import Query, Sort

_ENTRY = (
    "SELECT e.number, e.key, t.name, a.name, o.name, e.state, f.message, coalesce(p.prompt, e.prompt), e.answer,"
    " e.numbers"
    " FROM json_each(?) wanted CROSS JOIN entry e ON e.number = wanted.value"
    " LEFT JOIN entry p ON typeof(e.prompt) = 'integer' AND p.number = e.prompt LEFT JOIN task t ON t.id = e.task"
    " LEFT JOIN word a ON a.id = e.agent LEFT JOIN word o ON o.id = e.outcome"
    " LEFT JOIN failure f ON f.number = e.number"
)


def order_of(columns: Columns, sort: Sort) -> Order:
    """An order of all entries."""
    if sort.field == "number":
        return Order(sort, None, [columns["number"]])
    ties = ["task", "number"] if sort.field in TASK_FIELDS else ["number"]
    text = sort.field in columns.names.texts and sort.field not in columns.names.numbers
    column = text_ranks(columns, sort.field) if text else columns.field(sort.field, "sort")
    return Order(sort, column, [columns[name] for name in ties])


def entry_page(
    columns: Columns, query: Query, sort: Sort, *, after: str | None, before: str | None, limit: int
) -> Page[Entry]:
    """Part of the list of entries."""
    allowed, holds = matching(columns, query)
    order = order_of(columns, sort)
    rows, following, previous = order.page(allowed, after=after, before=before, limit=limit, holds=holds)
    numbers = columns["number"][rows].tolist()
    return Page(tuple(read_entries(columns.connection, numbers)), following, previous)


def neighbours(columns: Columns, query: Query, sort: Sort, row: int) -> tuple[int | None, int | None]:
    """The numbers of the entries before and after one in a list, whether it is in that list or not."""
    allowed, holds = matching(columns, query)
    order = order_of(columns, sort)
    here = order.cursor(row).encode(sort)
    sides: list[int | None] = []
    for after, before in ((None, here), (here, None)):
        rows, _, _ = order.page(allowed, after=after, before=before, limit=1, holds=holds)
        sides.append(int(columns["number"][rows[0]]) if len(rows) else None)
    return sides[0], sides[1]


def read_entries(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[Entry]:
    """These entries, in this order; one that does not exist is left out."""
    entries = []
    for row in connection.execute(_ENTRY, (orjson.dumps(numbers).decode(),)):
        number, key, task, agent, outcome, state, error, prompt, answer, stored = row
        try:
            values, extra = orjson.loads(stored)
            own = {name: value for name, value in zip(FIELD_NAMES, values, strict=True) if value is not None}
            entries.append(Entry(number, key, task, agent, STATES[state], error, prompt, answer, own | extra, outcome))
        except (ValueError, IndexError, TypeError):
            raise database.Damaged("an entry is not what was stored") from None
    return entries


def read_texts(columns: Columns, numbers: Sequence[int], names: Sequence[str]) -> dict[int, dict[str, str]]:
    """The texts that these entries have, by name; several values of one are joined. Unknown entries are left out."""
    entries = read_entries(columns.connection, numbers)
    result: dict[int, dict[str, str]] = {entry.number: {} for entry in entries}
    known = list(result)
    for name in names:
        if (values := columns.outside_texts(name)) is not None:
            own: list[list[str]] = [[] for _ in known]
            for text, those in values.items():
                for at in np.flatnonzero(np.isin(known, those)).tolist():
                    own[at].append(text)
            texts = list(map(", ".join, own))
        elif name in ("key", "task", "agent", "outcome", "error", "state"):
            texts = [getattr(entry, name) or "" for entry in entries]
        elif name == "boundary":
            texts = [(entry.error or "").partition(":")[0] for entry in entries]
        elif name in INTEGERS:
            words = dict(columns.connection.execute("SELECT id, name FROM word"))
            texts = [words[code] for code in columns[name][columns.positions(known)].tolist()]
        else:
            texts = [", ".join(each) for each in columns.texts_at(name, known)]
        for number, text in zip(known, texts, strict=True):
            if text:
                result[number][name] = text
    return result


def read_numbers(columns: Columns, numbers: Sequence[int], names: Sequence[str]) -> dict[int, dict[str, float]]:
    """Numbers of these entries, by name: also those of tasks and from outside, which are not stored with an entry."""
    rows = columns.positions(numbers)
    result: dict[int, dict[str, float]] = {number: {} for number in columns["number"][rows].tolist()}
    for name in names:
        values = columns.field(name, "cols")[rows].tolist()
        for number, value in zip(result, values, strict=True):
            if value == value:
                result[number][name] = value
    return result


def task_page(
    columns: Columns, query: Query, sort: Sort, *, after: str | None, before: str | None, limit: int
) -> Page[TaskSummary]:
    """Part of the list of tasks that have a matching rollout; `number` sorts them as they first appear in the file."""
    if sort.field not in (*TASK_FIELDS, "number"):
        raise InputError(f'sort: tasks have no "{sort.field:.60}", only {", ".join(TASK_FIELDS)} and number')
    sums = columns.tasks
    by_number = sort.field == "number"
    ties = columns.first_of_task if by_number else np.arange(len(sums["n"]))
    order = Order(sort, None if by_number else sums[sort.field], [ties])
    entries, rare = matching(columns, query)

    def counts(tasks: Positions | None = None) -> Column:
        """How many entries of each task match. A word that many have is looked up in the entries of these tasks."""
        rows = np.flatnonzero(entries) if tasks is None else np.flatnonzero(entries & _of_tasks(columns, tasks))
        rows = rows if tasks is None or rare is None else rows[rare(rows)]
        return np.bincount(columns["task"][rows], minlength=len(sums["n"]))

    holds = None if rare is None else lambda tasks: counts(tasks)[tasks] > 0
    rows, following, previous = order.page(counts() > 0, after=after, before=before, limit=limit, holds=holds)
    own = counts(rows) if query.terms else None
    tasks = [_summary(columns, row, None if own is None else int(own[row])) for row in rows.tolist()]
    return Page(tuple(tasks), following, previous)


def _of_tasks(columns: Columns, tasks: Positions) -> Mask:
    chosen = np.zeros(len(columns.tasks["n"]), bool)
    chosen[tasks] = True
    mask: Mask = chosen[columns["task"]]
    return mask


def count_tasks(columns: Columns, query: Query) -> TaskCounts:
    """How many tasks have a matching rollout, and which of them metrics do not count."""
    matched = np.unique(columns["task"][all_matching(columns, query)])
    kept, keyed = (np.zeros(len(columns.tasks["n"]), bool) for _ in range(2))
    kept[columns.tasks["n"] > 0] = True
    keyed[columns["task"][~np.isnan(columns["repeat"])]] = True
    return TaskCounts(len(matched), int((~kept & keyed)[matched].sum()), int((~keyed)[matched].sum()))


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
    """The rollouts of a task from `since` on, by repeat; None if it has none."""
    row = columns.connection.execute("SELECT id FROM task WHERE name = ?", (task,)).fetchone()
    rows = np.flatnonzero(columns["task"] == row[0]) if row else np.zeros(0, np.intp)
    if not len(rows):
        return None
    times = columns["total_s"][rows]
    known = times[~np.isnan(times)]
    repeats = columns["repeat"][rows]
    rows = rows[np.argsort(np.where(np.isnan(repeats), -1, repeats), kind="stable")][since : since + limit]
    entries = read_entries(columns.connection, columns["number"][rows].tolist())
    mean_s = round(float(known.mean()), 9) if len(known) else None
    return Repeats(_summary(columns, row[0]), mean_s, tuple(entries))
