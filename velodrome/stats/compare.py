"""Two runs side by side: what differs, by how much, and whether there are enough tasks to show it.

Tasks that both runs have are compared task by task, with equal weights. This separates a better model from easier
tasks. A difference whose interval includes zero is not called better or worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.rows import Unread, read_facts
from velodrome.stats.exact import mean_of
from velodrome.stats.group import Measure, MetricsSettings, RolloutGroup, field_order
from velodrome.stats.groups import RunReading, natural, read_run
from velodrome.stats.intervals import (
    FEWEST,
    FEWEST_NUMBERS,
    Interval,
    alike,
    clipped,
    paired_interval,
    unpaired_interval,
)
from velodrome.stats.metrics import largest_k, sizes
from velodrome.stats.run_settings import settings_that_differ
from velodrome.timing.figures import counted

Json = dict[str, Any]

MOST_FLIPS = 10_000
MOST_PROMPTS = 1_000
_LONGEST_PROMPT = 200


def compare(a: Sequence[Path], b: Sequence[Path], settings: MetricsSettings | None = None) -> Json:
    """Compare run A with run B. Each is one file or several shards."""
    settings = settings or MetricsSettings()
    if settings.by == "task":
        raise InputError("by: one task is too little to compare; flips has the tasks that changed")
    before, after = read_run(a, settings, prompts=True), read_run(b, settings, prompts=True)
    ks = _ks(before.run, after.run, settings.ks)
    flips, flipped = _flips(before.run, after.run)
    add_prompts(flips[:MOST_PROMPTS], [*b, *a])
    comparison: Json = {
        "files": {"a": [str(path) for path in a], "b": [str(path) for path in b]},
        "settings": settings_that_differ(a, b),
        "pass_at": settings.pass_at,
        "level": settings.level,
        "a": before.metrics,
        "b": after.metrics,
        **_sides(before.run, after.run, ks, settings.level),
        "flipped": flipped,
        "flips": flips,
    }
    if settings.by is not None:
        comparison["by"] = settings.by
        comparison["groups"] = [
            {"group": name, **_sides(before.groups[name], after.groups[name], ks, settings.level)}
            for name in sorted(before.groups, key=natural)
            if name in after.groups
        ]
    comparison["notes"] = list(_notes(before, after, comparison["tasks"]))
    return comparison


def _ks(a: RolloutGroup, b: RolloutGroup, requested: Sequence[int] | None) -> list[int]:
    """The ks that both runs have."""
    if requested is None:
        return sizes(min(largest_k(a.tried), largest_k(b.tried)))
    largest = min(max(a.tried, default=0), max(b.tried, default=0))
    return [k for k in sorted(set(requested)) if k <= largest]


def _sides(a: RolloutGroup, b: RolloutGroup, ks: Sequence[int], level: float) -> Json:
    both = [(place, b.tasks[task]) for task, place in a.tasks.items() if task in b.tasks]
    tasks = {"both": len(both), "only_a": len(a.tasks) - len(both), "only_b": len(b.tasks) - len(both)}
    paired = 0 < min(len(a.tasks), len(b.tasks)) <= 2 * len(both)
    pairs = both if paired else None
    fields = [compared(name, before, after, pairs, level) for name, (before, after) in measures([a, b], ks)]
    return {"tasks": tasks, "fields": fields, "verdict": verdict(fields, level)}


def measures(groups: Sequence[RolloutGroup], ks: Sequence[int]) -> Iterator[tuple[str, list[Measure | None]]]:
    """Each number with its measure in every group: the reward, the rates of all groups, then the others."""
    names = sorted({name for group in groups for name in group.cells}, key=field_order)
    rates = [dict(group.rates(ks)) for group in groups]
    of_all = [name for name in rates[0] if all(name in each for each in rates)]
    after_reward = 1 if names[:1] == ["reward"] else 0
    measured = [(name, False) for name in names]
    measured[after_reward:after_reward] = [(name, True) for name in of_all]
    for name, is_rate in measured:  # a field may have the name of a rate
        if is_rate:
            yield name, [each[name] for each in rates]
        else:
            yield name, [group.cells[name].measure(name) if name in group.cells else None for group in groups]


def compared(name: str, a: Measure | None, b: Measure | None, both: list[tuple[int, int]] | None, level: float) -> Json:
    """Compare one number of two runs: task by task for the tasks in `both`; without it, by the runs' intervals."""
    if a is None or b is None:
        return _entry(name, a and a.mean, b and b.mean, None, None, (0, 0), too_few=True)
    # the largest possible difference, if rollouts of both runs have the same two values, such as rewards of 0 and 1
    largest_difference = a.share_of[1] - a.share_of[0] if a.share_of is not None and a.share_of == b.share_of else None
    min_tasks = FEWEST_NUMBERS if largest_difference is None else FEWEST
    if both is None:
        tasks = (len(a.values), len(b.values))
        intervals = [_within(side, level) for side in (a, b)]
        if intervals[0] is None or intervals[1] is None:
            return _entry(name, a.mean, b.mean, None, False, tasks, too_few=True)
        interval = unpaired_interval(a.mean, intervals[0], b.mean, intervals[1])
        known_interval = interval if interval[0] < interval[1] else None
        return _entry(name, a.mean, b.mean, known_interval, False, tasks, too_few=min(tasks) < min_tasks)
    pairs = [
        (a.values[place_a], b.values[place_b])
        for place_a, place_b in both
        if place_a in a.values and place_b in b.values
    ]
    if not pairs:
        return _entry(name, None, None, None, None, (0, 0), too_few=True)
    differences = [_apart(before, after) for before, after in pairs]
    shares = a.within == b.within == (0.0, 1.0)
    paired = clipped(paired_interval(differences, level, furthest=largest_difference), (-1.0, 1.0) if shares else None)
    means = mean_of([before for before, _ in pairs]), mean_of([after for _, after in pairs])
    too_few = len(pairs) < min_tasks or (paired is None and not alike(differences))
    return _entry(name, *means, paired, True, (len(pairs), len(pairs)), too_few=too_few)


