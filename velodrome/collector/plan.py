"""What to run: tasks x repeats, minus the rollouts that the output has.

A file or a list is read once before anything is spent (`survey`): every bad row is reported, and every task gets its
name. It is read again while the collection runs, so rows never pile up in memory. Any other iterable is read as the
collection goes (`Stream`), and a bad task of it is a failure.

A key names a task, and a digest of its content says which one: a rollout of other content under the same key is not
this task's. Such a task is an error, or runs under `<key>@<digest>` where mixing is allowed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.collector.earlier import Earlier
from velodrome.errors import InputError
from velodrome.records.jsonl import LongLineError, read_lines
from velodrome.records.prompt import request_flaw
from velodrome.records.task import agent_of, check_input, digest, own_id, parse_task
from velodrome.serving.connect import unknown

Json = dict[str, Any]

_MOST_PROBLEMS = 20


class Job(NamedTuple):
    """One rollout to make, and its place in the plan. `problem` is set if its row cannot be run."""

    key: str
    task_index: int
    rollout_index: int
    agent: str
    task: Json
    problem: str | None = None
    digest: str | None = None
    place: int = 0


class TaskFile:
    """Tasks in a file, by the number of their line."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its number."""
        return read_lines(self._path)


class TaskList:
    """Tasks in memory, by their number from 1."""

    def __init__(self, tasks: Collection[Any]) -> None:
        self.name = "tasks"
        self._lines = [encoded_task(task) for task in tasks]

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every task as a line."""
        return enumerate(self._lines, 1)


Tasks = TaskFile | TaskList


def encoded_task(task: Any) -> bytes:
    """A task as a line; a text is what the model is asked."""
    row = {"responses_create_params": {"input": task}} if isinstance(task, str) else task
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InputError(f"a task is not JSON: {error} (see docs/rollouts.md#task)") from None


@dataclass(frozen=True)
class Selection:
    """How many tasks, how often, and which agent runs them. `agent` beats a row's `agent_ref`; `default` fills in."""

    limit: int | None
    repeats: int
    agent: str | None
    default: str | None
    params: Json
    agents: Collection[str] = ()
    allow_mixed: bool = False

    def agent_for(self, row: Json) -> str | None:
        """Which agent runs this row."""
        return self.agent or agent_of(row) or self.default


@dataclass
class Plan:
    """The tasks of a run, and which of their rollouts are `done`: one byte each, in the order of the jobs."""

    repeats: int = 1
    tasks: int = 0
    done: bytearray = field(default_factory=bytearray)
    suffixes: dict[int, str] = field(default_factory=dict)  # task index -> what its name has added, if anything
    agents: set[str] = field(default_factory=set)
    repeated: bool = False  # whether a task may have more than one rollout
    digests: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def rollouts(self) -> int:
        """How many are requested, those that are done included."""
        return len(self.done)

    @property
    def kept(self) -> int:
        """How many of them are done."""
        return self.done.count(1)

    def add(self, content: str) -> None:
        """One more task, with the digest of its content."""
        self.digests.append(int(content, 16))
        self.done.extend(bytes(self.repeats))
        self.tasks += 1

    def digest(self, index: int) -> str:
        """The digest of a task's content."""
        return f"{self.digests[index]:016x}"

    def finish(self, place: int) -> bool:
        """Mark one rollout as done. False if it was done before: its line must not be written again."""
        if self.done[place]:
            return False
        self.done[place] = 1
        return True


