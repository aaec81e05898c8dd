"""The numbers of rollouts by group: the whole run, an agent, a task, or whatever shares the value of a field.

One pass over the rows of one or several files. `read_groups` is `velo metrics` with a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.stats.draws import MOST_VOTES
from velodrome.stats.group import MOST_FIELDS, GroupRow, MetricsSettings, RolloutGroup, group_row, hashed, text_for
from velodrome.stats.metrics import Tally, sizes
from velodrome.stats.shards import Taken, read_shards

Json = dict[str, Any]

MOST_CELLS = 25_000  # fields of all groups together; with its summary a group of one takes about 5 kB
OTHERS = "(others)"
NONE = "(none)"
_LONGEST_NAME = 200
_AT_ONCE = 1024


def picker(by: str) -> Callable[[Json, str | None], str]:
    """From a row and its task to the name of its group."""
    if by == "task":
        return lambda row, task: NONE if task is None else task[:_LONGEST_NAME]
    path = ["meta", "agent"] if by == "agent" else by.split(".")

    def pick(row: Json, task: str | None) -> str:
        value: Any = row
        for name in [by] if by in row and by != "agent" else path:
            value = value.get(name) if isinstance(value, dict) else None
        return NONE if value is None else text_for(value)[:_LONGEST_NAME]

    return pick


class RunReading:
    """The run and its groups, being read."""

    def __init__(self, settings: MetricsSettings, *, most_cells: int = MOST_CELLS, prompts: bool = False) -> None:
        self.settings = settings
        self.tally = Tally(pass_at=settings.pass_at)
        self.run = RolloutGroup(settings)
        self.groups: dict[str, RolloutGroup] = {}
        self.asked: dict[str, int] | None = (
            {} if prompts else None
        )  # of each task a hash of its prompt, of several the lowest
        self.taken = Taken()
        self._most_cells = most_cells
        self._first_other: str | None = None  # this group and all after it, in their order, are in OTHERS
        self._waiting: list[GroupRow] = []
        self._names: list[str] = []  # of the groups they are in
        self._pick = picker(settings.by) if settings.by is not None else None

    def read(self, paths: Sequence[Path]) -> RunReading:
        """Read the files."""
        self.taken = read_shards(paths, self.add)
        self._flush()
        if self._pick is not None and self.run.rows and self.groups.keys() <= {NONE}:
            by = self.settings.by
            raise InputError(f"--by {by}: no rollout has it; give agent, task, or a field of the rows as in info.level")
        return self

    def add(self, facts: RowFacts) -> None:
        """Count one rollout; what of it has a wrong type is left out."""
        self.tally.add(facts)
        rollout = group_row(facts)
        if self.asked is not None and rollout.task is not None:
            prompt = hashed(str(facts.params.get("input") or ""))
            self.asked[rollout.task] = min(self.asked.get(rollout.task, prompt), prompt)
        wanted = self.settings.fields
        if wanted is not None:
            for name in [name for name in rollout.numbers if name not in wanted and name != "reward"]:
                del rollout.numbers[name]
        self._waiting.append(rollout)
        if self._pick is not None:
            self._names.append(self._pick(facts.row, rollout.task))
        if len(self._waiting) == _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self.run.extend(self._waiting)
        apart: dict[str, list[GroupRow]] = {}
        for name, rollout in zip(self._names, self._waiting, strict=self._pick is not None):
            apart.setdefault(name, []).append(rollout)
        for name, rollouts in apart.items():
            if self.settings.by == "task" and self.settings.fields is None:  # there are many, each of few rollouts
                rollouts = [rollout.only("reward") for rollout in rollouts]
            self._group(name).extend(rollouts)
        self._waiting, self._names = [], []
        self._fold()

    def _group(self, name: str) -> RolloutGroup:
        if self._first_other is not None and natural(name) >= natural(self._first_other):
            name = OTHERS
        return self.groups.setdefault(name, RolloutGroup(self.settings))

    def _fold(self) -> None:
        """Of too many groups the first are kept apart, in the order they are shown in, whichever came first."""
        apart = {name: len(group.cells) or 1 for name, group in self.groups.items() if name != OTHERS}
        cells = sum(apart.values())
        if cells <= self._most_cells:
            return
        for name in sorted(apart, key=natural, reverse=True):
            if cells <= self._most_cells:
                break
            cells -= apart[name]
            self._first_other = name
            others = self.groups.setdefault(OTHERS, RolloutGroup(self.settings))
            others.merge(self.groups.pop(name))

    @property
    def metrics(self) -> Json:
        """What `velo metrics` prints without a flag."""
        return self.tally.metrics(failed=len(self.taken.failed))

    @property
    def ks(self) -> list[int]:
        """Those asked for, or 1, 2, 4, … and the largest that at least half of the tasks have."""
        asked = self.settings.ks
        return sizes(self.run.largest_k) if asked is None else sorted(set(asked))

    @property
    def notes(self) -> list[str]:
        """What was not counted, or not as one would expect."""
        found = [*self.taken.notes, *self.tally.notes()]
        if OTHERS in self.groups:
            fewer = len(self.settings.fields or ()) != 1 and self.settings.by != "task"
            hint = "; --fields reward keeps more apart" if fewer else ""
            found.append(
                f"there are too many groups to keep apart: {self.groups[OTHERS].rows} rollouts are in {OTHERS!r}{hint}"
            )
        if self.run.cut:
            found.append(f"rollouts have more different numbers than are kept; {MOST_FIELDS} of them are here")
        wanted = self.settings.fields
        found += [f"no rollout has a number {name!r}" for name in sorted(set(wanted or ()) - self.run.cells.keys())]
        most = self.run.most_tried
        found += [f"no task has {k} scored rollouts; the most is {most}" for k in self.settings.ks or () if k > most]
        if any(MOST_VOTES < k <= most for k in self.ks):
            found.append(f"majority@k is told up to k = {MOST_VOTES}")
        return found


def read_groups(paths: Sequence[Path], settings: MetricsSettings | None = None) -> Json:
    """The numbers of the files, over all and by group."""
    settings = settings or MetricsSettings()
    reading = RunReading(settings).read(paths)
    ks = reading.ks
    return {
        "files": [str(path) for path in paths],
        "pass_at": settings.pass_at,
        "level": settings.level,
        "metrics": reading.metrics,
        "run": reading.run.summary(ks),
        "by": settings.by,
        "groups": [{"group": name, **reading.groups[name].summary(ks)} for name in sorted(reading.groups, key=natural)],
        "notes": reading.notes,
    }


def natural(name: str) -> tuple[int, float, str]:
    """The order of groups: numbers by size, then texts, then those without a name of their own."""
    if name in (NONE, OTHERS):
        return 2, 0.0, name
    try:
        size = float(name)
    except ValueError:
        size = nan
    return (0, size, name) if isfinite(size) else (1, 0.0, name)
