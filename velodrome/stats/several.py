"""Several runs side by side: each number with its interval, the best run, and the tasks with the largest differences.

Only the tasks of all runs are counted, with equal weights, as in a comparison of two. If these are less than half of
the smallest run, each run counts all its tasks, and a note reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from velodrome.stats.compare import add_prompts, compared, measures
from velodrome.stats.exact import mean_of
from velodrome.stats.group import Measure, MetricsSettings, RolloutGroup
from velodrome.stats.groups import read_run
from velodrome.stats.intervals import Interval, mean_interval
from velodrome.stats.metrics import largest_k, sizes
from velodrome.timing.figures import counted

Json = dict[str, Any]

MOST_TASKS = 1_000  # in the list
MOST_FIELDS = 60
_RATES = ("pass@", "pass^", "majority@")


def compare_several(paths: Sequence[Path], settings: MetricsSettings | None = None) -> Json:
    """Compare runs, one file each."""
    settings = settings or MetricsSettings()
    readings = [read_run([path], settings) for path in paths]
    groups = [reading.run for reading in readings]
    shared = [task for task in groups[0].tasks if all(task in group.tasks for group in groups[1:])]
    smallest = min(len(group.tasks) for group in groups)
    paired = 0 < smallest <= 2 * len(shared)
    places = [[group.tasks[task] for task in shared] for group in groups] if paired else None
    ks = sizes(min(largest_k(group.tried) for group in groups))
    tasks, differ = _tasks(groups, shared)
    add_prompts(tasks, paths)
    notes = [] if paired else [f"only {counted(len(shared), 'task')} in all runs: each run counts all of its own tasks"]
    for at, reading in enumerate(readings, 1):
        notes += [f"run {at}: {note}" for note in reading.notes[:5]]
    return {
        "level": settings.level,
        "pass_at": settings.pass_at,
        "paired": paired,
        "shared": len(shared),
        "runs": [
            {"rollouts": reading.run.rows, "tasks": len(reading.run.tasks), "failed": len(reading.result.failed)}
            for reading in readings
        ],
        "fields": [
            _field(name, each, places, settings.level) for name, each in islice(measures(groups, ks), MOST_FIELDS)
        ],
        "tasks": tasks,
        "differ": differ,
        "notes": notes,
    }


def _field(name: str, measures: list[Measure | None], places: list[list[int]] | None, level: float) -> Json:
    """One number of every run. There is a best run only where more is better: rewards and rates."""
    columns = [None if places is None else places[at] for at in range(len(measures))]
    values = [_values(measure, column) for measure, column in zip(measures, columns, strict=True)]
    means = [
        None
        if measure is None or not task_values
        else measure.mean
        if places is None
        else mean_of(list(task_values.values()))
        for measure, task_values in zip(measures, values, strict=True)
    ]
    finite_means = [mean if mean is not None and isfinite(mean) else None for mean in means]
    entry: Json = {"name": name, "best": None, "runs": []}
    valid_means = [mean for mean in finite_means if mean is not None]
    if (name == "reward" or name.startswith(_RATES)) and len(valid_means) > 1 and max(valid_means) > min(valid_means):
        entry["best"] = finite_means.index(max(valid_means))
    best = entry["best"]
    for at, mean in enumerate(finite_means):
        low, high = _within(measures[at], values[at], level, paired=places is not None) or (None, None)
        alike = False  # whether the difference from the best run may be chance
        if best is not None and at != best and mean is not None and places is not None:
            pairs = list(zip(places[best], places[at], strict=True))
            difference = compared(name, measures[best], measures[at], pairs, level)
            alike = difference["low"] is None or difference["low"] <= 0 <= difference["high"]
        entry["runs"].append({"mean": mean, "low": low, "high": high, "alike": alike})
    return entry


def _values(measure: Measure | None, places: list[int] | None) -> dict[int, float]:
    """The value of each task, by its place among the shared tasks."""
    if measure is None or places is None:
        return dict(measure.values) if measure is not None else {}
    return {at: measure.values[place] for at, place in enumerate(places) if place in measure.values}


def _within(measure: Measure | None, values: dict[int, float], level: float, *, paired: bool) -> Interval | None:
    if measure is None:
        return None
    if not paired:
        return measure.interval(level)
    task_values = list(values.values())
    interval = mean_interval(
        task_values, [1] * len(task_values), level, share_of=measure.share_of, within=measure.within
    )
    return interval if interval is not None and all(map(isfinite, interval)) else None


def _tasks(groups: Sequence[RolloutGroup], shared: Sequence[str]) -> tuple[list[Json], int]:
    """The tasks with the largest differences in pass rate, and the number of tasks with any."""
    rows: list[Json] = []
    for task in shared:
        places = [group.tasks[task] for group in groups]
        tried = [group.tried[place] for group, place in zip(groups, places, strict=True)]
        if not all(tried):
            continue
        rates = [group.passed[place] / n for group, place, n in zip(groups, places, tried, strict=True)]
        if max(rates) > min(rates):
            rows.append({"task": task, "rates": rates, "tried": tried, "prompt": ""})
    rows.sort(key=lambda row: (min(row["rates"]) - max(row["rates"]), row["task"]))
    return rows[:MOST_TASKS], len(rows)