class Problems:
    """What is wrong with the tasks: one line for each kind of problem, with the first place it occurs."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._places: dict[str, list[int]] = {}  # what -> first line number, how often

    def add(self, number: int, what: str) -> None:
        """Note one bad line."""
        if what in self._places:
            self._places[what][1] += 1
        elif len(self._places) < _MOST_PROBLEMS:
            self._places[what] = [number, 1]

    def lines(self) -> list[str]:
        """One line per problem."""
        return [
            f"{self._source}:{number}: {what}" + (f" (and {count - 1} more like it)" if count > 1 else "")
            for what, (number, count) in self._places.items()
        ]

    def refuse(self) -> None:
        """Raise if there is anything wrong."""
        if self._places:
            raise InputError(*self.lines())


class Namer:
    """Gives every task its name, and looks up which of its rollouts the output has."""

    def __init__(self, plan: Plan, earlier: Earlier) -> None:
        self._plan = plan
        self._earlier = earlier
        self._names: set[int] = set()  # hashes
        self._last: dict[int, int] = {}  # of names met again: the last number, so that a million equal rows stay cheap
        self.taken: list[tuple[int, str, str]] = []  # line, name and digest of tasks whose name has other content

    def add(self, number: int, own: str, content: str) -> str:
        """Add a task to the plan. Returns the name it runs under: its own, with a suffix if that is not free."""
        plan, earlier = self._plan, self._earlier
        index, suffix = plan.tasks, self._suffix(own)
        name = own + suffix
        plan.add(content)
        if earlier.rows:
            if earlier.taken(name, content):
                self.taken.append((number, name, content))
                suffix += f"@{content}"
                name = own + suffix
            for repeat in range(plan.repeats):
                if earlier.has(name, repeat):
                    plan.done[index * plan.repeats + repeat] = 1
        if suffix:
            plan.suffixes[index] = suffix
        return name

    def _suffix(self, name: str) -> str:
        """What makes this name a new one; nothing for most."""
        suffix = ""
        if hash(name) in self._names:
            number = self._last.get(hash(name), 1) + 1
            while hash(f"{name}#{number}") in self._names:
                number += 1
            self._last[hash(name)] = number
            suffix = f"#{number}"
        self._names.add(hash(name + suffix))
        return suffix


def refuse_taken(taken: list[tuple[int, str, str]], source: str, output: Path | None) -> None:
    """Raise if a key of the input is in the output with other content: line, key and digest of each."""
    if taken:
        number, key, content = taken[0]
        more = f" (and {len(taken) - 1} more like it)" if len(taken) > 1 else ""
        raise InputError(
            f"{source}:{number}: the key {key!r} is in {output} with other content{more}; +allow_mixed=true adds "
            f"it under a key with @{content}, another +output_jsonl_fpath keeps them apart "
            "(see docs/rollouts.md#keys)"
        )


def survey(tasks: Tasks, selection: Selection, earlier: Earlier) -> Plan:
    """Check every row and give every task its name."""
    check_selection(selection)
    plan = Plan(selection.repeats, repeated=selection.repeats > 1)
    namer = Namer(plan, earlier)
    problems = Problems(tasks.name)
    lines = tasks.lines()
    read = 0
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
        plan.agents.add(agent)
        content = digest(row)
        namer.add(number, own_id(row) or content, content)
    problems.refuse()
    if not plan.tasks:
        raise InputError(f"{tasks.name}: no tasks in it (see docs/rollouts.md#task)")
    if not selection.allow_mixed:
        refuse_taken(namer.taken, tasks.name, earlier.output)
    return plan


def check_selection(selection: Selection) -> None:
    """What is put into every task must leave it one, and the agent must be known."""
    params = selection.params
    if "input" in params:
        try:
            check_input(params["input"])
        except ValueError as error:
            raise InputError(f"command line: {error}") from None
    flaw = request_flaw(params)
    if flaw is not None:
        raise InputError(f"command line: responses_create_params: {flaw} (see docs/rollouts.md#task)")
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


def jobs(tasks: Tasks, selection: Selection, plan: Plan) -> Iterator[Job]:
    """The rollouts still to make, task by task."""
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
            problem = f"{tasks.name}:{number}: the row changed during the collection: {error}"
            for repeat in range(repeats):
                if not plan.done[first + repeat]:
                    yield Job(f"line {number}/{repeat}", index, repeat, "", {}, problem, place=first + repeat)
            continue
        name = (own_id(row) or content) + plan.suffixes.get(index, "")
        yield from task_jobs(plan, selection, index, name, row, line)


def task_jobs(plan: Plan, selection: Selection, index: int, name: str, row: Json, line: bytes) -> Iterator[Job]:
    """The rollouts of one task that are still to make."""
    agent, content = selection.agent_for(row) or "", plan.digest(index)
    for repeat in range(plan.repeats):
        place = index * plan.repeats + repeat
        if plan.done[place]:
            continue
        task = orjson.loads(line) if repeat else row  # its own copy: an environment may write to its task
        if selection.params:
            task["responses_create_params"] = task["responses_create_params"] | selection.params
        yield Job(f"{name}/{repeat}", index, repeat, agent, task, None, content, place)


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
