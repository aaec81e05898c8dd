"""What is to be run: rows x repeats, minus what the output has already.

`survey` reads the input once, before anything is spent: it finds every bad row and gives every task its key. The
output is read next, and `Survey.mark` notes what is done, one byte per rollout. `jobs` reads the input again while the
collection runs, so rows never pile up in memory.

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

from velodrome.errors import InputError
from velodrome.records.jsonl import LongLineError, read_lines
from velodrome.records.prompt import request_flaw
from velodrome.records.rollout import meta_in
from velodrome.records.task import agent_of, check_input, digest, own_id, parse_task
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
    digest: str | None = None


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
    """What the first pass found, and what the output has of it: `done`, one byte per rollout in the order of `jobs`.

    `digests` and `places` (hash of a name -> its index) tell which task a rollout of the output belongs to.
    """

    repeats: int = 1
    tasks: int = 0
    done: bytearray = field(default_factory=bytearray)
    again: dict[int, str] = field(default_factory=dict)  # task index -> suffix of its id, for equal rows
    agents: set[str] = field(default_factory=set)
    repeated: bool = False  # whether a task may have more than one rollout
    digests: array[int] = field(default_factory=lambda: array("Q"))
    places: dict[int, int] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)  # tasks whose name stands in the output with other content

    @property
    def rollouts(self) -> int:
        return len(self.done)

    @property
    def kept(self) -> int:
        return self.done.count(1)

    def add(self, content: str) -> None:
        """One more task, with the digest of its content; none of its rollouts is done."""
        self.digests.append(int(content, 16))
        self.done.extend(bytes(self.repeats))
        self.tasks += 1

    def mark(self, name: str, repeat: int, content: str | None) -> None:
        """Note a rollout of the output: this repeat of the task of this name. Without a digest the name decides."""
        index = self.places.get(hash(name))
        if index is None:
            index = self.places.get(hash(name.replace(f"@{content}", "")))
            if index is None or content != self.digest(index):
                return
        if content is not None and content != self.digest(index):
            self.taken.add(index)
        elif repeat < self.repeats:
            self.done[index * self.repeats + repeat] = 1

    def digest(self, index: int) -> str:
        """The digest of a task's content."""
        return f"{self.digests[index]:016x}"

    def name(self, index: int, own: str) -> str:
        """The name a task runs under, which is its own unless that is taken."""
        name = own + self.again.get(index, "")
        return f"{name}@{self.digest(index)}" if index in self.taken else name


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


def survey(selection: Selection, agents: Collection[str]) -> Survey:
    """Check every row and give every task its name."""
    _check_overrides(selection.overrides)
    if selection.agent is not None and selection.agent not in agents:
        raise InputError(f"agent_name: {unknown('agent', selection.agent, list(agents))}")
    found = Survey(selection.repeats, repeated=selection.repeats > 1)
    names = Names(found.places)
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
        content = digest(row)
        suffix = names.add(own_id(row) or content, found.tasks)
        if suffix:
            found.again[found.tasks] = suffix
        found.add(content)
    problems.refuse()
    if not found.tasks:
        raise InputError(f"{selection.path}: no tasks in it (see docs/rollouts.md#task)")
    return found


def _check_overrides(overrides: Json) -> None:
    """What the command line puts into every task must leave it one."""
    if "input" in overrides:
        try:
            check_input(overrides["input"])
        except ValueError as error:
            raise InputError(f"command line: {error}") from None
    flaw = request_flaw(overrides)
    if flaw is not None:
        raise InputError(f"command line: responses_create_params: {flaw} (see docs/rollouts.md#task)")


def _known(agent: str | None, agents: Collection[str]) -> str:
    if agent is None:
        names = ", ".join(sorted(agents)) or "none in the config"
        raise ValueError(f'no agent: give +agent_name=…, or "agent_ref": {{"name": …}} in the row (agents: {names})')
    if agent not in agents:
        raise ValueError(unknown("agent", agent, list(agents)))
    return agent


class Names:
    """The names given so far, as hashes, and the index of each; equal ones get `#2`, `#3` …"""

    def __init__(self, places: dict[int, int]) -> None:
        self._places = places
        self._last: dict[int, int] = {}  # of names met again: the last number, so that a million equal rows stay cheap

    def add(self, name: str, index: int) -> str:
        """What makes this name a new one; nothing for most."""
        suffix = ""
        if hash(name) in self._places:
            number = self._last.get(hash(name), 1) + 1
            while hash(f"{name}#{number}") in self._places:
                number += 1
            self._last[hash(name)] = number
            suffix = f"#{number}"
        self._places[hash(name + suffix)] = index
        return suffix


def mark_line(found: Survey, line: bytes) -> bool:
    """Note one line of the output; False if it is not a rollout."""
    meta = meta_in(line)
    if meta is None:
        return False
    name, _, repeat = meta["key"].rpartition("/")
    if repeat.isdecimal():
        content = meta.get("task_digest")
        found.mark(name, int(repeat), content if isinstance(content, str) else None)
    return True


def refuse_taken(found: Survey, source: Path, output: Path, key_of: Callable[[Json, int], str]) -> None:
    """Raise if a key of the input stands in the output with other content."""
    if found.taken:
        index = min(found.taken)
        number, line = next(islice(read_lines(source), index, None))
        key = key_of(orjson.loads(line), index)
        more = f" (and {len(found.taken) - 1} more like it)" if len(found.taken) > 1 else ""
        raise InputError(
            f"{source}:{number}: the key {key!r} stands in {output} with other content{more}; +allow_mixed=true adds "
            f"it under a key with @{found.digest(index)}, another +output_jsonl_fpath keeps them apart "
            "(see docs/rollouts.md#keys)"
        )


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
            content = survey.digest(index)
            row = _as_checked(line, content)
        except ValueError as error:
            problem = f"{selection.path}:{number}: the row changed during the collection: {error}"
            for repeat in range(repeats):
                if not flags[repeat]:
                    yield Job(f"line {number}/{repeat}", index, repeat, "", {}, problem)
            continue
        name = survey.name(index, own_id(row) or content)
        agent = selection.agent_for(row) or ""
        for repeat in range(repeats):
            if flags[repeat]:
                continue
            task = orjson.loads(line) if repeat else row  # its own copy: an environment may write to its task
            if selection.overrides:
                task["responses_create_params"] = task["responses_create_params"] | selection.overrides
            yield Job(f"{name}/{repeat}", index, repeat, agent, task, digest=content)
