"""What to run: tasks x repeats, minus the rollouts that the output has.

A file or a list is read once before anything is spent (`survey`): every bad row is reported, and every task gets its
name. It is read again while the collection runs, so rows never pile up in memory. Any other iterable is read as the
collection goes (`TaskStream`), and a bad task of it is a failure.

A key names a task, and a digest of its content says which one: a rollout of other content under the same key is not
this task's. Such a task is an error, or runs under `<key>@<digest>` where mixing is allowed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.collector.keys import Earlier, has_other
from velodrome.collector.tasks import Tasks
from velodrome.errors import InputError
from velodrome.records.jsonl import LongLineError
from velodrome.records.task import agent_of, check_input, digest, hashed, own_id, parse_task, request_flaw
from velodrome.serving.components import unknown

Json = dict[str, Any]
KEPT, SKIPPED, OTHER = 1, 2, 3  # in `Plan.done`; a rollout that is not requested is OTHER
_MOST_PROBLEMS = 20


class Job(NamedTuple):
    """One rollout to make, its place in the plan, the seed of the run. `problem`: why its row cannot be run."""

    key: str
    task_index: int
    rollout_index: int
    agent: str
    task: Json
    problem: str | None = None
    digest: str | None = None
    place: int = 0
    seed: int | None = None


@dataclass(frozen=True)
class TaskSelection:
    """How many tasks, how often, and which agent runs them. `agent` beats a row's `agent_ref`; `default` fills in."""

    limit: int | None
    repeats: int
    agent: str | None
    default: str | None
    params: Json
    agents: Collection[str] = ()
    allow_mixed: bool = False
    seed: int | None = None

    def agent_for(self, row: Json) -> str | None:
        """Which agent runs this row."""
        return self.agent or agent_of(row) or self.default


@dataclass
class Plan:
    """The tasks of a run, and which of their rollouts are `done`: one byte each, in the order of the jobs.

    `by_task`: the names are those of tasks, with repeats; else those of single rollouts.
    """

    repeats: int = 1
    by_task: bool = True
    done: bytearray = field(default_factory=bytearray)
    suffixes: dict[int, str] = field(default_factory=dict)  # task index -> what its name has added, if anything
    agents: set[str] = field(default_factory=set)
    repeated: bool = False  # whether a task may have more than one rollout, in the output too
    names: array[int] = field(default_factory=lambda: array("Q"))  # hashes
    digests: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.names)

    @property
    def rollouts(self) -> int:
        """How many are requested, those that are done included."""
        return len(self.done) - self.done.count(OTHER)

    @property
    def kept(self) -> int:
        """How many of them are done."""
        return self.done.count(KEPT)

    @property
    def skipped(self) -> int:
        """How many were not run, because their task is decided."""
        return self.done.count(SKIPPED)

    def add(self, name: int, content: str, there: list[tuple[int, int]]) -> None:
        """Add a task: the hash of its name, the digest of its content, and its rollouts in the output (`there`)."""
        own, done = int(content, 16), bytearray(self.repeats)
        for other, repeat in there:
            if other in (0, own) and 0 <= repeat < self.repeats:
                done[repeat] = KEPT
        self.names.append(name)
        self.digests.append(own)
        self.done.extend(done)

    def indices(self, names: Any) -> Any:
        """The task of each of these names, which are hashes in an array; -1 for none."""
        import numpy as np

        own = np.frombuffer(self.names, "<u8")
        order = np.argsort(own)
        index = order[np.minimum(np.searchsorted(own[order], names), len(own) - 1)]
        return np.where(own[index] == names, index, -1)

    def leave_only(self, key: str, name: str) -> None:
        """Request the rollout with this key alone. `name` is that of the input."""
        task, _, repeat = key.rpartition("/")
        try:
            place = self.names.index(hashed(task)) * self.repeats
            place += [str(each) for each in range(self.repeats)].index(repeat)
        except ValueError:
            hint = "give the limit and num_repeats of its run, too"
            raise InputError(f"{name}: no task has a rollout with the key {key!r}; {hint}") from None
        state, self.done = self.done[place], bytearray([OTHER]) * len(self.done)
        self.done[place] = state

    def digest(self, index: int) -> str:
        """The digest of a task's content."""
        return f"{self.digests[index]:016x}"


