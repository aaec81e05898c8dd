"""Skips the remaining repeats of tasks that are decided (`stop_task_when`).

`solved`: a rollout of the task has reward 1.0 or more. `settled`: two of its rollouts have different rewards, so a
policy can learn from the group. Repeats run in rounds, all tasks once, then again: when the next repeat of a task
starts, most earlier ones have a reward.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from typing import Literal

from velodrome.collector.plan import SKIPPED, Job, Plan, Planned
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.rollout import key_in
from velodrome.records.task import hashed

StopRule = Literal["solved", "settled"]

_SOLVED = 1.0


class UndecidedJobs(Planned):
    """The jobs of undecided tasks; jobs of decided tasks are marked as skipped."""

    def __init__(self, jobs: Iterator[Job], plan: Plan, rule: StopRule, output: Path | None) -> None:
        super().__init__(jobs)
        self._plan = plan
        self._rule = rule
        self._first_rewards = array("d", [nan]) * plan.tasks  # by task
        self._decided = bytearray(plan.tasks)
        if output is not None and plan.kept:
            self._read_rewards(output)

    @property
    def ended(self) -> bool:
        """Whether there are no more jobs."""
        while not super().ended and self._next is not None and self._decided[self._next.task_index]:
            self._plan.done[self._next.place] = SKIPPED
            self._next = None
        return super().ended

    def decide(self, place: int, reward: float | None) -> None:
        """Note the reward of a kept rollout: it may decide its task."""
        if reward is not None:
            self._add_reward(place // self._plan.repeats, reward)

    def _add_reward(self, task: int, reward: float) -> None:
        first_reward = self._first_rewards[task]
        if self._rule == "solved":
            self._decided[task] |= reward >= _SOLVED
        elif isnan(first_reward):
            self._first_rewards[task] = reward
        else:
            self._decided[task] |= reward != first_reward

    def _read_rewards(self, output: Path) -> None:
        """Note the rewards of earlier runs."""
        names, rewards = array("Q"), array("d")
        for _, line in read_lines(output, lost=lambda _: None):
            key = key_in(line)
            reward = None if key is None else loads(line).get("reward")
            if key is not None and isinstance(reward, int | float):
                names.append(hashed(key.rpartition("/")[0]))
                rewards.append(reward)
        for task, reward in zip(self._plan.indices(names).tolist(), rewards, strict=True):
            if task >= 0:
                self._add_reward(task, reward)
