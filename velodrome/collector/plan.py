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
TO_RUN, KEPT, SKIPPED, OTHER = 0, 1, 2, 3  # in `Plan.done`; a rollout that is not requested is OTHER
_MOST_PROBLEMS = 20


class Job(NamedTuple):
    """A rollout to run, with its place in the plan and the seed of the run. `problem`: why its row cannot run."""

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
    """How many tasks, how often, and which agent runs them. `agent` replaces a row's `agent_ref`."""

    limit: int | None
    repeats: int
    agent: str | None
    default: str | None
    params: Json
    agents: Collection[str] = ()
    allow_mixed: bool = False
    seed: int | None = None

    def agent_for(self, row: Json) -> str | None:
        """The agent that runs this row."""
        return self.agent or agent_of(row) or self.default


@dataclass
class Plan:
    """The tasks of a run, and which of their rollouts are `done`: one byte each, in the order of the jobs.

    With `by_task` the names are tasks with repeats; without, they are single rollouts.
    """

    repeats: int = 1
    by_task: bool = True
    done: bytearray = field(default_factory=bytearray)
    suffixes: dict[int, str] = field(default_factory=dict)  # task index -> the suffix of its name
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
        """How many rollouts are requested, including the finished ones."""
        return len(self.done) - self.done.count(OTHER)

    @property
    def kept(self) -> int:
        """How many rollouts the output has."""
        return self.done.count(KEPT)

    @property
    def skipped(self) -> int:
        """How many rollouts were not run, because their task is decided."""
        return self.done.count(SKIPPED)

    def add(self, name_hash: int, content_digest: str, earlier: list[tuple[int, int]]) -> None:
        """Add a task. `earlier` holds the digest and the repeat of each of its rollouts in the output."""
        task_digest, done = int(content_digest, 16), bytearray(self.repeats)
        for rollout_digest, repeat in earlier:
            if rollout_digest in (0, task_digest) and 0 <= repeat < self.repeats:
                done[repeat] = KEPT
        self.names.append(name_hash)
        self.digests.append(task_digest)
        self.done.extend(done)

    def indices(self, names: Any) -> Any:
        """The task index of each hashed name in an array; -1 if no task has that name."""
        import numpy as np

        tasks = np.frombuffer(self.names, "<u8")
        order = np.argsort(tasks)
        index = order[np.minimum(np.searchsorted(tasks[order], names), len(tasks) - 1)]
        return np.where(tasks[index] == names, index, -1)

    def request_only(self, key: str, input_name: str) -> None:
        """Request only the rollout with this key."""
        task, _, repeat = key.rpartition("/")
        try:
            place = self.names.index(hashed(task)) * self.repeats
            place += [str(each) for each in range(self.repeats)].index(repeat)
        except ValueError:
            hint = "give the limit and num_repeats of its run, too"
            raise InputError(f"{input_name}: no task has a rollout with the key {key!r}; {hint}") from None
        state, self.done = self.done[place], bytearray([OTHER]) * len(self.done)
        self.done[place] = state

    def digest(self, index: int) -> str:
        """The digest of a task's content."""
        return f"{self.digests[index]:016x}"


class InputProblems:
    """Problems of the tasks: one line for each kind, with the first place it occurs."""

    def __init__(self, place: Callable[[int], str]) -> None:
        self._place = place
        self._places: dict[str, list[int]] = {}  # problem -> first line number, count

    def add(self, line_number: int, problem: str) -> None:
        """Note one bad line."""
        if problem in self._places:
            self._places[problem][1] += 1
        elif len(self._places) < _MOST_PROBLEMS:
            self._places[problem] = [line_number, 1]

    def lines(self) -> list[str]:
        return [
            f"{self._place(line_number)}: {problem}" + (f" (and {count - 1} more like it)" if count > 1 else "")
            for problem, (line_number, count) in self._places.items()
        ]

    def refuse(self) -> None:
        if self._places:
            raise InputError(*self.lines())


class Names:
    """Gives every task of a plan its name. Equal names get `#2`, `#3` …

    If the output has rollouts of different content under a name, the name gets `@` and the digest where mixing is
    allowed. Otherwise it is one of the `conflicts`.
    """

    def __init__(self, plan: Plan, earlier: Earlier, *, allow_mixed: bool) -> None:
        self.plan = plan
        self.conflicts: list[tuple[int, str, str]] = []  # line number, name and digest
        self._earlier = earlier
        self._allow_mixed = allow_mixed
        self._names: set[int] = set()
        self._last_numbers: dict[int, int] = {}  # of repeated names, so that a million equal rows stay cheap

    def add(self, line_number: int, row_id: str | None, content_digest: str) -> str | None:
        """Add the task of this line to the plan. Returns its name, or None if there is a conflict."""
        name_hash, suffix = self._make_unique(row_id or content_digest)
        rollouts, name = self._earlier.rollouts(name_hash), (row_id or content_digest) + suffix
        if has_other(rollouts, content_digest):
            if not self._allow_mixed:
                self.conflicts.append((line_number, name, content_digest))
                return None
            suffix, name = f"{suffix}@{content_digest}", f"{name}@{content_digest}"
            name_hash = hashed(name)
            rollouts += self._earlier.rollouts(name_hash)
        if suffix:
            self.plan.suffixes[self.plan.tasks] = suffix
        self.plan.add(name_hash, content_digest, rollouts)
        return name

    def _make_unique(self, name: str) -> tuple[int, str]:
        """The suffix that makes a name unique (mostly empty), and the hash of the name with it."""
        suffix, name_hash = "", hashed(name)
        if name_hash in self._names:
            plain_hash, number = name_hash, self._last_numbers.get(name_hash, 1) + 1
            while (name_hash := hashed(f"{name}#{number}")) in self._names:
                number += 1
            self._last_numbers[plain_hash] = number
            suffix = f"#{number}"
        self._names.add(name_hash)
        return name_hash, suffix


