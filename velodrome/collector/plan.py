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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.collector.keys import Earlier, name_hash
from velodrome.collector.planning.request_names import KNOWN, misspelt
from velodrome.collector.planning.task_sources import BEGINNING, Start, Tasks
from velodrome.errors import InputError
from velodrome.records.jsonl import LongLineError
from velodrome.records.task import agent_of, check_input, digest, own_id, parse_task, request_flaw
from velodrome.serving.connect import unknown

Json = dict[str, Any]
KEPT, SKIPPED = 1, 2  # in `Plan.done`
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

    `by_task`: a task has a name and repeats; else every rollout has a name of its own. `surveyed` is a place up to
    which the tasks were known from an earlier run.
    """

    repeats: int = 1
    by_task: bool = True
    done: bytearray = field(default_factory=bytearray)
    suffixes: dict[int, str] = field(default_factory=dict)  # task index -> what its name has added, if anything
    agents: set[str] = field(default_factory=set)
    repeated: bool = False  # whether a task may have more than one rollout, in the output too
    names: array[int] = field(default_factory=lambda: array("Q"))  # hashes
    digests: array[int] = field(default_factory=lambda: array("Q"))
    surveyed: Start = BEGINNING
    surveyed_hash: Any = None  # a hash object of the input's bytes up to there
    lines: int = 0  # of the input, up to the last task
    hints: dict[str, str] = field(default_factory=dict)  # a misspelt field of requests -> a line on it

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.names)

    @property
    def rollouts(self) -> int:
        """How many are requested, those that are done included."""
        return len(self.done)

    @property
    def kept(self) -> int:
        """How many of them are done."""
        return self.done.count(KEPT)

    @property
    def skipped(self) -> int:
        """How many were not run, because their task is decided."""
        return self.done.count(SKIPPED)

    def add(self, name: int, content: str) -> None:
        """One more task, by the hash of its name and the digest of its content."""
        self.names.append(name)
        self.digests.append(int(content, 16))
        self.done.extend(bytes(self.repeats))

    def look_for_typos(self, params: Json, place: Callable[[], str]) -> None:
        """Note a field that looks like a known one, once; it is sent as it is."""
        for name, near in misspelt(params) if not params.keys() <= KNOWN else ():
            if name not in self.hints and len(self.hints) < _MOST_PROBLEMS:
                self.hints[name] = (
                    f'{place()}: "responses_create_params.{name}" is not a known field; did you mean "{near}"?'
                    " It is sent as it is"
                )

    def digest(self, index: int) -> str:
        """The digest of a task's content."""
        return f"{self.digests[index]:016x}"

    def mark(self, earlier: Earlier) -> list[int]:
        """Mark what the output has. Returns the tasks whose name is there with other content."""
        if not earlier.rows:
            return []
        import numpy as np

        names, digests, repeats = earlier.columns()
        rows = np.argsort(names)  # in the order of names a search is many times faster
        names, digests, repeats = names[rows], digests[rows], repeats[rows]
        self.repeated = self.repeated or bool((names[1:] == names[:-1]).any())
        own, contents = np.frombuffer(self.names, "<u8"), np.frombuffer(self.digests, "<u8")
        order = np.argsort(own)
        places = np.searchsorted(own[order], names)
        places[places == len(own)] = 0
        index = order[places]
        ours = own[index] == names
        other = ours & (digests != 0) & (digests != contents[index])
        good = ours & ~other & (repeats >= 0) & (repeats < self.repeats)
        done = np.frombuffer(self.done, "u1")
        done[index[good] * self.repeats + repeats[good]] = 1
        return [int(task) for task in np.unique(index[other])]


class InputProblems:
    """What is wrong with the tasks: one line for each kind of problem, with the first place it occurs."""

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
    """The names so far, as hashes; equal ones get `#2`, `#3` …"""

    def __init__(self, known: array[int] | None = None) -> None:
        self._names: set[int] = set()
        self._known: Any = None  # sorted: a set of a million takes ten times the memory
        if known:
            import numpy as np

            self._known = np.sort(np.frombuffer(known, "<u8"))
        self._last: dict[int, int] = {}  # of names met again: the last number, so that a million equal rows stay cheap

    def __contains__(self, place: int) -> bool:
        if place in self._names or self._known is None:
            return place in self._names
        at = self._known.searchsorted(self._known.dtype.type(place))
        return bool(at < len(self._known) and self._known[at] == place)

    def add(self, name: str) -> tuple[int, str]:
        """The hash of a new name, and what makes it one; nothing for most."""
        suffix, place = "", name_hash(name)
        if place in self:
            first, number = place, self._last.get(place, 1) + 1
            while (place := name_hash(f"{name}#{number}")) in self:
                number += 1
            self._last[first] = number
            suffix = f"#{number}"
        self._names.add(place)
        return place, suffix


