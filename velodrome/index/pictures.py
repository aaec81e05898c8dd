"""The data of a run's charts: rollouts in groups, each with a filter that lists exactly these rollouts.

Groups of a column are a few vector operations. The filter of a group and its count come from the same numbers, so a bar
and its list cannot differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from velodrome.errors import InputError
from velodrome.index.answer_types import FAILED
from velodrome.index.columns import PASS_REWARD, Column, Columns, Mask
from velodrome.index.query import typed
from velodrome.settings.names import hint
from velodrome.stats.intervals import Interval, mean_interval, range_of

Bounds = tuple[float | None, float | None]  # from the first (included) up to the second

LEVEL = 0.95
SCORED = "-reward:none"
ONE_BY_ONE = ("key", "task", "error", "boundary", "state")  # texts that are not grouped
_FEW = 12  # up to this many distinct numbers, each is a group
_LATEST_S = 1e11
_FIRST_WIDTH_S = 0.125
_MOST_STRETCHES, _FEW_PER_STRETCH = 60, 20  # of time: the mean of fewer rollouts is mostly noise
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_MOST_GROUPS = 12  # of a field
_LONGEST_VALUE = 120  # of a text that is a group


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rollouts; `where` lists them. `value` is their common value, or its bounds."""

    value: Any
    where: str
    count: int
    mean: float | None = None  # of their rewards
    error: float | None = None  # standard error of that mean, if rollouts are independent


@dataclass(frozen=True, slots=True)
class RewardSummary:
    """The rewards of some rollouts: their mean with its interval, and the mean with every task weighed alike."""

    count: int = 0
    tasks: int = 0
    mean: float | None = None
    mean_of_tasks: float | None = None
    interval: Interval | None = None
    between: Interval = (0.0, 1.0)  # minimum and maximum


@dataclass(frozen=True, slots=True)
class RewardPictures:
    """Rewards: how they are distributed, their course over time, and by task."""

    rewards: list[Group]
    course: list[Group]
    summary: RewardSummary
    attempts: list[tuple[int, int, int]] = field(default_factory=list)  # tries, passed, number of tasks
    keyless: int = 0  # scored rollouts that belong to no task


def named(name: str) -> str:
    """The name of a field as in a filter."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """A text as in a filter."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return typed(f'"{escaped}"')


