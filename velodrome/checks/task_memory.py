"""Statistics of each task: the rewards of its repeats, and whether their texts are equal.

At most a hundred thousand tasks are remembered. They are chosen by a hash of their id, so that the order of rows makes
no difference. The rollouts of other tasks are only counted.
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
_COMPARED = 200  # characters at the end of each text; with the total length they identify a conversation


class TaskRepeats:
    __slots__ = ("content", "high", "line", "low", "scored", "texts", "tries")

    def __init__(self, line: int) -> None:
        self.line = line
        self.tries = self.scored = 0
        self.low = self.high = 0.0
        self.content: tuple[int, int] | None = None  # the lowest repeat, and a hash of its task
        self.texts = array("q")  # a hash of each repeat's texts, if they are long enough to compare

    def add(self, facts: RowFacts) -> None:
        self.tries += 1
        length = sum(map(len, facts.written))
        if length >= at.SAME_LENGTH:
            self.texts.append(hash((length, *[text[-_COMPARED:] for text in facts.written])))
        reward = facts.reward
        if reward is not None and abs(reward) < at.LARGEST:
            self.low = min(self.low, reward) if self.scored else reward
            self.high = max(self.high, reward) if self.scored else reward
            self.scored += 1

    @property
    def same(self) -> int:
        """The number of repeats with the commonest texts."""
        return max(Counter(self.texts).values(), default=0)


class HashSample(dict[int, T]):
    """At most `most` values by 64-bit hash: the smallest hashes are kept, in any order of arrival."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.each_of = 1  # hashes per kept hash

    def takes(self, place: int) -> bool:
        return place * self.each_of < 1 << 64

    def put(self, place: int, value: T) -> None:
        if self.takes(place):
            self[place] = value
            while len(self) > self._most:
                self.each_of *= 2
                for old_place in [old_place for old_place in self if not self.takes(old_place)]:
                    del self[old_place]


class TaskMemory(HashSample[TaskRepeats]):
    """The remembered tasks, by the hash of their id."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        super().__init__(at.MOST_TASKS)
        self.compared = True  # whether the contents of tasks are compared
        self._keeps_lines = keeps_lines
        self._tasks, self._lines = array("Q"), array("Q")  # of each row: the hash of its task, and its line

    @property
    def scope(self) -> str:
        """A note for messages if not all tasks are remembered."""
        return " (of those looked at, chosen by their id)" if self.each_of > 1 else ""

    def add(self, facts: RowFacts, line: int) -> None:
        place = hashed(facts.task or "")
        if not self.takes(place):
            return
        if self._keeps_lines:
            self._tasks.append(place)
            self._lines.append(line)
        task = self.get(place)
        if task is None:
            task = TaskRepeats(line)
            self.put(place, task)
        if self.compared and (task.content is None or facts.repeat <= task.content[0]):
            _compare(task, facts)
        task.add(facts)

    def lines_of(self, first_lines: Collection[int]) -> list[int]:
        """The lines of all rollouts of the tasks whose first rollout is in these lines, if lines are kept."""
        if not self._lines:
            return []
        import numpy as np

        places = [place for place, task in self.items() if task.line in first_lines]
        chosen = np.isin(np.frombuffer(self._tasks, np.uint64), np.array(places, np.uint64))
        lines: list[int] = np.frombuffer(self._lines, np.uint64)[chosen].tolist()
        return lines

    def copies(self) -> list[int]:
        """The lines of tasks that differ from an earlier task only in their id."""
        seen_contents: set[int] = set()
        lines = []
        for task in sorted(self.values(), key=lambda task: task.line):
            if task.content is not None:
                if task.content[1] in seen_contents:
                    lines.append(task.line)
                seen_contents.add(task.content[1])
        return lines


def _compare(task: TaskRepeats, facts: RowFacts) -> None:
    """Set the content of a task from its lowest repeat; of duplicates, the smaller hash."""
    scored = facts.meta.get("scored")
    left_out = _NOT_THE_TASK.union(map(str, scored)) if type(scored) is list else _NOT_THE_TASK
    try:
        fields = [value for name, value in facts.row.items() if name not in left_out]
        content = orjson.dumps([facts.params.get("instructions"), facts.params["input"], fields])
    except (KeyError, TypeError):
        return  # no input, or not JSON: a row that was never in a file
    compared = (facts.repeat, hashed(content))
    task.content = compared if task.content is None else min(task.content, compared)
