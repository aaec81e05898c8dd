"""SQL indices: which columns have one, made after a long file is read and before a short one is."""

from __future__ import annotations

import sqlite3

from velodrome.index.query import MEASURES, TASK_FIELDS
from velodrome.index.store import transaction

_FIRST = ("key", "task", "reward", "total_s")
# A task's rollouts in the order of the file; with rewards, because what is asked of a task's rollouts, by a list that
# is sorted by tasks, is most often that: the rows themselves need not be looked up.
_WIDER = {"task": "task, number, reward"}
_LATER = (
    "tokens",
    "tools",
    "turns",
    "finished_at",
    "output_tokens",
    "length",
    "model_s",
    "repeat",
    "task_index",
    "tools_s",
)
_LAST = (*(name for name in MEASURES if name not in (*_FIRST, *_LATER)), "agent", "status")
_TASKS = (*TASK_FIELDS, "first")
_MOST_EXTRA = 16


def names(connection: sqlite3.Connection) -> frozenset[str]:
    """The indices there are."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    return frozenset(row[0] for row in rows)


def missing(connection: sqlite3.Connection, *, later: bool) -> list[str]:
    """What makes the indices that are still to come, most wanted first."""
    there = names(connection)
    wanted = {f"by_{name}": f"rollout ({_WIDER.get(name, name)})" for name in _FIRST}
    wanted |= {f"task_by_{name}": f"task ({name})" for name in _TASKS}
    if later:
        wanted |= {f"by_{name}": f"rollout ({name})" for name in (*_LATER, *_LAST)}
        wanted["by_deferred"] = "rollout (state) WHERE state = 1"
        extra = min(_MOST_EXTRA, connection.execute("SELECT count(*) FROM field").fetchone()[0])
        wanted |= {f"by_c{place}": f"rollout (c{place})" for place in range(extra)}
    return [f"CREATE INDEX IF NOT EXISTS {name} ON {what}" for name, what in wanted.items() if name not in there]


def make(connection: sqlite3.Connection, statement: str) -> None:
    """Make one of the missing."""
    with transaction(connection):
        connection.execute(statement)
