"""The charts of a run's page, from the groups of its index. Every mark links to the list of its rollouts.

Rates and intervals come from `stats/`, so a chart and `velo metrics` cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from velodrome.index import Index
from velodrome.index.fields import OWN_NAMES
from velodrome.index.pictures import (
    LEVEL,
    ONE_BY_ONE,
    SCORED,
    FieldGroup,
    Group,
    RewardPictures,
    by_field,
    few_values,
    most_frequent,
    reward_pictures,
)
from velodrome.stats.exact import mean_of
from velodrome.stats.intervals import Interval, clipped, mean_interval, range_of
from velodrome.stats.metrics import largest_k, pass_at_k, sizes
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts import plots
from velodrome.viewer.parts.plots import Mark
from velodrome.viewer.parts.render import NONE, count, many, number
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_PATIENCE_S = 0.04  # for each of three answers about a large file
_ALL_THE_TIME_S = 24 * 3600.0
_FEW_VALUES = 50
_NO_GROUPS = ("reward", "number", "n", "scored", "pass_rate", "mean_reward", "finished_at", "task_index", "repeat")
_NORMAL = 1.96  # standard errors of a 95% interval
_MOST_KS = 16
_LONG_GAP = 4.0  # widths of a stretch of time


@dataclass(frozen=True, slots=True)
class PassRate:
    """pass@k, its interval, and the numbers of tasks and rollouts."""

    k: int
    rate: float
    interval: Interval | None
    tasks: int
    rollouts: int


@dataclass(frozen=True, slots=True)
class RunPictures:
    """The data of the charts of a run, except those by a field."""

    rewards: RewardPictures
    rates: list[PassRate]
    first_field: str  # the default field for the rewards by field
    ran: list[tuple[str, list[str]]]  # ("model", names), ("agent", names)
    fields: list[str]  # fields that rewards can be shown by


@dataclass(frozen=True, slots=True)
class RunCharts:
    """The charts for the template. While `waiting`, slow charts are still missing."""

    pictures: RunPictures | None = None
    rewards: list[tuple[str, str, Json]] = field(default_factory=list)  # title, subtitle, picture
    by: str = ""
    fields: list[str] = field(default_factory=list)
    rows: list[Json] = field(default_factory=list)
    problem: str = ""
    waiting: bool = False


def run_charts(source: ViewedFile, links: Links, by: str) -> RunCharts:
    """All charts of a run."""
    patience_s = _ALL_THE_TIME_S if links.static else _PATIENCE_S
    answer = source.soon("pictures", run_pictures, patience_s=patience_s)
    pictures: RunPictures | None = answer.value
    if pictures is None:
        return RunCharts(problem=answer.error or "", waiting=answer.error is None)
    by = by or pictures.first_field
    answer = source.soon(("by", by), partial(_groups, by), patience_s=patience_s)
    groups, problem = answer.value, answer.error or ""
    rewards = pictures.rewards
    charts = [
        ("Reward", "", distribution(rewards.rewards, rewards.summary.mean, links)),
        ("Reward over time", "mean, and its 95% band", course(rewards.course, links, rewards.summary.between)),
        ("pass@k", "one of k tries passes", pass_curve(pictures, links)),
    ]
    return RunCharts(
        pictures=pictures,
        rewards=[(title, about, picture) for title, about, picture in charts if picture],
        by=by,
        fields=pictures.fields,
        rows=field_rows(groups or [], links),
        problem=problem,
        waiting=groups is None and not problem,
    )


def run_pictures(index: Index) -> RunPictures:
    """The data of the charts. For a large file this takes a moment."""
    rewards = index.picture(reward_pictures)
    ran = [(kind, index.picture(partial(most_frequent, name=kind))) for kind in ("model", "agent")]
    return RunPictures(rewards, pass_rates(rewards.attempts), next(_first_choices(index)), ran, fields_to_choose(index))


def _groups(by: str, index: Index) -> list[FieldGroup]:
    return index.picture(lambda columns: by_field(columns, by))


def fields_to_choose(index: Index) -> list[str]:
    """The fields that rewards can be shown by, the fields of the file first."""
    names = index.names()
    texts = [name for name in names.texts if name not in ONE_BY_ONE]
    numbers = [name for name in names.numbers if name not in (*_NO_GROUPS, *texts)]
    names_to_choose = [*texts, *numbers]
    return sorted(names_to_choose, key=lambda name: name in (*OWN_NAMES.texts, *OWN_NAMES.numbers))


def _first_choices(index: Index) -> Iterator[str]:
    """Fields to show first: texts with a few values."""
    file_texts = [name for name in index.names().texts if name not in OWN_NAMES.texts]
    for name in (*file_texts, "tool", "model", "agent"):
        if 2 <= index.picture(partial(few_values, name=name)) <= _FEW_VALUES:
            yield name
    yield "outcome"


def pass_rates(attempts: Sequence[tuple[int, int, int]]) -> list[PassRate]:
    """pass@k for every k for which at least half of the tasks have enough rollouts."""
    most = largest_k([n for n, _, tasks in attempts for _ in range(tasks)])
    rates = []
    for k in range(1, most + 1) if most <= _MOST_KS else sizes(most):
        enough = [each for each in attempts if each[0] >= k]
        counts = [tasks for _, _, tasks in enough]
        values = np.repeat([pass_at_k(n, passed, k) for n, passed, _ in enough], counts).tolist()
        interval = mean_interval(values, [1] * len(values), LEVEL, share_of=(0.0, 1.0))
        rollouts = sum(n * tasks for n, _, tasks in enough)
        rates.append(PassRate(k, mean_of(values), interval, len(values), rollouts))
    return rates


def interval_text(interval: Interval | None, shown: Callable[[float], str] = number) -> str:
    """The ends of an interval."""
    return NONE if interval is None else f"{shown(interval[0])} to {shown(interval[1])}"


def percent(rate: float) -> str:
    """A rate with one digit."""
    return f"{rate:.1%}"


def distribution(groups: Sequence[Group], mean: float | None, links: Links) -> Json | None:
    """A bar chart of the rollouts by reward."""
    marks = [
        Mark(
            f"reward {value_text(group.value)}: {many(group.count, 'rollout')}",
            group.count,
            links.rollouts(q=group.where),
            (value_text(group.value), count(group.count)),
        )
        for group in groups
    ]
    total = sum(group.count for group in groups)
    scale = plots.scale_of([group.count for group in groups], count)
    label = f"Reward: {many(total, 'rollout')}, mean {number(mean)}"
    below = [_short_text(group.value) for group in groups]
    return plots.bars(marks, label=label, head=("reward", "rollouts"), below=below, scale=scale)


def course(groups: Sequence[Group], links: Links, between: Interval) -> Json | None:
    """A curve of the mean reward over time, with its 95% band. All rewards are `between` these two numbers."""
    marks, before = [], 0.0
    first_start = groups[0].value[0] if groups else 0.0
    for group in groups:
        start, end = group.value
        low, high = _band(group, between)
        when = f"{plots.elapsed(start - first_start)} to {plots.elapsed(end - first_start)}"
        about = "" if low is None or high is None else f", {number(low)} to {number(high)}"
        marks.append(
            Mark(
                f"{when}: mean reward {number(group.mean)}{about}, {many(group.count, 'rollout')}",
                group.mean or 0.0,
                links.rollouts(q=group.where),
                (when, count(group.count), number(group.mean), NONE if not about else about.removeprefix(", ")),
                low,
                high,
                gap=bool(before) and start - before > _LONG_GAP * (end - start),
            )
        )
        before = end
    scale = plots.scale_of([each for mark in marks for each in (mark.height, mark.low, mark.high)], number, whole=True)
    head = (plots.TIME, "rollouts", "mean reward", "95% band")
    below = [plots.elapsed(0.0), plots.elapsed(before - first_start)]
    return plots.curve(marks, label=f"Mean reward over time, {_ends(marks)}", head=head, below=below, scale=scale)


def _band(group: Group, between: Interval) -> Interval | tuple[None, None]:
    if group.mean is None or group.error is None:
        return None, None
    reach = _NORMAL * group.error
    return clipped((group.mean - reach, group.mean + reach), range_of(*between)) or (None, None)


def _ends(marks: Sequence[Mark]) -> str:
    return f"from {number(marks[0].height)} to {number(marks[-1].height)}" if marks else ""


def pass_curve(pictures: RunPictures, links: Links) -> Json | None:
    """A curve of pass@k by k; None without repeats."""
    if len(pictures.rates) < 2:
        return None
    marks = []
    for each in pictures.rates:
        where = f"scored>={each.k} {SCORED}" + (" -repeat:none" if pictures.rewards.keyless else "")
        text = interval_text(each.interval, percent)
        title = (
            f"pass@{each.k}: {percent(each.rate)}, {text}" if each.interval else f"pass@{each.k}: {percent(each.rate)}"
        )
        title += f"; {many(each.tasks, 'task')}, {many(each.rollouts, 'rollout')}"
        cells = (f"pass@{each.k}", percent(each.rate), text, count(each.tasks), count(each.rollouts))
        low, high = each.interval or (None, None)
        marks.append(Mark(title, each.rate, links.rollouts(q=where), cells, low, high))
    first, last = pictures.rates[0], pictures.rates[-1]
    label = f"pass@k from {percent(first.rate)} at k=1 to {percent(last.rate)} at k={last.k}"
    below = [str(each.k) for each in pictures.rates]
    head = ("k", "rate", "95% interval", "tasks", "rollouts")
    scale = plots.Scale(0.0, 1.0, lambda value: f"{value:.0%}")
    return plots.curve(marks, label=label, head=head, below=below, scale=scale)


def field_rows(groups: Sequence[FieldGroup], links: Links) -> list[Json]:
    """The rewards by a field: a line of numbers and a picture for each group."""
    numbers = [each for group in groups for each in (group.rewards.mean, *(group.rewards.interval or ()))]
    scale = plots.scale_of(numbers, number, whole=True)
    rows = []
    for group in groups:
        low, high = group.rewards.interval or (None, None)
        others = f"({many(group.others, 'other value')})" if group.others else "(none)"
        rows.append(
            {
                "name": others if group.value is None else value_text(group.value),
                "href": links.rollouts(q=group.where),
                "count": group.rewards.count,
                "tasks": group.rewards.tasks,
                "mean": NONE if group.rewards.mean is None else _aligned(group.rewards.mean),
                "interval": interval_text(group.rewards.interval, _aligned),
                "place": plots.whisker(group.rewards.mean, low, high, scale),
            }
        )
    return rows


def _aligned(reward: float) -> str:
    """A reward with a fixed number of digits, so that a column is aligned."""
    return f"{reward:.3f}" if abs(reward) < 1000 else number(reward)


def _short_text(value: Any) -> str:
    """The value of a group in short, for the axis."""
    if not isinstance(value, tuple):
        return value_text(value)
    low, high = value
    return f"<{number(high)}" if low is None else f"{number(low)}–" if high is not None else f"{number(low)}+"


def value_text(value: Any) -> str:
    """The value of a group, or its bounds."""
    if isinstance(value, tuple):
        low, high = value
        if low is None:
            return f"under {number(high)}"
        return f"{number(low)} and more" if high is None else f"{number(low)} to {number(high)}"
    return number(value) if isinstance(value, int | float) else str(value)
