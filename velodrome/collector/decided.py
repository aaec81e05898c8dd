"""Tasks whose remaining repeats would tell nothing new, so they are not started (`stop_task_when`).

`solved`: a rollout of the task has reward 1.0 or more. `settled`: two of its rollouts have different rewards, so the
group has something to learn from. Repeats are run in rounds, all tasks once, then again: by the time the next repeat of
a task comes up, most earlier ones have a reward.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from math import nan
from pathlib import Path
from typing import Literal

from velodrome.collector.plan import SKIPPED, Job, Plan, Planned
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.rollout import key_in
from velodrome.records.task import hashed

StopRule = Literal["solved", "settled"]

_SOLVED = 1.0


class UndecidedJobs(Planned):
    """The jobs of tasks that are not decided yet; the others are marked as skipped."""

    def __init__(self, jobs: Iterator[Job], plan: Plan, rule: StopRule, output: Path | None) -> None:
        super().__init__(jobs)
        self._plan = plan
        self._rule = rule
        self._first = array("d", [nan]) * plan.tasks  # the first reward of each task
        self._decided = bytearray(plan.tasks)
        if output is not None and plan.kept:
            self._read(output)

    @property
    def ended(self) -> bool:
        """Whether there are no more."""
        while not super().ended and self._next is not None and self._decided[self._next.task_index]:
            self._plan.done[self._next.place] = SKIPPED
            self._next = None
        return super().ended

    def decide(self, place: int, reward: float | None) -> None:
        """A rollout is kept."""
        if reward is not None:
            self._add(place // self._plan.repeats, reward)

    def _add(self, task: int, reward: float) -> None:
        first = self._first[task]
        if self._rule == "solved":
            self._decided[task] |= reward >= _SOLVED
        elif first != first:  # nan: there is none yet
            self._first[task] = reward
        else:
            self._decided[task] |= reward != first

    def _read(self, output: Path) -> None:
        """What the rollouts of earlier runs decide."""
        names, rewards = array("Q"), array("d")
        for _, line in read_lines(output, lost=lambda _: None):
            key = key_in(line)
            reward = None if key is None else loads(line).get("reward")
            if key is not None and isinstance(reward, int | float):
                names.append(hashed(key.rpartition("/")[0]))
                rewards.append(reward)
        for task, reward in zip(self._plan.indices(names).tolist(), rewards, strict=True):
            if task >= 0:
                self._add(task, reward)