def refuse_taken(
    taken: list[tuple[int, str, str]], count: int, place: Callable[[int], str], output: Path | None
) -> None:
    """Raise if a key of the input is in the output with other content: line, key and digest of the first."""
    if taken:
        number, key, content = taken[0]
        more = f" (and {count - 1} more like it)" if count > 1 else ""
        raise InputError(
            f"{place(number)}: the key {key!r} is in {output} with other content{more}; set allow_mixed "
            f"to add it under a key with @{content}, or choose another output (see docs/rollouts.md#keys)"
        )


def survey(tasks: Tasks, selection: TaskSelection, earlier: Earlier, known: Plan | None = None) -> Plan:
    """Check every row and give every task its name. `known` has the first tasks, checked by an earlier run."""
    check_selection(selection)
    plan = known or Plan(selection.repeats, repeated=selection.repeats > 1)
    plan.look_for_typos(selection.params, lambda: "command line")
    problems = InputProblems(tasks.place)
    lines = tasks.lines(plan.surveyed)
    names: Names | None = None
    read = plan.tasks
    while selection.limit is None or read < selection.limit:
        try:
            number, line = next(lines)
            read += 1
            row = parse_task(line)
            agent = known_agent(selection.agent_for(row), selection.agents)
        except StopIteration:
            break
        except LongLineError as error:
            raise InputError(*problems.lines(), *error.problems) from None
        except ValueError as error:
            problems.add(number, str(error))
            continue
        names = names or Names(plan.names)
        plan.agents.add(agent)
        plan.look_for_typos(row["responses_create_params"], partial(tasks.place, number))
        content = digest(row)
        place, suffix = names.add(own_id(row) or content)
        if suffix:
            plan.suffixes[plan.tasks] = suffix
        plan.add(place, content)
        plan.lines = number
    problems.refuse()
    if not plan.tasks:
        raise InputError(f"{tasks.name}: no tasks in it (see docs/rollouts.md#task)")
    taken = plan.mark(earlier)
    if taken:
        _rename(tasks, selection, plan, taken, earlier)
    return plan


def _rename(tasks: Tasks, selection: TaskSelection, plan: Plan, taken: list[int], earlier: Earlier) -> None:
    """Tasks whose name the output has with other content get names of their own, or are refused."""
    wanted = set(taken)
    named: list[tuple[int, str, str]] = []
    for index, (number, line) in enumerate(tasks.lines()):
        if index in wanted:
            content = plan.digest(index)
            name = (own_id(orjson.loads(line)) or content) + plan.suffixes.get(index, "")
            named.append((number, name, content))
            plan.suffixes[index] = f"{plan.suffixes.get(index, '')}@{content}"
            plan.names[index] = name_hash(f"{name}@{content}")
            if len(named) == len(wanted) or not selection.allow_mixed:
                break
    if not selection.allow_mixed:
        refuse_taken(named, len(taken), tasks.place, earlier.output)
    plan.mark(earlier)


def check_selection(selection: TaskSelection) -> None:
    """What is put into every task must leave it one, and the agent must be known."""
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
    """The jobs of a plan, task by task. Reading stops at what cannot be read, and `note` reports it."""

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
    repeats, start = selection.repeats, plan.surveyed
    if plan.done.find(0, 0, start.tasks * repeats) >= 0:
        start = BEGINNING
    for index, (number, line) in enumerate(tasks.lines(start), start.tasks):
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
    """The row that the survey checked, which equal content needs not be again; a `ValueError` if it is another now."""
    try:
        row: Json = orjson.loads(line)
        if digest(row) == content:
            return row
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    parse_task(line)
    raise ValueError("its content is not what was checked")