def _within(side: Measure, level: float) -> Interval | None:
    """The interval of one run. If all its rollouts have the same number, that number: the other run may differ."""
    if side.constant and side.share_of is None and level and len(side.values) >= FEWEST_NUMBERS:
        return side.mean, side.mean
    return side.interval(level)


def _apart(before: float, after: float) -> float:
    """The difference; 0 if the means differ only by rounding."""
    return 0.0 if isclose(before, after, rel_tol=1e-12, abs_tol=0.0) else after - before


def _entry(
    name: str,
    a: float | None,
    b: float | None,
    interval: Interval | None,
    paired: bool | None,
    tasks: tuple[int, int],
    *,
    too_few: bool,
) -> Json:
    a, b = (value if value is not None and isfinite(value) else None for value in (a, b))
    low, high = interval if interval is not None and all(map(isfinite, interval)) else (None, None)
    difference = None if paired is None or a is None or b is None else _apart(a, b)
    numbers = {"name": name, "a": a, "b": b, "difference": difference, "low": low, "high": high}
    counts = {"tasks": min(tasks), "tasks_a": tasks[0], "tasks_b": tasks[1]}
    return {**numbers, "paired": bool(paired), **counts, "too_few": too_few}


def verdict(fields: Sequence[Json], level: float, name: str = "reward") -> str:
    """One line: better, worse, or no difference beyond chance."""
    reward = next((each for each in fields if each["name"] == name), None)
    if reward is None or reward["difference"] is None:
        return f"no {name} that both runs have: nothing to judge by"
    difference, low, high = reward["difference"], reward["low"], reward["high"]
    change = f"{name} {difference:+.3g}"
    compared_tasks, task_count = _where(reward)
    better = "better" if difference > 0 else "worse"
    if not level:
        return f"{change}, {compared_tasks}; whether that is chance was not asked (--ci 0)"
    if low is None and reward["too_few"]:
        return f"too few tasks to tell: {change}, {compared_tasks}"
    if low is None:
        if not difference:
            return f"no difference: the same mean {name} in every one of {compared_tasks}"
        return f"B is {better}: {change} in every one of {compared_tasks}"
    interval = f"[{low:.3g}, {high:.3g}]"
    if low <= 0 <= high:
        return f"no difference that {task_count} could show: {change} {interval} ({level:.0%}, {compared_tasks})"
    return f"B is {better}: {change} {interval} ({level:.0%}, {compared_tasks})"


