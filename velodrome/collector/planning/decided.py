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

from velodrome.collector.keys import name_hash
from velodrome.collector.plan import SKIPPED, Job, Plan, Planned
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.rollout import meta_in

StopRule = Literal["solved", "settled"]

_SOLVED = 1.0


class DecidedTasks:
    """Which tasks of a plan are decided: the first reward of each, and a byte."""

    def __init__(self, rule: StopRule, plan: Plan) -> None:
        self._rule = rule
        self._first = array("d", [nan]) * plan.tasks
        self._decided = bytearray(plan.tasks)

    def __contains__(self, task: int) -> bool:
        return bool(self._decided[task])

    def add(self, task: int, reward: float) -> None:
        """One rollout of a task has this reward."""
        first = self._first[task]
        if self._rule == "solved":
            self._decided[task] |= reward >= _SOLVED
        elif first != first:  # nan: there is none yet
            self._first[task] = reward
        else:
            self._decided[task] |= reward != first


class UndecidedJobs(Planned):
    """The jobs of tasks that are not decided yet; the others are marked as skipped."""

    def __init__(self, jobs: Iterator[Job], plan: Plan, rule: StopRule, output: Path | None) -> None:
        super().__init__(jobs)
        self._plan = plan
        self._decided = DecidedTasks(rule, plan)
        if output is not None and plan.kept:
            self._read(output)

    @property
    def ended(self) -> bool:
        """Whether there are no more."""
        while not super().ended and self._next is not None and self._next.task_index in self._decided:
            self._plan.done[self._next.place] = SKIPPED
            self._next = None
        return super().ended

    def decide(self, place: int, reward: float | None) -> None:
        """A rollout is kept."""
        if reward is not None:
            self._decided.add(place // self._plan.repeats, reward)

    def _read(self, output: Path) -> None:
        """What the rollouts of earlier runs decide."""
        import numpy as np

        names, rewards = array("Q"), array("d")
        for _, line in read_lines(output, lost=lambda _: None):
            meta = meta_in(line)
            reward = None if meta is None else loads(line).get("reward")
            if meta is not None and isinstance(reward, int | float):
                names.append(name_hash(meta["key"].rpartition("/")[0]))
                rewards.append(reward)
        own = np.frombuffer(self._plan.names, "<u8")
        order = np.argsort(own)
        places = np.searchsorted(own[order], np.frombuffer(names, "<u8"))
        for row, place in enumerate(places):
            if place < len(own) and own[order[place]] == names[row]:
                self._decided.add(int(order[place]), rewards[row])
