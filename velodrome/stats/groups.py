"""The numbers of rollouts by group: the whole run, an agent, a task, or all rows with one value of a field.

`read_groups` is `velo metrics` with a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.task import hashed
from velodrome.stats.draws import MOST_VOTES
from velodrome.stats.group import MOST_FIELDS, MetricsSettings, RolloutGroup, answer_of, text_for
from velodrome.stats.metrics import ReadResult, Tally, read_shards
from velodrome.stats.numbers import COUNTS, TIMES, numbers_of

Json = dict[str, Any]

MOST_CELLS = 25_000  # fields of all groups together; with its summary a group of one takes about 5 kB
NONE = "(none)"
_PATHS = {"agent": ["meta", "agent"], "status": ["response", "status"]}
_LONGEST_NAME = 200
_COUNT_EVERY = 1024  # rows


def picker(by: str) -> Callable[[Json, str | None], str]:
    """A function from a row and its task to the name of its group."""
    if by == "outcome":
        return lambda row, task: RowFacts(row).outcome
    if by == "task":
        return lambda row, task: NONE if task is None else task[:_LONGEST_NAME]
    path = _PATHS.get(by) or by.split(".")

    def pick(row: Json, task: str | None) -> str:
        value: Any = row
        for name in [by] if by in row and by != "agent" else path:
            value = value.get(name) if isinstance(value, dict) else None
        return NONE if value is None else text_for(value)[:_LONGEST_NAME]

    return pick


class RunReading:
    """The run and its groups."""

    def __init__(self, settings: MetricsSettings, *, prompts: bool = False, most_cells: int = MOST_CELLS) -> None:
        self.settings = settings
        self.tally = Tally(pass_at=settings.pass_at)
        self.run = RolloutGroup(settings)
        self.groups: dict[str, RolloutGroup] = {}
        self.prompts: dict[str, int] = {}  # by task: a hash of its prompt; of several prompts, the lowest hash
        self.result = ReadResult()
        self._keeps_prompts = prompts
        self._most_cells = most_cells
        self._pick = picker(settings.by) if settings.by is not None else None

    def add(self, facts: RowFacts) -> None:
        """Count one rollout, without its values of a wrong type."""
        self.tally.add(facts)
        task, numbers, answer = facts.task, numbers_of(facts), answer_of(facts)
        if self._keeps_prompts and task is not None:
            prompt = hashed(str(facts.params.get("input") or ""))
            self.prompts[task] = min(self.prompts.get(task, prompt), prompt)
        fields = self.settings.fields
        if fields is not None:
            numbers = {name: value for name, value in numbers.items() if name in fields or name == "reward"}
        self.run.add(facts, numbers, answer)
        if self._pick is not None:
            if self.settings.by == "task" and fields is None:  # many groups of few rollouts
                numbers = {name: value for name, value in numbers.items() if name == "reward"}
            name = self._pick(facts.row, task)
            if name not in self.groups:
                self.groups[name] = RolloutGroup(self.settings)
            self.groups[name].add(facts, numbers, answer)
            if self.run.rows % _COUNT_EVERY == 0:
                self.count_cells()

    def count_cells(self) -> None:
        """Raise an `InputError` if there are too many groups for the memory."""
        if sum(len(group.cells) or 1 for group in self.groups.values()) > self._most_cells:
            fewer = "" if self.settings.by == "task" else ", or with fields=reward only the reward"
            raise InputError(
                f"by={self.settings.by}: {len(self.groups):,} groups and more are too many to keep apart; "
                f"give a field with fewer values{fewer}"
            )

    @property
    def metrics(self) -> Json:
        """What `velo metrics` prints without a flag."""
        return self.tally.metrics(failed=len(self.result.failed))

    @property
    def notes(self) -> list[str]:
        """Notes on values that were not counted, or not as expected."""
        notes = [*self.result.notes, *self.tally.notes()]
        if self.run.cells.left_out is not None:
            notes.append(f"rollouts have more different numbers than are kept; {MOST_FIELDS} of them are here")
        fields, requested, most = self.settings.fields, self.settings.ks, max(self.run.tried, default=0)
        notes += [f"no rollout has a number {name!r}" for name in sorted(set(fields or ()) - self.run.cells.keys())]
        notes += [f"no task has {k} scored rollouts; the most is {most}" for k in requested or () if k > most]
        if any(MOST_VOTES < k <= most for k in self.run.ks(requested)):
            notes.append(f"majority@k is reported up to k = {MOST_VOTES}")
        return notes


def read_run(
    paths: Sequence[Path], settings: MetricsSettings, *, prompts: bool = False, most_cells: int = MOST_CELLS
) -> RunReading:
    """Read the files."""
    reading = RunReading(settings, prompts=prompts, most_cells=most_cells)
    reading.result = read_shards(paths, reading.add)
    reading.count_cells()
    fields = {*reading.tally.scored, *TIMES, *COUNTS, *(settings.fields or ())}
    for group in (reading.run, *reading.groups.values()):
        group.keep_only(fields)
    if settings.by is not None and reading.run.rows and reading.groups.keys() <= {NONE}:
        hint = "give agent, task, status, or a field of the rows as in info.level"
        raise InputError(f"by={settings.by}: no rollout has it; {hint}")
    return reading


def read_groups(paths: Sequence[Path], settings: MetricsSettings | None = None) -> Json:
    settings = settings or MetricsSettings()
    reading = read_run(paths, settings)
    ks = reading.run.ks(settings.ks)
    return {
        "files": [str(path) for path in paths],
        "pass_at": settings.pass_at,
        "level": settings.level,
        "metrics": reading.metrics,
        "run": reading.run.summary(ks),
        "by": settings.by,
        "groups": [{"group": name, **reading.groups[name].summary(ks)} for name in sorted(reading.groups, key=natural)],
        **({"difficulty": difficulty(reading.groups)} if settings.by == "task" else {}),
        "notes": reading.notes,
    }


def difficulty(groups: Mapping[str, RolloutGroup]) -> dict[str, list[str]]:
    """The tasks that are solved (all rollouts pass), useful for learning (rewards differ), or hopeless (none pass)."""
    result: dict[str, list[str]] = {"solved": [], "useful": [], "hopeless": []}
    for name, group in sorted(groups.items()):
        tried, passed, reward = sum(group.tried), sum(group.passed), group.cells.get("reward")
        if name != NONE and tried and reward is not None:
            differ = passed or reward.distribution.low != reward.distribution.high
            result["solved" if passed == tried else "useful" if differ else "hopeless"].append(name)
    return result


def natural(name: str) -> tuple[int, float, str]:
    """The sort key of a group: numbers by size, then texts, then rollouts without a value."""
    if name == NONE:
        return 2, 0.0, name
    try:
        size = float(name)
    except ValueError:
        size = nan
    return (0, size, name) if isfinite(size) else (1, 0.0, name)
