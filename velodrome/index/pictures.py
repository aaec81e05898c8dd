"""What the pictures of a run show: rollouts in groups, each with a filter that lists just these rollouts.

Groups of a column are a few vector operations. The filter of a group and its count come from the same numbers, so that
a bar and the list behind it cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velodrome.index.columns import PASS_REWARD, Column, Columns, Mask

Numbers = NDArray[np.float64]
Bounds = tuple[float | None, float | None]  # from the first, up to the second

SCORED = "-reward:none"
_FEW = 12  # different numbers: each is a group of its own
_LATEST_S = 1e11
_FIRST_WIDTH_S = 0.125
_UNTYPED = re.compile(r'[\s"<>=!:\\]|^-')


@dataclass(frozen=True, slots=True)
class Group:
    """Rollouts that belong together: `where` lists them. `value` is what they share, or between which bounds it is."""

    value: Any
    where: str
    count: int
    mean: float | None = None  # of their rewards
    error: float | None = None  # of that mean, if rollouts had nothing to do with each other


@dataclass(frozen=True, slots=True)
class TaskRewards:
    """The rewards of some rollouts by task: the mean of each task and how many rollouts it is of."""

    count: int
    mean: float | None
    values: Numbers
    weights: Numbers
    share_of: tuple[float, float] | None  # the two rewards there are, if there are no others

    @property
    def mean_of_tasks(self) -> float | None:
        """The mean if every task counts alike."""
        return float(self.values.mean()) if len(self.values) else None


@dataclass(frozen=True, slots=True)
class RewardPictures:
    """Rewards: how they are distributed, their course over time, by length, and by task."""

    rewards: list[Group]
    course: list[Group]
    length: str  # the field that tells how long an answer is
    lengths: list[Group]
    cells: list[tuple[int, int, Group]]  # place of the length, place of the reward, how many
    tasks: TaskRewards
    attempts: list[tuple[int, int, int]] = field(default_factory=list)  # tries, passed, how many tasks
    keyless: int = 0  # scored rollouts that belong to no task


def named(name: str) -> str:
    """The name of a field as a filter has it."""
    return _UNTYPED.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", name)


def quoted(text: str) -> str:
    """A text as a filter has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def plain(number: float) -> str:
    """A number as a filter has it, exactly."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(float(number))


def within(name: str, bounds: Bounds) -> str:
    """The term of a filter for numbers from the first bound up to the second."""
    low, high = bounds
    if low is None:
        return f"-{named(name)}:none" if high is None else f"{named(name)}<{plain(high)}"
    if high is None:
        return f"{named(name)}>={plain(low)}"
    return f"{plain(low)}<={named(name)}<{plain(high)}"


def cut(name: str, column: Column, *, most: int = 8) -> tuple[list[tuple[Any, str]], Column]:
    """Parts of a column: the value or the bounds of each with its filter, and the part of every row (-1: none).

    A few different numbers are parts of their own; many are cut where about as many rollouts are on each side.
    """
    known = ~np.isnan(column)
    values = column[known]
    places = np.full(len(column), -1, np.int64)
    if not len(values):
        return [], places
    distinct = np.unique(values[:: max(1, len(values) // 4096)])
    distinct = np.unique(values) if len(distinct) <= _FEW else distinct
    if len(distinct) <= _FEW:
        places[known] = np.searchsorted(distinct, values)
        return [(each, f"{named(name)}={plain(each)}") for each in distinct.tolist()], places
    edges = np.unique([_rounded(each) for each in np.quantile(values, np.arange(1, most) / most).tolist()])
    edges = edges[(edges > values.min()) & (edges <= values.max())]
    places[known] = np.searchsorted(edges, values, side="right")
    ends: list[float | None] = [None, *edges.tolist(), None]
    bounds = list(zip(ends, ends[1:], strict=False))
    return [(each, within(name, each)) for each in bounds], places


def _rounded(number: float) -> float:
    """To two digits."""
    return float(f"{number:.2g}")


def groups_of(columns: Columns, parts: Sequence[tuple[Any, str]], places: Column, only: str = "") -> list[Group]:
    """The groups of a column that was cut, with the rewards of each; empty ones are left out."""
    reward = columns["reward"]
    inside = places >= 0
    at, rewards = places[inside], reward[inside]
    known = ~np.isnan(rewards)
    counts = np.bincount(at, minlength=len(parts))
    scored = np.bincount(at[known], minlength=len(parts))
    sums = np.bincount(at[known], rewards[known], minlength=len(parts))
    squares = np.bincount(at[known], rewards[known] ** 2, minlength=len(parts))
    groups = []
    for place, (value, where) in enumerate(parts):
        if counts[place]:
            n = int(scored[place])
            mean = float(sums[place] / n) if n else None
            spread = max(float(squares[place]) / n - (mean or 0.0) ** 2, 0.0) if n else 0.0
            error = (spread / (n - 1)) ** 0.5 if n > 1 else None
            groups.append(Group(value, f"{only} {where}".strip(), int(counts[place]), mean, error))
    return groups


def over_time(columns: Columns, allowed: Mask, only: str, most: int) -> tuple[list[tuple[Bounds, str]], Column]:
    """Stretches of time in which these finished, and the stretch of every row (-1: none). Quiet times have none."""
    finished = columns["finished_at"]
    chosen = allowed & (finished >= 0) & (finished < _LATEST_S)
    places = np.full(len(finished), -1, np.int64)
    width = _FIRST_WIDTH_S
    times, at = np.unique((finished[chosen] // width).astype(np.int64), return_inverse=True)
    while len(times) > most:
        width *= 2
        times, halved = np.unique(times // 2, return_inverse=True)
        at = halved[at]
    places[chosen] = at
    bounds = [(each * width, (each + 1) * width) for each in times.tolist()]
    return [(each, f"{only} {within('finished_at', each)}".strip()) for each in bounds], places


def task_rewards(columns: Columns, allowed: Mask) -> TaskRewards:
    """The rewards of these rollouts by task."""
    rewards = columns["reward"][allowed]
    if not len(rewards):
        return TaskRewards(0, None, np.zeros(0), np.zeros(0), None)
    tasks = columns["task"][allowed]
    weights = np.bincount(tasks).astype(float)
    tried = weights > 0
    values = np.bincount(tasks, rewards)[tried] / weights[tried]
    low, high = float(rewards.min()), float(rewards.max())
    share_of = (low, high) if low < high and bool(((rewards == low) | (rewards == high)).all()) else None
    if low == high and low in (0.0, 1.0):  # it could have been the other
        share_of = (0.0, 1.0)
    return TaskRewards(len(rewards), float(rewards.mean()), values, weights[tried], share_of)


def reward_pictures(columns: Columns, *, most: int = 60) -> RewardPictures:
    """Everything about rewards."""
    reward = columns["reward"]
    scored = ~np.isnan(reward)
    parts, places = cut("reward", reward, most=10)
    stretches, when = over_time(columns, scored, SCORED, most)
    length = "output_tokens" if not np.isnan(columns["output_tokens"]).all() else "length"
    lengths, long = cut(length, np.where(scored, columns[length], np.nan))
    lengths = [(value, f"{where} {SCORED}") for value, where in lengths]
    return RewardPictures(
        rewards=groups_of(columns, parts, places),
        course=groups_of(columns, stretches, when),
        length=length,
        lengths=groups_of(columns, lengths, long),
        cells=_cells(lengths, long, parts, places),
        tasks=task_rewards(columns, scored),
        attempts=_attempts(columns, scored),
        keyless=int((scored & np.isnan(columns["repeat"])).sum()),
    )


def _cells(
    across: Sequence[tuple[Any, str]], x: Column, upward: Sequence[tuple[Any, str]], y: Column
) -> list[tuple[int, int, Group]]:
    """How many are in each part of both columns."""
    both = (x >= 0) & (y >= 0)
    counts = np.bincount(x[both] * len(upward) + y[both], minlength=len(across) * len(upward))
    cells = []
    for place in np.flatnonzero(counts).tolist():
        at, up = divmod(place, len(upward))
        where = f"{across[at][1].removesuffix(SCORED)}{upward[up][1]}"
        cells.append((at, up, Group((across[at][0], upward[up][0]), where, int(counts[place]))))
    return cells


def _attempts(columns: Columns, scored: Mask) -> list[tuple[int, int, int]]:
    """How many tasks were tried so often and passed so often. A rollout without a key belongs to no task."""
    chosen = scored & ~np.isnan(columns["repeat"])
    tasks, rewards = columns["task"][chosen], columns["reward"][chosen]
    tries = np.bincount(tasks)
    passed = np.bincount(tasks, rewards >= PASS_REWARD).astype(np.int64)
    pairs, counts = np.unique(np.stack([tries, passed], 1)[tries > 0], axis=0, return_counts=True)
    return [(n, right, many) for (n, right), many in zip(pairs.tolist(), counts.tolist(), strict=True)]
