"""What is remembered of each task: how its repeats were scored, and whether they say the same.

Of more than a hundred thousand tasks some are remembered, chosen by a hash of their id, so that the order of rows makes
no difference; the others are only counted as rollouts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from hashlib import blake2b

import orjson

import velodrome.checks.thresholds as at
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import OWN_FIELDS

_NOT_THE_TASK = frozenset((*OWN_FIELDS, "responses_create_params", "reward", "id", "task_id", "agent_ref"))
_TOLD_BY = 200  # characters at the end of a text; with the length of all of them they tell conversations apart


class TaskRepeats:
    """The repeats of one task."""

    __slots__ = ("_others", "_said", "_same", "content", "high", "line", "long", "low", "scored", "tries")

    def __init__(self, line: int) -> None:
        self.line = line
        self.tries = self.scored = self.long = 0
        self.low = self.high = 0.0
        self.content: tuple[int, int] | None = None  # the lowest repeat's number, and a hash of its task
        self._said = self._same = 0  # what the first one says, and how many say that
        self._others: array[int] | None = None  # what each of the others says, eight bytes each

    def add(self, one: RowFacts) -> None:
        """Count one repeat."""
        self.tries += 1
        length = sum(map(len, one.written))
        if length >= at.SAME_LENGTH:
            self._say(hash((length, *[text[-_TOLD_BY:] for text in one.written])))
        reward = one.reward
        if reward is not None and abs(reward) < at.LARGEST:
            self.low = min(self.low, reward) if self.scored else reward
            self.high = max(self.high, reward) if self.scored else reward
            self.scored += 1

    def _say(self, said: int) -> None:
        """Remember what one repeat says."""
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


class TaskMemory:
    """All tasks that are remembered, by the hash of their id."""

    def __init__(self) -> None:
        self.compared = True  # whether tasks are told apart by more than their id
        self.tasks: dict[int, TaskRepeats] = {}
        self._below = 1 << 64  # tasks whose hash is smaller are remembered

    @property
    def some(self) -> str:
        """What a message says where not all tasks are remembered."""
        return " (of those looked at, chosen by their id)" if self._below < 1 << 64 else ""

    def add(self, one: RowFacts, line: int) -> None:
        """Count one repeat of a task."""
        place = _hashed((one.task or "").encode("utf-8", "surrogatepass"))
        if place >= self._below:
            return
        task = self.tasks.get(place)
        if task is None:
            task = self.tasks[place] = TaskRepeats(line)
            while len(self.tasks) > at.MOST_TASKS:
                self._below >>= 1
                self.tasks = {known: each for known, each in self.tasks.items() if known < self._below}
        if self.compared and (task.content is None or one.repeat <= task.content[0]):
            _compare(task, one)
        task.add(one)

    def copies(self) -> list[int]:
        """The lines of tasks that were there under another id: nothing but their id differs."""
        known: set[int] = set()
        lines = []
        for task in sorted(self.tasks.values(), key=lambda task: task.line):
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
    found = (one.repeat, _hashed(content))
    task.content = found if task.content is None else min(task.content, found)


def _hashed(data: bytes) -> int:
    """The same in every process."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
