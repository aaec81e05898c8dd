"""Two runs side by side: what differs, by how much, and whether so many tasks could show it.

Tasks that both runs have are compared with themselves, and each counts alike; that is what tells a better model from
easier tasks. Nothing is called better whose interval reaches zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.rows import Unread, read_facts
from velodrome.stats.exact import mean_of
from velodrome.stats.group import Cell, MetricsSettings, RolloutGroup
from velodrome.stats.groups import RunReading, natural
from velodrome.stats.intervals import (
    FEWEST,
    FEWEST_NUMBERS,
    Interval,
    alike,
    mean_interval,
    paired_interval,
    unpaired_interval,
)
from velodrome.stats.metrics import sizes
from velodrome.timing.report import counted

Json = dict[str, Any]
Values = dict[int, float]  # of one field or rate, by the place of its task

MOST_FLIPS = 10_000
MOST_PROMPTS = 1_000
_LONGEST_PROMPT = 200


def compare(a: Sequence[Path], b: Sequence[Path], settings: MetricsSettings | None = None) -> Json:
    """What differs between run A and run B, each one file or several shards."""
    settings = settings or MetricsSettings()
    if settings.by == "task":
        raise InputError("--by task: one task is too little to compare; --flips lists the tasks that changed")
    before, after = RunReading(settings, prompts=True).read(a), RunReading(settings, prompts=True).read(b)
    ks = _ks(before.run, after.run, settings.ks)
    flips, flipped = _flips(before.run, after.run)
    _add_prompts(flips[:MOST_PROMPTS], [*b, *a])
    found: Json = {
        "files": {"a": [str(path) for path in a], "b": [str(path) for path in b]},
        "pass_at": settings.pass_at,
        "level": settings.level,
        "a": before.metrics,
        "b": after.metrics,
        **_sides(before.run, after.run, ks, settings.level),
        "flipped": flipped,
        "flips": flips,
    }
    if settings.by is not None:
        found["by"] = settings.by
        found["groups"] = [
            {"group": name, **_sides(before.groups[name], after.groups[name], ks, settings.level)}
            for name in sorted(before.groups, key=natural)
            if name in after.groups
        ]
    found["notes"] = list(_notes(before, after, found["tasks"]))
    return found


def _ks(a: RolloutGroup, b: RolloutGroup, asked: Sequence[int] | None) -> list[int]:
    """The ks that both runs have."""
    if asked is None:
        return sizes(min(a.largest_k, b.largest_k))
    return [k for k in sorted(set(asked)) if k <= min(a.most_tried, b.most_tried)]


def _sides(a: RolloutGroup, b: RolloutGroup, ks: Sequence[int], level: float) -> Json:
    both = [(place, b.tasks[task]) for task, place in a.tasks.items() if task in b.tasks]
    tasks = {"both": len(both), "only_a": len(a.tasks) - len(both), "only_b": len(b.tasks) - len(both)}
    paired = 0 < min(len(a.tasks), len(b.tasks)) <= 2 * len(both)
    fields = [_field(name, a, b, both if paired else None, level) for name in _names(a, b)]
    a_rates = {name: dict(values) for name, values in a.rates(ks)}
    b_rates = {name: dict(values) for name, values in b.rates(ks)}
    rates = [
        _rate(name, values, b_rates[name], both if paired else None, level)
        for name, values in a_rates.items()
        if name in b_rates
    ]
    first = 1 if fields and fields[0]["name"] == "reward" else 0
    fields[first:first] = rates
    return {"tasks": tasks, "fields": fields, "verdict": verdict(fields, level)}


def _names(a: RolloutGroup, b: RolloutGroup) -> list[str]:
    return sorted(a.cells.keys() | b.cells.keys(), key=lambda name: (name != "reward", name))


def _field(name: str, a: RolloutGroup, b: RolloutGroup, both: list[tuple[int, int]] | None, level: float) -> Json:
    a_cell, b_cell = a.cells.get(name), b.cells.get(name)
    if a_cell is None or b_cell is None:
        means = [None if cell is None else cell.mean for cell in (a_cell, b_cell)]
        return _entry(name, means[0], means[1], None, None, (0, 0), too_few=True)
    furthest = _furthest(name, a_cell, b_cell)
    if both is None:
        return _unpaired(name, _side(name, a_cell, level), _side(name, b_cell, level), _fewest(furthest))
    return _paired(name, a.task_means(name), b.task_means(name), both, level, furthest)


def _furthest(name: str, a: Cell, b: Cell) -> float | None:
    """How far the means can be apart, if rollouts of both runs have the same two values, as rewards of 0 and 1 are."""
    values = a.share_of(name)
    return None if values is None or values != b.share_of(name) else values[1] - values[0]


class Side(NamedTuple):
    """One run alone: its mean, the interval of that, and how many tasks it is over."""

    mean: float
    interval: Interval | None
    tasks: int


def _side(name: str, cell: Cell, level: float) -> Side:
    tasks = sum(map(bool, cell.tasks.counts))
    if cell.share_of(name) is None and cell.low == cell.high and level and tasks >= FEWEST_NUMBERS:
        return Side(cell.low, (cell.low, cell.low), tasks)  # the same in every rollout: the other run may differ
    return Side(cell.mean, cell.interval(name, level), tasks)


def _rate(name: str, a: Values, b: Values, both: list[tuple[int, int]] | None, level: float) -> Json:
    if both is not None:
        return _paired(name, a, b, both, level, 1.0)
    sides = []
    for values in (list(a.values()), list(b.values())):
        interval = mean_interval(values, [1] * len(values), level, share_of=(0.0, 1.0))
        sides.append(Side(mean_of(values), interval, len(values)))
    return _unpaired(name, sides[0], sides[1], FEWEST)


def _unpaired(name: str, a: Side, b: Side, fewest: int) -> Json:
    interval = None
    too_few = min(a.tasks, b.tasks) < fewest
    if a.interval is not None and b.interval is not None:
        interval = unpaired_interval(a.mean, a.interval, b.mean, b.interval)
        interval = interval if interval[0] < interval[1] else None
    else:
        too_few = True
    return _entry(name, a.mean, b.mean, interval, False, (a.tasks, b.tasks), too_few=too_few)


def _paired(name: str, a: Values, b: Values, both: list[tuple[int, int]], level: float, furthest: float | None) -> Json:
    pairs = [(a[left], b[right]) for left, right in both if left in a and right in b]
    if not pairs:
        return _entry(name, None, None, None, None, (0, 0), too_few=True)
    differences = [_apart(before, after) for before, after in pairs]
    interval = paired_interval(differences, level, furthest=furthest)
    before, after = mean_of([x for x, _ in pairs]), mean_of([y for _, y in pairs])
    too_few = len(pairs) < _fewest(furthest) or (interval is None and not alike(differences))
    return _entry(name, before, after, interval, True, (len(pairs), len(pairs)), too_few=too_few)


def _fewest(furthest: float | None) -> int:
    return FEWEST_NUMBERS if furthest is None else FEWEST


def _apart(before: float, after: float) -> float:
    """The difference; what only rounding makes of two equal means is none."""
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
    return {
        "name": name,
        "a": a,
        "b": b,
        "difference": difference,
        "low": low,
        "high": high,
        "paired": bool(paired),
        "tasks": min(tasks),
        "tasks_a": tasks[0],
        "tasks_b": tasks[1],
        "too_few": too_few,
    }


def verdict(fields: Sequence[Json], level: float, name: str = "reward") -> str:
    """One line: better, worse, or nothing that can be told apart from chance."""
    told = next((each for each in fields if each["name"] == name), None)
    if told is None or told["difference"] is None:
        return f"no {name} that both runs have: nothing to judge by"
    difference, low, high = told["difference"], told["low"], told["high"]
    change = f"{name} {difference:+.3g}"
    where, many = _where(told)
    better = "better" if difference > 0 else "worse"
    if not level:
        return f"{change}, {where}; whether that is chance was not asked (--ci 0)"
    if low is None and told["too_few"]:
        return f"too few tasks to tell: {change}, {where}"
    if low is None:
        if not difference:
            return f"no difference: the same mean {name} in every one of {where}"
        return f"B is {better}: {change} in every one of {where}"
    interval = f"[{low:.3g}, {high:.3g}]"
    if low <= 0 <= high:
        return f"no difference that {many} could show: {change} {interval} ({level:.0%}, {where})"
    return f"B is {better}: {change} {interval} ({level:.0%}, {where})"


def _where(told: Json) -> tuple[str, str]:
    """Which tasks were compared, and in short how many."""
    many = counted(told["tasks"], "task")
    if told["paired"]:
        return f"{many} in both runs", many
    if told["tasks_a"] == told["tasks_b"]:
        return f"{many} a run, not the same ones", many
    return f"{counted(told['tasks_a'], 'task')} in A and {told['tasks_b']:,} in B, not the same ones", "so many tasks"


def _flips(a: RolloutGroup, b: RolloutGroup) -> tuple[list[Json], Json]:
    """Tasks that pass in one run and not in the other, the widest apart first; a task passes if half its tries do."""
    flipped = {"to_pass": 0, "to_fail": 0}
    found: list[Json] = []
    for task, left in a.tasks.items():
        right = b.tasks.get(task)
        if right is None or not a.tried[left] or not b.tried[right]:
            continue
        rates = a.passed[left] / a.tried[left], b.passed[right] / b.tried[right]
        if (rates[0] >= 0.5) == (rates[1] >= 0.5):
            continue
        flipped["to_pass" if rates[1] >= 0.5 else "to_fail"] += 1
        found.append(
            {
                "task": task,
                "a_rate": rates[0],
                "b_rate": rates[1],
                "a_n": a.tried[left],
                "b_n": b.tried[right],
                "prompt": "",
            }
        )
    found.sort(key=lambda flip: (-abs(flip["b_rate"] - flip["a_rate"]), flip["task"]))
    return found[:MOST_FLIPS], flipped


def _add_prompts(flips: Sequence[Json], paths: Sequence[Path]) -> None:
    """What each task asks: a second look at the files, which ends as soon as all are found."""
    wanted = {flip["task"]: flip for flip in flips}
    for path in paths:
        if not wanted:
            return
        for facts in read_facts(path, Unread(path)):
            if facts.task in wanted:
                wanted.pop(facts.task)["prompt"] = prompt_of(facts)
            if not wanted:
                return


def prompt_of(facts: RowFacts) -> str:
    """The last thing the user asked, on one line and cut."""
    text = facts.questions[-1] if facts.questions else ""
    return " ".join(text[: 4 * _LONGEST_PROMPT].split())[:_LONGEST_PROMPT]


def _notes(a: RunReading, b: RunReading, tasks: Json) -> Iterator[str]:
    for name, reading in (("A", a), ("B", b)):
        yield from (f"{name}: {note}" for note in reading.notes)
        if reading.taken.failed:
            yield f"{name}: {counted(len(reading.taken.failed), 'rollout')} failed; failures are in no number here"
    for name, one, other in (("A", a, b), ("B", b, a)):
        if "verify_s" in other.run.cells and "total_s" in one.run.cells and "verify_s" not in one.run.cells:
            yield f"{name}: its rollouts were not verified while they ran; total_s there is without verification"
    lone = sorted(a.groups.keys() ^ b.groups.keys(), key=natural)
    if lone:
        more = f" and {len(lone) - 5} more" if len(lone) > 5 else ""
        yield f"in one run only, and not compared: {', '.join(lone[:5])}{more}"
    others = [task for task, asked in (a.asked or {}).items() if (b.asked or {}).get(task, asked) != asked]
    if others:
        tell = f"{counted(len(others), 'task')} with the same id in both runs and another prompt"
        yield f"{tell} (the first: {min(others, key=natural)}); they are paired all the same"
    apart = tasks["only_a"] + tasks["only_b"]
    if not tasks["both"]:
        yield "no task is in both runs: a difference may come from the tasks"
    elif 2 * tasks["both"] < min(len(a.run.tasks), len(b.run.tasks)):
        both = f"{counted(tasks['both'], 'task')} {'is' if tasks['both'] == 1 else 'are'}"
        yield f"only {both} in both runs: all are compared, and a difference may come from the tasks"
    elif apart:
        are, them = ("is", "it") if apart == 1 else ("are", "them")
        yield f"{counted(apart, 'task')} {are} in one run only; the differences leave {them} out"