def key_conflict_error(
    conflicts: list[tuple[int, str, str]], place_of_line: Callable[[int], str], output: Path | None
) -> InputError:
    """The error for keys that the output has with different content. A conflict is (line number, key, digest)."""
    line_number, key, content_digest = conflicts[0]
    more = f" (and {len(conflicts) - 1} more like it)" if len(conflicts) > 1 else ""
    return InputError(
        f"{place_of_line(line_number)}: the key {key!r} is in {output} with other content{more}; set allow_mixed "
        f"to add it under a key with @{content_digest}, or choose another output (see docs/rollouts.md#keys)"
    )


def survey(tasks: Tasks, selection: TaskSelection, earlier: Earlier) -> Plan:
    """Check every row and give every task its name."""
    check_selection(selection)
    plan = Plan(selection.repeats, repeated=selection.repeats > 1 or earlier.repeated)
    problems, names = InputProblems(tasks.place), Names(plan, earlier, allow_mixed=selection.allow_mixed)
    try:
        for line_number, line in islice(tasks.lines(), selection.limit):
            try:
                row = parse_task(line)
                plan.agents.add(check_agent(selection.agent_for(row), selection.agents))
            except ValueError as error:
                problems.add(line_number, str(error))
                continue
            names.add(line_number, own_id(row), digest(row))
    except LongLineError as error:
        raise InputError(*problems.lines(), *error.problems) from None
    problems.refuse()
    if names.conflicts:
        raise key_conflict_error(names.conflicts, tasks.place, earlier.output)
    if not plan.tasks:
        raise InputError(f"{tasks.name}: no tasks in it (see docs/rollouts.md#task)")
    return plan


def check_selection(selection: TaskSelection) -> None:
    """Refuse overrides that make a task invalid, and an unknown agent."""
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


def check_agent(agent: str | None, agents: Collection[str]) -> str:
    """Return the agent's name, or raise a `ValueError` if there is no such agent."""
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
        """Whether there are no more jobs."""
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
    """The jobs still to run, task by task; or in rounds: the first repeat of every task, then the second, and so on."""
    all_repeats = range(selection.repeats)
    for repeats in [range(repeat, repeat + 1) for repeat in all_repeats] if in_rounds else [all_repeats]:
        yield from _jobs_of_repeats(tasks, selection, plan, repeats)


def _jobs_of_repeats(tasks: Tasks, selection: TaskSelection, plan: Plan, repeats: range) -> Iterator[Job]:
    """The jobs still to run for these repeats of every task."""
    for index, (line_number, line) in enumerate(tasks.lines()):
        if index >= plan.tasks:
            return
        first_place = index * plan.repeats
        if TO_RUN not in plan.done[first_place : first_place + plan.repeats]:
            continue
        content_digest = plan.digest(index)
        try:
            row = _unchanged_row(line, content_digest)
        except ValueError as error:
            problem = f"{tasks.place(line_number)}: the row changed during the collection: {error}"
            yield from failing_jobs(plan, index, f"line {line_number}", problem, repeats)
            continue
        name = (own_id(row) or content_digest) + plan.suffixes.get(index, "")
        yield from task_jobs(plan, selection, index, name, row, line, repeats)


def task_jobs(
    plan: Plan, selection: TaskSelection, index: int, name: str, row: Json, line: bytes, repeats: range
) -> Iterator[Job]:
    """The jobs still to run for these repeats of one task."""
    agent, content_digest = selection.agent_for(row) or "", plan.digest(index)
    for repeat in repeats:
        place = index * plan.repeats + repeat
        if plan.done[place] != TO_RUN:
            continue
        task = orjson.loads(line) if repeat else row  # its own copy: an environment may write to its task
        if selection.params:
            task["responses_create_params"] = task["responses_create_params"] | selection.params
        key = f"{name}/{repeat}"
        yield Job(key, index, repeat, agent, task, digest=content_digest, place=place, seed=selection.seed)


def failing_jobs(plan: Plan, index: int, name: str, problem: str, repeats: range) -> Iterator[Job]:
    """Jobs for a task that cannot run: each fails with this problem."""
    for repeat in repeats:
        place = index * plan.repeats + repeat
        if plan.done[place] == TO_RUN:
            yield Job(f"{name}/{repeat}", index, repeat, "", {}, problem, place=place)


def _unchanged_row(line: bytes, content_digest: str) -> Json:
    """The row that the survey checked. A `ValueError` if its content has changed since."""
    try:
        row: Json = orjson.loads(line)
        if digest(row) == content_digest:
            return row
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    parse_task(line)
    raise ValueError("its content is not what was checked")