def _where(field: Json) -> tuple[str, str]:
    """Which tasks were compared, in words, and their count."""
    count = counted(field["tasks"], "task")
    if field["paired"]:
        return f"{count} in both runs", count
    if field["tasks_a"] == field["tasks_b"]:
        return f"{count} a run, not the same ones", count
    return f"{counted(field['tasks_a'], 'task')} in A and {field['tasks_b']:,} in B, not the same ones", "so many tasks"


def _flips(a: RolloutGroup, b: RolloutGroup) -> tuple[list[Json], Json]:
    """Tasks that pass in only one run, largest difference first. A task passes if at least half its tries pass."""
    flipped = {"to_pass": 0, "to_fail": 0}
    flips: list[Json] = []
    for task, place_a in a.tasks.items():
        place_b = b.tasks.get(task)
        if place_b is None or not a.tried[place_a] or not b.tried[place_b]:
            continue
        rates = a.passed[place_a] / a.tried[place_a], b.passed[place_b] / b.tried[place_b]
        if (rates[0] >= 0.5) == (rates[1] >= 0.5):
            continue
        flipped["to_pass" if rates[1] >= 0.5 else "to_fail"] += 1
        flips.append(
            {
                "task": task,
                "a_rate": rates[0],
                "b_rate": rates[1],
                "a_n": a.tried[place_a],
                "b_n": b.tried[place_b],
                "prompt": "",
            }
        )
    flips.sort(key=lambda flip: (-abs(flip["b_rate"] - flip["a_rate"]), flip["task"]))
    return flips[:MOST_FLIPS], flipped


def add_prompts(flips: Sequence[Json], paths: Sequence[Path]) -> None:
    """Add the prompt of each task. Reads the files again, until every prompt is there."""
    flip_of_task = {flip["task"]: flip for flip in flips}
    for path in paths:
        if not flip_of_task:
            return
        for facts in read_facts(path, Unread(path)):
            if facts.task in flip_of_task:
                flip_of_task.pop(facts.task)["prompt"] = prompt_of(facts)
            if not flip_of_task:
                return


def prompt_of(facts: RowFacts) -> str:
    """The user's last message, on one line, shortened."""
    text = facts.questions[-1] if facts.questions else ""
    return " ".join(text[: 4 * _LONGEST_PROMPT].split())[:_LONGEST_PROMPT]


def _notes(a: RunReading, b: RunReading, tasks: Json) -> Iterator[str]:
    for name, reading in (("A", a), ("B", b)):
        yield from (f"{name}: {note}" for note in reading.notes)
        if reading.result.failed:
            yield f"{name}: {counted(len(reading.result.failed), 'rollout')} failed; failures are in no number here"
    for name, one, other in (("A", a, b), ("B", b, a)):
        if "verify_s" in other.run.cells and "total_s" in one.run.cells and "verify_s" not in one.run.cells:
            yield f"{name}: its rollouts were not verified while they ran; total_s there is without verification"
    single_run_groups = sorted(a.groups.keys() ^ b.groups.keys(), key=natural)
    if single_run_groups:
        more = f" and {len(single_run_groups) - 5} more" if len(single_run_groups) > 5 else ""
        yield f"in one run only, and not compared: {', '.join(single_run_groups[:5])}{more}"
    changed_tasks = [task for task, prompt in a.prompts.items() if b.prompts.get(task, prompt) != prompt]
    if changed_tasks:
        many = f"{counted(len(changed_tasks), 'task')} with the same id in both runs and another prompt"
        yield f"{many} (the first: {min(changed_tasks, key=natural)}); they are paired all the same"
    unpaired = tasks["only_a"] + tasks["only_b"]
    if not tasks["both"]:
        yield "no task is in both runs: a difference may come from the tasks"
    elif 2 * tasks["both"] < min(len(a.run.tasks), len(b.run.tasks)):
        both = f"{counted(tasks['both'], 'task')} {'is' if tasks['both'] == 1 else 'are'}"
        yield f"only {both} in both runs: all are compared, and a difference may come from the tasks"
    elif unpaired:
        are, them = ("is", "it") if unpaired == 1 else ("are", "them")
        yield f"{counted(unpaired, 'task')} {are} in one run only; the differences leave {them} out"