class InputProblems:
    """Problems of the tasks: one line for each kind, with the first place it occurs."""

    def __init__(self, place: Callable[[int], str]) -> None:
        self._place = place
        self._places: dict[str, list[int]] = {}  # what -> first line number, how often

    def add(self, number: int, what: str) -> None:
        """Note one bad line."""
        if what in self._places:
            self._places[what][1] += 1
        elif len(self._places) < _MOST_PROBLEMS:
            self._places[what] = [number, 1]

    def lines(self) -> list[str]:
        return [
            f"{self._place(number)}: {what}" + (f" (and {count - 1} more like it)" if count > 1 else "")
            for what, (number, count) in self._places.items()
        ]

    def refuse(self) -> None:
        if self._places:
            raise InputError(*self.lines())


class Names:
    """Gives every task of a plan its name. Equal names get `#2`, `#3` …

    A name that the output has with other content gets `@` and the digest where mixing is allowed, else it is `taken`.
    """

    def __init__(self, plan: Plan, earlier: Earlier, *, allow_mixed: bool) -> None:
        self.plan = plan
        self.taken: list[tuple[int, str, str]] = []  # line, name and digest
        self._earlier = earlier
        self._allow_mixed = allow_mixed
        self._names: set[int] = set()
        self._last: dict[int, int] = {}  # of names met again: the last number, so that a million equal rows stay cheap

    def add(self, number: int, own: str | None, content: str) -> str | None:
        """Add the task of this line to the plan. Returns its name, or None if that is taken."""
        place, suffix = self._number(own or content)
        there, name = self._earlier.rollouts(place), (own or content) + suffix
        if has_other(there, content):
            if not self._allow_mixed:
                self.taken.append((number, name, content))
                return None
            suffix, name = f"{suffix}@{content}", f"{name}@{content}"
            place = hashed(name)
            there += self._earlier.rollouts(place)
        if suffix:
            self.plan.suffixes[self.plan.tasks] = suffix
        self.plan.add(place, content, there)
        return name

    def _number(self, name: str) -> tuple[int, str]:
        """The hash of a new name, and the suffix that makes it unique; empty for most."""
        suffix, place = "", hashed(name)
        if place in self._names:
            first, number = place, self._last.get(place, 1) + 1
            while (place := hashed(f"{name}#{number}")) in self._names:
                number += 1
            self._last[first] = number
            suffix = f"#{number}"
        self._names.add(place)
        return place, suffix


def taken_error(taken: list[tuple[int, str, str]], place: Callable[[int], str], output: Path | None) -> InputError:
    """These keys of the input are in the output with other content: line, key and digest of each."""
    number, key, content = taken[0]
    more = f" (and {len(taken) - 1} more like it)" if len(taken) > 1 else ""
    return InputError(
        f"{place(number)}: the key {key!r} is in {output} with other content{more}; set allow_mixed "
        f"to add it under a key with @{content}, or choose another output (see docs/rollouts.md#keys)"
    )


def survey(tasks: Tasks, selection: TaskSelection, earlier: Earlier) -> Plan:
    """Check every row and give every task its name."""
    check_selection(selection)
    plan = Plan(selection.repeats, repeated=selection.repeats > 1 or earlier.repeated)
    problems, names = InputProblems(tasks.place), Names(plan, earlier, allow_mixed=selection.allow_mixed)
    try:
        for number, line in islice(tasks.lines(), selection.limit):
            try:
                row = parse_task(line)
                plan.agents.add(known_agent(selection.agent_for(row), selection.agents))
            except ValueError as error:
                problems.add(number, str(error))
                continue
            names.add(number, own_id(row), digest(row))
    except LongLineError as error:
        raise InputError(*problems.lines(), *error.problems) from None
    problems.refuse()
    if names.taken:
        raise taken_error(names.taken, tasks.place, earlier.output)
    if not plan.tasks:
        raise InputError(f"{tasks.name}: no tasks in it (see docs/rollouts.md#task)")
    return plan


