"""What is remembered of each task: how its repeats were scored, and whether they say the same.

The first hundred thousand tasks are remembered, the rest only counted as rollouts.
"""

from __future__ import annotations

from typing import Any

import orjson

import velodrome.read.checks.thresholds as at
from velodrome.read.checks.facts import Facts
from velodrome.records.rollout import OWN_FIELDS

Json = dict[str, Any]

_NOT_THE_TASK = frozenset((*OWN_FIELDS, "responses_create_params", "reward", "id", "task_id", "agent_ref"))


class Group:
    """The repeats of one task. `same` counts those that say what the first one said."""

    __slots__ = ("high", "length", "line", "low", "said", "same", "scored", "tries")

    def __init__(self, one: Facts) -> None:
        self.line = one.line
        self.said = one.said
        self.length = one.length
        self.tries = self.same = self.scored = 0
        self.low = self.high = 0.0


class Groups:
    """All tasks that are remembered, by the hash of their id."""

    def __init__(self, *, compared: bool = True) -> None:
        self.compared = compared  # whether tasks are told apart by more than their id
        self.tasks: dict[int, Group] = {}
        self.full = False
        self.duplicates: list[int] = []  # lines of the first few
        self.duplicated = 0
        self._prompts: set[int] = set()

    def add(self, one: Facts, row: Json) -> None:
        """Count one repeat."""
        group = self.tasks.get(one.task)
        if group is None:
            if self.full:
                return
            group = self.tasks[one.task] = Group(one)
            self.full = len(self.tasks) >= at.MOST_TASKS
            if self.compared and one.flaw is None:
                self._compare(row, one.line)
        group.tries += 1
        if one.said == group.said:
            group.same += 1
        reward = one.reward
        if reward is not None:
            if not group.scored:
                group.low = group.high = reward
            elif reward < group.low:
                group.low = reward
            elif reward > group.high:
                group.high = reward
            group.scored += 1

    def _compare(self, row: Json, line: int) -> None:
        """Whether a task is one that was there under another id: nothing but its id differs."""
        params = row["responses_create_params"]
        scored = row["meta"].get("scored") or ()
        try:
            task = [value for name, value in row.items() if name not in _NOT_THE_TASK and name not in scored]
            prompt = hash(orjson.dumps([params.get("instructions"), params["input"], task]))
        except TypeError:
            return  # not JSON, as only a row that was never in a file can be
        if prompt in self._prompts:
            self.duplicated += 1
            if len(self.duplicates) < at.EXAMPLES:
                self.duplicates.append(line)
        else:
            self._prompts.add(prompt)
