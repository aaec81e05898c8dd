"""Two runs side by side: what differs, by how much, and whether so many tasks could show it.

Tasks that both runs have are compared with themselves, and each counts alike; that is what tells a better model from
easier tasks. Nothing is called better whose interval reaches zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.read.group import Group, Settings
from velodrome.read.groups import Reading, natural
from velodrome.read.intervals import FEWEST, Interval, Sampling
from velodrome.read.metrics import sizes
from velodrome.read.parts import HOSTILE
from velodrome.read.unread import Unread
from velodrome.records.conversation import text_of
from velodrome.records.jsonl import read_lines
from velodrome.records.lenient import loads
from velodrome.records.rollout import key_in, split_key
from velodrome.timing.report import counted

Json = dict[str, Any]
Values = dict[int, float]  # of one field or rate, by the place of its task

MOST_FLIPS = 10_000
MOST_PROMPTS = 1_000
_LONGEST_PROMPT = 200


def compare(a: Sequence[Path], b: Sequence[Path], settings: Settings | None = None) -> Json:
    """What differs between run A and run B, each one file or several shards."""
    settings = settings or Settings()
    if settings.by == "task":
        raise InputError("--by task: one task is too little to compare; --flips lists the tasks that changed")
    before = Reading(settings, clusters=None).read(a)
    after = Reading(settings, clusters=None).read(b)
    ks = _ks(before.run, after.run, settings.ks)
    flips, flipped = _flips(before.run, after.run)
    _add_prompts(flips[:MOST_PROMPTS], [*b, *a])
    found: Json = {
        "files": {"a": [str(path) for path in a], "b": [str(path) for path in b]},
        "pass_at": settings.pass_at,
        "level": settings.sampling.level,
        "seed": settings.sampling.seed,
        "a": before.metrics,
        "b": after.metrics,
        **_sides(before.run, after.run, ks, settings.sampling),
        "flipped": flipped,
        "flips": flips,
    }
    if settings.by is not None:
        found["by"] = settings.by
        found["groups"] = [
            {"group": name, **_sides(before.groups[name], after.groups[name], ks, settings.sampling)}
            for name in sorted(before.groups, key=natural)
            if name in after.groups
        ]
    found["notes"] = list(_notes(before, after, found["tasks"]))
    return found


def _ks(a: Group, b: Group, asked: Sequence[int] | None) -> list[int]:
    """The ks that both runs have."""
    if asked is None:
        return sizes(min(a.largest_k, b.largest_k))
    return [k for k in sorted(set(asked)) if k <= min(a.most_tried, b.most_tried)]


def _sides(a: Group, b: Group, ks: Sequence[int], sampling: Sampling) -> Json:
    both = [(place, b.tasks[task]) for task, place in a.tasks.items() if task in b.tasks]
    tasks = {"both": len(both), "only_a": len(a.tasks) - len(both), "only_b": len(b.tasks) - len(both)}
    paired = 0 < min(len(a.tasks), len(b.tasks)) <= 2 * len(both)
    fields = [_field(name, a, b, both if paired else None, sampling) for name in _names(a, b)]
    a_rates = {name: dict(values) for name, values in a.rates(ks)}
    b_rates = {name: dict(values) for name, values in b.rates(ks)}
    rates = [
        _rate(name, values, b_rates[name], both if paired else None, sampling)
        for name, values in a_rates.items()
        if name in b_rates
    ]
    first = 1 if fields and fields[0]["name"] == "reward" else 0
    fields[first:first] = rates
    return {"tasks": tasks, "fields": fields, "verdict": verdict(fields, sampling.level)}


def _names(a: Group, b: Group) -> list[str]:
    return sorted(a.cells.keys() | b.cells.keys(), key=lambda name: (name != "reward", name))


def _field(name: str, a: Group, b: Group, both: list[tuple[int, int]] | None, sampling: Sampling) -> Json:
    a_cell, b_cell = a.cells.get(name), b.cells.get(name)
    if a_cell is None or b_cell is None:
        means = [None if cell is None else cell.spread.mean for cell in (a_cell, b_cell)]
        return _entry(name, means[0], means[1], None, None, (0, 0))
    if both is None:
        interval = sampling.difference((a_cell.sums, a_cell.counts), (b_cell.sums, b_cell.counts))
        tasks = (sum(map(bool, a_cell.counts)), sum(map(bool, b_cell.counts)))
        return _entry(name, a_cell.spread.mean, b_cell.spread.mean, interval, False, tasks)
    return _paired(name, a.task_means(name), b.task_means(name), both, sampling, None)


def _rate(name: str, a: Values, b: Values, both: list[tuple[int, int]] | None, sampling: Sampling) -> Json:
    if both is not None:
        return _paired(name, a, b, both, sampling, (-1.0, 1.0))
    before, after = list(a.values()), list(b.values())
    interval = sampling.difference((before, [1] * len(before)), (after, [1] * len(after)))
    return _entry(name, _mean(before), _mean(after), interval, False, (len(before), len(after)))


def _paired(
    name: str, a: Values, b: Values, both: list[tuple[int, int]], sampling: Sampling, within: Interval | None
) -> Json:
    pairs = [(a[left], b[right]) for left, right in both if left in a and right in b]
    if not pairs:
        return _entry(name, None, None, None, None, (0, 0))
    differences = [_apart(before, after) for before, after in pairs]
    if not any(differences):
        within = None  # no task differs: resampling them has nothing to say, of a rate as of any number
    interval = sampling.mean(differences, [1] * len(pairs), within=within)
    tasks = (len(pairs), len(pairs))
    return _entry(name, _mean([x for x, _ in pairs]), _mean([y for _, y in pairs]), interval, True, tasks)


def _mean(values: Sequence[float]) -> float:
    """The mean; infinite if the sum is. `fmean` raises there."""
    return sum(values) / len(values)


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
    }


def verdict(fields: Sequence[Json], level: float, name: str = "reward") -> str:
    """One line: better, worse, or nothing that can be told apart from chance."""
    told = next((each for each in fields if each["name"] == name), None)
    if told is None or told["difference"] is None:
        return f"no {name} that both runs have: nothing to judge by"
    difference, low, high, tasks = told["difference"], told["low"], told["high"], told["tasks"]
    change = f"{name} {difference:+.3g}"
    where, many = _where(told)
    better = "better" if difference > 0 else "worse"
    if not level:
        return f"{change}, {where}; whether that is chance was not asked (--ci 0)"
    if low is None and tasks < FEWEST:
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


def _flips(a: Group, b: Group) -> tuple[list[Json], Json]:
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
        for _, line in read_lines(path, lost=Unread(path)):
            try:
                task = split_key(key_in(line) or "")[0]
                if task in wanted:
                    wanted.pop(task)["prompt"] = prompt_of(loads(line))
            except HOSTILE:
                continue
            if not wanted:
                return


def prompt_of(row: Json) -> str:
    """The last thing the user asked, on one line and cut."""
    asked = row["responses_create_params"]["input"]
    if isinstance(asked, list):
        said = [text_of(item.get("content")) for item in asked if item.get("role") == "user"]
        asked = said[-1] if said else ""
    return " ".join(asked[: 4 * _LONGEST_PROMPT].split())[:_LONGEST_PROMPT]


def _notes(a: Reading, b: Reading, tasks: Json) -> Iterator[str]:
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
    apart = tasks["only_a"] + tasks["only_b"]
    if not tasks["both"]:
        yield "no task is in both runs: a difference may come from the tasks"
    elif 2 * tasks["both"] < min(len(a.run.tasks), len(b.run.tasks)):
        both = f"{counted(tasks['both'], 'task')} {'is' if tasks['both'] == 1 else 'are'}"
        yield f"only {both} in both runs: all are compared, and a difference may come from the tasks"
    elif apart:
        are, them = ("is", "it") if apart == 1 else ("are", "them")
        yield f"{counted(apart, 'task')} {are} in one run only; the differences leave {them} out"
