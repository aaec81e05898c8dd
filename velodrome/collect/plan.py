"""What is to be run: rows x repeats, minus what the output has already.

`survey` reads the input once, before anything is spent: it finds every bad row, gives every task its key and marks
what is done, one byte a rollout. `jobs` reads it again while the collection runs, so rows never pile up in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.errors import InputError
from velodrome.records.jsonl import LongLineError, read_lines
from velodrome.records.task import agent_of, check_input, parse_task, task_id
from velodrome.serving.connect import unknown

Json = dict[str, Any]

_MOST_PROBLEMS = 20


class Job(NamedTuple):
    """One rollout to make. `problem` is set if the row went bad between the survey and now."""

    key: str
    task_index: int
    rollout_index: int
    agent: str
    task: Json
    problem: str | None = None


@dataclass(frozen=True)
class Selection:
    """Which rows, how often, and who runs them. `agent` beats a row's own `agent_ref`; `default_agent` fills in."""

    path: Path
    limit: int | None
    repeats: int
    agent: str | None
    default_agent: str | None
    overrides: Json

    def agent_for(self, row: Json) -> str | None:
        """Who runs this row."""
        return self.agent or agent_of(row) or self.default_agent


@dataclass
class Survey:
    """What the first pass found. `done` has one byte a rollout, in the order of `jobs`."""

    tasks: int = 0
    done: bytearray = field(default_factory=bytearray)
    again: dict[int, str] = field(default_factory=dict)  # task index -> suffix of its id, for equal rows
    agents: set[str] = field(default_factory=set)
    repeated: bool = False  # whether a task may have more than one rollout

    @property
    def rollouts(self) -> int:
        return len(self.done)

    @property
    def kept(self) -> int:
        return self.done.count(1)


class Problems:
    """What is wrong with a file, one line for each kind of problem, with the first place it stands in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, list[int]] = {}  # what -> first line number, how often

    def add(self, number: int, what: str) -> None:
        """Note one bad line."""
        if what in self._places:
            self._places[what][1] += 1
        elif len(self._places) < _MOST_PROBLEMS:
            self._places[what] = [number, 1]

    def lines(self) -> list[str]:
        """One line a problem."""
        return [
            f"{self._path}:{number}: {what}" + (f" (and {count - 1} more like it)" if count > 1 else "")
            for what, (number, count) in self._places.items()
        ]

    def refuse(self) -> None:
        """Raise if there is anything wrong."""
        if self._places:
            raise InputError(*self.lines())


def survey(selection: Selection, kept: Collection[int], agents: Collection[str]) -> Survey:
    """Check every row and mark what is done. `kept` holds `hash(key)` of the rollouts in the output."""
    if "input" in selection.overrides:
        try:
            check_input(selection.overrides["input"])
        except ValueError as error:
            raise InputError(f"command line: {error}") from None
    found = Survey(repeated=selection.repeats > 1)
    names = Names()
    problems = Problems(selection.path)
    lines = read_lines(selection.path)
    while selection.limit is None or found.tasks < selection.limit:
        try:
            number, line = next(lines)
            row = parse_task(line)
            agent = _known(selection.agent_for(row), agents)
        except StopIteration:
            break
        except LongLineError as error:
            raise InputError(*problems.lines(), *error.problems) from None
        except ValueError as error:
            problems.add(number, str(error))
            found.tasks += 1
            continue
        found.agents.add(agent)
        _mark(found, names, task_id(row), kept, selection.repeats)
    problems.refuse()
    if not found.tasks:
        raise InputError(f"{selection.path}: no tasks in it (see docs/rollouts.md#task)")
    return found


def _known(agent: str | None, agents: Collection[str]) -> str:
    if agent is None:
        names = ", ".join(sorted(agents)) or "none in the config"
        raise ValueError(f'no agent: give +agent_name=…, or "agent_ref": {{"name": …}} in the row (agents: {names})')
    if agent not in agents:
        raise ValueError(unknown("agent", agent, list(agents)))
    return agent


class Names:
    """The names given so far, as hashes; equal ones get `#2`, `#3` …"""

    def __init__(self) -> None:
        self._given: set[int] = set()
        self._last: dict[int, int] = {}  # of names met again: the last number, so that a million equal rows stay cheap

    def suffix(self, name: str) -> str:
        """What makes this name a new one; nothing for most."""
        before = len(self._given)
        self._given.add(hash(name))
        if len(self._given) > before:
            return ""
        number = self._last.get(hash(name), 1) + 1
        while hash(f"{name}#{number}") in self._given:
            number += 1
        self._last[hash(name)] = number
        self._given.add(hash(f"{name}#{number}"))
        return f"#{number}"


def _mark(found: Survey, names: Names, name: str, kept: Collection[int], repeats: int) -> None:
    suffix = names.suffix(name)
    if suffix:
        found.again[found.tasks] = suffix
    name += suffix
    for repeat in range(repeats):
        found.done.append(hash(f"{name}/{repeat}") in kept)
    found.tasks += 1


def jobs(selection: Selection, survey: Survey) -> Iterator[Job]:
    """The rollouts still to make, task by task."""
    repeats = selection.repeats
    for index, (number, line) in enumerate(read_lines(selection.path)):
        if index >= survey.tasks:
            return
        first = index * repeats
        if survey.done.find(0, first, first + repeats) < 0:
            continue
        flags = survey.done[first : first + repeats]
        try:
            row = parse_task(line)
        except ValueError as error:
            problem = f"{selection.path}:{number}: the row changed during the collection: {error}"
            for repeat in range(repeats):
                if not flags[repeat]:
                    yield Job(f"line {number}/{repeat}", index, repeat, "", {}, problem)
            continue
        name = task_id(row) + survey.again.get(index, "")
        agent = selection.agent_for(row) or ""
        for repeat in range(repeats):
            if flags[repeat]:
                continue
            task = orjson.loads(line) if repeat else row  # its own copy: an environment may write to its task
            if selection.overrides:
                task["responses_create_params"] = task["responses_create_params"] | selection.overrides
            yield Job(f"{name}/{repeat}", index, repeat, agent, task)