def plain(number: float) -> str:
    """A number as in a filter, exactly."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(float(number))


def within(name: str, bounds: Bounds) -> str:
    """The filter for numbers from the first bound (included) up to the second."""
    low, high = bounds
    if low is None:
        return f"-{named(name)}:none" if high is None else f"{named(name)}<{plain(high)}"
    if high is None:
        return f"{named(name)}>={plain(low)}"
    return f"{plain(low)}<={named(name)}<{plain(high)}"


def cut(name: str, column: Column, *, most: int = 8) -> tuple[list[tuple[Any, str]], Column]:
    """Parts of a column: the value or the bounds of each with its filter, and the part of every row (-1: none).

    Each of a few distinct numbers is a part; many numbers are cut at quantiles.
    """
    present = ~np.isnan(column)
    values = column[present]
    places = np.full(len(column), -1, np.int64)
    if not len(values):
        return [], places
    distinct = np.unique(values[:: max(1, len(values) // 4096)])
    distinct = np.unique(values) if len(distinct) <= _FEW else distinct
    if len(distinct) <= _FEW:
        places[present] = np.searchsorted(distinct, values)
        return [(each, f"{named(name)}={plain(each)}") for each in distinct.tolist()], places
    edges = np.unique([_rounded(each) for each in np.quantile(values, np.arange(1, most) / most).tolist()])
    edges = edges[(edges > values.min()) & (edges <= values.max())]
    nonempty = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1) > 0
    edges = edges[nonempty[1:]]
    places[present] = np.searchsorted(edges, values, side="right")
    ends: list[float | None] = [None, *edges.tolist(), None]
    bounds = list(pairwise(ends))
    return [(each, within(name, each)) for each in bounds], places


def _rounded(number: float) -> float:
    """Rounded to two significant digits."""
    return float(f"{number:.2g}")


def groups_of(columns: Columns, parts: Sequence[tuple[Any, str]], places: Column, only: str = "") -> list[Group]:
    """The groups of a column that was cut, with the rewards of each."""
    reward = columns["reward"]
    grouped = places >= 0
    at, rewards = places[grouped], reward[grouped]
    has_reward = ~np.isnan(rewards)
    counts = np.bincount(at, minlength=len(parts))
    scored = np.bincount(at[has_reward], minlength=len(parts))
    sums = np.bincount(at[has_reward], rewards[has_reward], minlength=len(parts))
    squares = np.bincount(at[has_reward], rewards[has_reward] ** 2, minlength=len(parts))
    groups = []
    for place, (value, where) in enumerate(parts):
        n = int(scored[place])
        mean = float(sums[place] / n) if n else None
        spread = max(float(squares[place]) / n - (mean or 0.0) ** 2, 0.0) if n else 0.0
        error = (spread / (n - 1)) ** 0.5 if n > 1 else None
        groups.append(Group(value, f"{only} {where}".strip(), int(counts[place]), mean, error))
    return groups


def over_time(
    columns: Columns, allowed: Mask, only: str, most: int
) -> tuple[list[tuple[tuple[float, float], str]], Column]:
    """Stretches of time in which these rollouts finished, and the stretch of every row (-1: none)."""
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


def summary_of(columns: Columns, allowed: Mask) -> RewardSummary:
    """The rewards of these rollouts, all of which have one."""
    rewards = columns["reward"][allowed]
    if not len(rewards):
        return RewardSummary()
    tasks = columns["task"][allowed]
    weights = np.bincount(tasks).astype(float)
    tried = weights > 0
    values = np.bincount(tasks, rewards)[tried] / weights[tried]
    low, high = float(rewards.min()), float(rewards.max())
    share_of = (low, high) if low < high and bool(((rewards == low) | (rewards == high)).all()) else None
    if low == high and low in (0.0, 1.0):  # a share of 0 or 1
        share_of = (0.0, 1.0)
    # As in `velo metrics`, a task is one observation.
    interval = mean_interval(
        values.tolist(), weights[tried].tolist(), LEVEL, share_of=share_of, within=range_of(low, high)
    )
    keyed = np.zeros(len(weights), bool)  # metrics and comparisons leave out rollouts without a key
    keyed[tasks[~np.isnan(columns["repeat"][allowed])]] = True
    task_means = values[keyed[tried]]
    mean_of_tasks = float(task_means.mean()) if len(task_means) else None
    return RewardSummary(len(rewards), len(task_means), float(rewards.mean()), mean_of_tasks, interval, (low, high))


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """The scored rollouts with one value of a field, or with any other value (`value` is None)."""

    value: Any
    where: str
    rewards: RewardSummary
    others: int = 0  # the number of other values; 0: without a value


def by_field(columns: Columns, name: str) -> list[FieldGroup]:
    """The rewards by a field. For a text, the most frequent values, then one group for all others."""
    scored, names = ~np.isnan(columns["reward"]), columns.names
    if name not in (*names.texts, *names.numbers):
        raise InputError(f'by: no field "{name:.60}"{hint(name, [*names.texts, *names.numbers])}')
    if name in names.texts:
        masks = _by_text(columns, name, scored)
    else:
        parts, places = cut(name, np.where(scored, columns.field(name, "by"), np.nan))
        masks = [(value, where, places == at, 0) for at, (value, where) in enumerate(parts)]
    return [
        FieldGroup(value, f"{where} {SCORED}".strip(), summary_of(columns, mask), others)
        for value, where, mask, others in masks
    ]


def _by_text(columns: Columns, name: str, scored: Mask) -> list[tuple[str | None, str, Mask, int]]:
    """For each group: its value, its filter, its entries, and the number of values in the group of others."""
    counts, with_value = _values(columns, name, scored)
    order = sorted((text for text in counts if counts[text]), key=lambda text: (-counts[text], text))
    grouped = [text for text in order if len(text) <= _LONGEST_VALUE][:_MOST_GROUPS]
    groups: list[tuple[str | None, str, Mask, int]] = []
    rest = scored.copy()
    for text in grouped:
        mask = scored & with_value(text)
        groups.append((text, f"{named(name)}={quoted(text)}", mask, 0))
        rest &= ~mask
    if rest.any():
        where = " ".join(f"-{named(name)}={quoted(text)}" for text in grouped)
        groups.append((None, where, rest, len(order) - len(grouped)))
    return groups


def _values(columns: Columns, name: str, scored: Mask) -> tuple[dict[str, int], Callable[[str], Mask]]:
    """The counts of the values of a text among these entries, and a function: value -> its entries.

    An entry may have several values.
    """
    outside = columns.outside_texts(name)
    if outside is not None:
        counts = {text: int(scored[columns.positions(numbers)].sum()) for text, numbers in outside.items()}
        return counts, lambda text: columns.mask(outside[text])
    coded = columns.coded(name) if name not in ONE_BY_ONE else None
    if coded is None:
        raise InputError(f'by: "{name:.60}" has too many different values; choose another field')
    values, codes = coded
    codes = np.where(codes < 0, len(values), codes)
    sums = np.bincount(codes[scored], minlength=len(values) + 1).tolist()
    counts = Counter[str]()
    for texts, count in zip(values, sums, strict=False):
        counts.update({text: count for text in texts if text})
    return counts, lambda text: np.array([*(text in each for each in values), False])[codes]


def most_frequent(columns: Columns, name: str) -> list[str]:
    """The values of a text, the most frequent first; none if there are too many."""
    try:
        counts, _ = _values(columns, name, columns["number"] < FAILED)
    except InputError:
        return []
    return sorted((text for text in counts if counts[text]), key=lambda text: (-counts[text], text))


def few_values(columns: Columns, name: str) -> int:
    """The number of values of a text; 0 if there are too many for groups."""
    return len(most_frequent(columns, name))


def reward_pictures(columns: Columns) -> RewardPictures:
    """The data of all charts of rewards."""
    reward = columns["reward"]
    scored = ~np.isnan(reward)
    most = min(max(int(scored.sum()) // _FEW_PER_STRETCH, 8), _MOST_STRETCHES)
    parts, places = cut("reward", reward, most=10)
    stretches, when = over_time(columns, scored, SCORED, most)
    return RewardPictures(
        rewards=groups_of(columns, parts, places),
        course=groups_of(columns, stretches, when),
        summary=summary_of(columns, scored),
        attempts=_attempts(columns, scored),
        keyless=int((scored & np.isnan(columns["repeat"])).sum()),
    )


def _attempts(columns: Columns, scored: Mask) -> list[tuple[int, int, int]]:
    """Tuples (tries, passes, number of such tasks). Rollouts without a key are left out."""
    chosen = scored & ~np.isnan(columns["repeat"])
    tasks, rewards = columns["task"][chosen], columns["reward"][chosen]
    tries = np.bincount(tasks)
    passed = np.bincount(tasks, rewards >= PASS_REWARD).astype(np.int64)
    pairs, counts = np.unique(np.stack([tries, passed], 1)[tries > 0], axis=0, return_counts=True)
    return [(n, passes, count) for (n, passes), count in zip(pairs.tolist(), counts.tolist(), strict=True)]