def check_selection(selection: TaskSelection) -> None:
    """Refuse overrides that make a task invalid, and an agent that is not known."""
    params = selection.params
    if "input" in params:
        try:
            check_input(params["input"])
        except ValueError as error:
            raise InputError(f"command line: {error}") from None
    flaw = request_flaw(params)
    if flaw is not None:
        raise InputError(f"command line: {flaw.below('responses_create_params')} (see docs/rollouts.md#task)")
    if selection.agent is not None and selection.agent not in selection.agents:
        raise InputError(f"agent_name: {unknown('agent', selection.agent, list(selection.agents))}")


def known_agent(agent: str | None, agents: Collection[str]) -> str:
    """The agent, if there is one of that name."""
    if agent is None:
        names = ", ".join(sorted(agents)) or "none in the config"
        raise ValueError(f'no agent: give +agent_name=…, or "agent_ref": {{"name": …}} in the row (agents: {names})')
    if agent not in agents:
        raise ValueError(unknown("agent", agent, list(agents)))
    return agent


class Planned:
    """The jobs of a plan, task by task. Reading stops at an unreadable line, and `note` reports it."""

    def __init__(self, jobs: Iterator[Job], note: Callable[[str], None] = lambda text: None) -> None:
        self._jobs = jobs
        self._next: Job | None = None
        self.note = note
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether there are no more."""
        if self._next is None and not self._ended:
            try:
                self._next = next(self._jobs, None)
            except InputError as error:
                self.note(f"{error}; no new rollouts are started")
            self._ended = self._next is None
        return self._ended

    def take(self) -> Job | None:
        """The next job."""
        if self.ended:
            return None
        job, self._next = self._next, None
        return job


def jobs(tasks: Tasks, selection: TaskSelection, plan: Plan, *, in_rounds: bool = False) -> Iterator[Job]:
    """The rollouts still to make, task by task; or in rounds, the first of every task, then the second, and so on."""
    every = range(selection.repeats)
    for repeats in [range(repeat, repeat + 1) for repeat in every] if in_rounds else [every]:
        yield from _jobs(tasks, selection, plan, repeats)


def _jobs(tasks: Tasks, selection: TaskSelection, plan: Plan, wanted: range) -> Iterator[Job]:
    """These repeats of every task, as far as they are still to make."""
    repeats = selection.repeats
    for index, (number, line) in enumerate(tasks.lines()):
        if index >= plan.tasks:
            return
        first = index * repeats
        if plan.done.find(0, first, first + repeats) < 0:
            continue
        try:
            content = plan.digest(index)
            row = _as_checked(line, content)
        except ValueError as error:
            problem = f"{tasks.place(number)}: the row changed during the collection: {error}"
            for repeat in wanted:
                if not plan.done[first + repeat]:
                    yield Job(f"line {number}/{repeat}", index, repeat, "", {}, problem, place=first + repeat)
            continue
        name = (own_id(row) or content) + plan.suffixes.get(index, "")
        yield from task_jobs(plan, selection, index, name, row, line, wanted)


def task_jobs(
    plan: Plan, selection: TaskSelection, index: int, name: str, row: Json, line: bytes, wanted: range | None = None
) -> Iterator[Job]:
    """The rollouts of one task that are still to make; of `wanted` repeats only."""
    agent, content = selection.agent_for(row) or "", plan.digest(index)
    for repeat in wanted or range(plan.repeats):
        place = index * plan.repeats + repeat
        if plan.done[place]:
            continue
        task = orjson.loads(line) if repeat else row  # its own copy: an environment may write to its task
        if selection.params:
            task["responses_create_params"] = task["responses_create_params"] | selection.params
        yield Job(f"{name}/{repeat}", index, repeat, agent, task, None, content, place, selection.seed)


def _as_checked(line: bytes, content: str) -> Json:
    """The row that the survey checked. A `ValueError` if its content has changed since."""
    try:
        row: Json = orjson.loads(line)
        if digest(row) == content:
            return row
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    parse_task(line)
    raise ValueError("its content is not what was checked")
