"""What is remembered of each task: how its repeats were scored, and whether they say the same.

Of more than a hundred thousand tasks some are remembered, chosen by a hash of their id, so that the order of rows makes
no difference; the others are only counted as rollouts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import TypeVar

import orjson

import velodrome.checks.thresholds as at
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import OWN_FIELDS
from velodrome.records.task import hashed

T = TypeVar("T")

_NOT_THE_TASK = frozenset((*OWN_FIELDS, "responses_create_params", "reward", "id", "task_id", "agent_ref"))
_TOLD_BY = 200  # characters at the end of a text; with the length of all of them they tell conversations apart


class TaskRepeats:
    __slots__ = ("content", "high", "line", "low", "said", "scored", "tries")

    def __init__(self, line: int) -> None:
        self.line = line
        self.tries = self.scored = 0
        self.low = self.high = 0.0
        self.content: tuple[int, int] | None = None  # the lowest repeat's number, and a hash of its task
        self.said = array("q")  # a hash of what each repeat says that is long enough to compare

    def add(self, one: RowFacts) -> None:
        self.tries += 1
        length = sum(map(len, one.written))
        if length >= at.SAME_LENGTH:
            self.said.append(hash((length, *[text[-_TOLD_BY:] for text in one.written])))
        reward = one.reward
        if reward is not None and abs(reward) < at.LARGEST:
            self.low = min(self.low, reward) if self.scored else reward
            self.high = max(self.high, reward) if self.scored else reward
            self.scored += 1

    @property
    def same(self) -> int:
        """How many repeats say one and the same, of what most of them say."""
        return max(Counter(self.said).values(), default=0)


class HashSample(dict[int, T]):
    """Values by a hash of 64 bits. Of more than `most` the smallest hashes stay, in any order of arrival."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.each_of = 1  # how many there are for each that stays

    def takes(self, place: int) -> bool:
        return place * self.each_of < 1 << 64

    def put(self, place: int, value: T) -> None:
        if self.takes(place):
            self[place] = value
            while len(self) > self._most:
                self.each_of *= 2
                for known in [known for known in self if not self.takes(known)]:
                    del self[known]


class TaskMemory(HashSample[TaskRepeats]):
    """All tasks that are remembered, by the hash of their id."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        super().__init__(at.MOST_TASKS)
        self.compared = True  # whether the contents of tasks are compared, too
        self._keeps_lines = keeps_lines
        self._tasks, self._lines = array("Q"), array("Q")  # of each row: the hash of its task, and where it is

    @property
    def some(self) -> str:
        """What a message says where not all tasks are remembered."""
        return " (of those looked at, chosen by their id)" if self.each_of > 1 else ""

    def add(self, one: RowFacts, line: int) -> None:
        place = hashed(one.task or "")
        if not self.takes(place):
            return
        if self._keeps_lines:
            self._tasks.append(place)
            self._lines.append(line)
        task = self.get(place)
        if task is None:
            task = TaskRepeats(line)
            self.put(place, task)
        if self.compared and (task.content is None or one.repeat <= task.content[0]):
            _compare(task, one)
        task.add(one)

    def lines_of(self, first_lines: Collection[int]) -> list[int]:
        """The lines of all rollouts of the tasks that begin in these lines, if lines are kept."""
        if not self._lines:
            return []
        import numpy as np

        places = [place for place, task in self.items() if task.line in first_lines]
        chosen = np.isin(np.frombuffer(self._tasks, np.uint64), np.array(places, np.uint64))
        lines: list[int] = np.frombuffer(self._lines, np.uint64)[chosen].tolist()
        return lines

    def copies(self) -> list[int]:
        """The lines of tasks that were there under another id: nothing but their id differs."""
        known: set[int] = set()
        lines = []
        for task in sorted(self.values(), key=lambda task: task.line):
            if task.content is not None:
                if task.content[1] in known:
                    lines.append(task.line)
                known.add(task.content[1])
        return lines


def _compare(task: TaskRepeats, one: RowFacts) -> None:
    """Remember what a task is, by its lowest repeat; if that is there twice, by the smaller hash."""
    scored = one.meta.get("scored")
    left_out = _NOT_THE_TASK.union(map(str, scored)) if type(scored) is list else _NOT_THE_TASK
    try:
        fields = [value for name, value in one.row.items() if name not in left_out]
        content = orjson.dumps([one.params.get("instructions"), one.params["input"], fields])
    except (KeyError, TypeError):
        return  # no task to compare, or not JSON, as only a row that was never in a file can be
    compared = (one.repeat, hashed(content))
    task.content = compared if task.content is None else min(task.content, compared)
