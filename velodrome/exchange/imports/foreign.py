"""A format to import: converts lines to rollouts or to tasks.

A format is one module with one `FORMAT`, named in `importing.FOREIGN_FORMATS`. A mistake in a line is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.contracts import Json
from velodrome.records.rollout import SCHEMA

Convert = Callable[[Any, int], Iterable[Json]]  # a line's value and number -> rollouts
NamedTask = Callable[
    [Any, int], tuple[str, Json]
]  # a line's value and number -> a unique name of the task, and the task


@dataclass(frozen=True)
class ForeignFormat:
    """One format. `rollouts` makes a new converter for an agent's name and a file; it may keep state across lines."""

    name: str
    about: str
    rollouts: Callable[[str | None, Path], Convert]
    tasks: Callable[[Path], NamedTask]


def new_meta(task: str, repeat: int, *, task_index: int, agent: str | None) -> Json:
    """The `meta` of an imported rollout."""
    agent_field = {} if agent is None else {"agent": agent}
    return {
        "key": f"{task}/{repeat}",
        "task_index": task_index,
        "rollout_index": repeat,
        **agent_field,
        "schema": SCHEMA,
    }
