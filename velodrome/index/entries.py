"""Entries by their numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson

from velodrome.index.answers import STATES, Entry
from velodrome.index.fields import Fields
from velodrome.index.query import MEASURES

_OTHERS = "r.number, s.key, coalesce(p.prompt, s.prompt), s.answer, s.more, r.state, a.text, t.name, f.message"
_TABLES = (
    "json_each(?) wanted CROSS JOIN rollout r ON r.number = wanted.value JOIN said s ON s.number = r.number"
    " LEFT JOIN said p ON typeof(s.prompt) = 'integer' AND p.number = s.prompt LEFT JOIN word a ON a.id = r.agent"
    " LEFT JOIN task t ON t.id = r.task LEFT JOIN failure f ON f.number = r.number"
)


def read_entries(connection: sqlite3.Connection, fields: Fields, numbers: Sequence[int]) -> list[Entry]:
    """These entries, in this order; one that is not there is left out."""
    columns = [f"r.{name}" for name in (*MEASURES, *fields.extra.values())]
    names = fields.names()
    statement = f"SELECT {_OTHERS}, {', '.join(columns)} FROM {_TABLES}"
    rows = connection.execute(statement, (orjson.dumps(list(numbers)).decode(),)).fetchall()
    found = {row[0]: _entry(row, names) for row in rows}
    return [found[number] for number in numbers if number in found]


def _entry(row: tuple[Any, ...], names: list[str]) -> Entry:
    number, key, prompt, answer, more, state, agent, task, error = row[:9]
    values = dict(zip(names, row[9:], strict=True))
    numbers = {name: value for name, value in values.items() if value is not None}
    if more:
        numbers.update(orjson.loads(more))
    return Entry(
        number=number,
        key=key,
        task=task,
        repeat=values["repeat"],
        task_index=values["task_index"],
        agent=agent or "",
        state=STATES[state],
        reward=values["reward"],
        error=error,
        tokens=values["tokens"],
        tools=values["tools"],
        turns=values["turns"],
        total_s=values["total_s"],
        finished_at=values["finished_at"],
        prompt=prompt,
        answer=answer,
        numbers=numbers,
    )
