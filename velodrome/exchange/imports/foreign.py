"""A format to import: how a line becomes rollouts, and how it becomes a task.

A format is one module with one `FORMAT`, named in `importing.FOREIGN_FORMATS`. A mistake in a line is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.contracts import Json
from velodrome.records.rollout import SCHEMA

Convert = Callable[[Any, int], Iterable[Json]]  # a line's value and number -> what it becomes
NamedTask = Callable[[Any, int], tuple[str, Json]]  # the same -> a name that only the same task has, and the task


@dataclass(frozen=True)
class ForeignFormat:
    """One format. `rollouts` makes a fresh converter for the agent to name and the file; it may count across lines."""

    name: str
    about: str
    rollouts: Callable[[str | None, Path], Convert]
    tasks: Callable[[Path], NamedTask]


def new_meta(task: str, repeat: int, *, task_index: int, agent: str | None) -> Json:
    """The bookkeeping of a rollout that is imported."""
    named = {} if agent is None else {"agent": agent}
    return {"key": f"{task}/{repeat}", "task_index": task_index, "rollout_index": repeat, **named, "schema": SCHEMA}
