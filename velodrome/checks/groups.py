"""What is remembered of each task: how its repeats were scored, and whether they say the same.

Of more than a hundred thousand tasks some are remembered, chosen by a hash of their id, so that the order of rows makes
no difference; the others are only counted as rollouts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from hashlib import blake2b
from typing import Any

import orjson

import velodrome.checks.thresholds as at
from velodrome.checks.facts import Facts
from velodrome.records.rollout import OWN_FIELDS

Json = dict[str, Any]

_NOT_THE_TASK = frozenset((*OWN_FIELDS, "responses_create_params", "reward", "id", "task_id", "agent_ref"))


class Group:
    """The repeats of one task."""

    __slots__ = ("_others", "_said", "_same", "content", "high", "line", "long", "low", "scored", "tries")

    def __init__(self, line: int) -> None:
        self.line = line
        self.tries = self.scored = self.long = 0
        self.low = self.high = 0.0
        self.content: tuple[int, int] | None = None  # the lowest repeat's number, and a hash of its task
        self._said = self._same = 0  # what the first one says, and how many say that
        self._others: array[int] | None = None  # what each of the others says, eight bytes each

    def say(self, said: int) -> None:
        """Remember what one repeat says, if that is long enough to be compared."""
        self.long += 1
        if self.long == 1:
            self._said = said
        if said == self._said:
            self._same += 1
        elif self._others is None:
            self._others = array("q", (said,))
        else:
            self._others.append(said)

    @property
    def same(self) -> int:
        """How many repeats say one and the same, of what most of them say."""
        return max(self._same, *Counter(self._others).values()) if self._others else self._same


class Groups:
    """All tasks that are remembered, by the hash of their id."""

    def __init__(self, *, compared: bool = True) -> None:
        self.compared = compared  # whether tasks are told apart by more than their id
        self.tasks: dict[int, Group] = {}
        self._below = 1 << 64  # tasks whose hash is smaller are remembered

    @property
    def some(self) -> str:
        """What a message says where not all tasks are remembered."""
        return " (of those looked at, chosen by their id)" if self._below < 1 << 64 else ""

    def add(self, one: Facts, row: Json) -> None:
        """Count one repeat."""
        if one.task >= self._below:
            return
        group = self.tasks.get(one.task)
        if group is None:
            group = self.tasks[one.task] = Group(one.line)
            if len(self.tasks) > at.MOST_TASKS:
                self._halve()
        if self.compared and one.flaw is None and (group.content is None or one.repeat <= group.content[0]):
            _compare(group, row, one.repeat)
        group.tries += 1
        if one.length >= at.SAME_LENGTH:
            group.say(one.said)
        reward = one.reward
        if reward is not None:
            if not group.scored:
                group.low = group.high = reward
            elif reward < group.low:
                group.low = reward
            elif reward > group.high:
                group.high = reward
            group.scored += 1

    def _halve(self) -> None:
        while len(self.tasks) > at.MOST_TASKS:
            self._below >>= 1
            self.tasks = {task: group for task, group in self.tasks.items() if task < self._below}

    def copies(self) -> list[int]:
        """The lines of tasks that were there under another id: nothing but their id differs."""
        known: set[int] = set()
        lines = []
        for group in sorted(self.tasks.values(), key=lambda group: group.line):
            if group.content is not None:
                if group.content[1] in known:
                    lines.append(group.line)
                known.add(group.content[1])
        return lines


def _compare(group: Group, row: Json, repeat: int) -> None:
    """Remember what a task is, by its lowest repeat; if that is there twice, by the smaller hash."""
    params = row["responses_create_params"]
    scored = row["meta"].get("scored") or ()
    try:
        task = [value for name, value in row.items() if name not in _NOT_THE_TASK and name not in scored]
        text = orjson.dumps([params.get("instructions"), params["input"], task])
    except TypeError:
        return  # not JSON, as only a row that was never in a file can be
    content = (repeat, int.from_bytes(blake2b(text, digest_size=8).digest(), "big"))
    group.content = content if group.content is None else min(group.content, content)
