"""Convert another tool's file, line by line, into rollouts or tasks.

All mistakes are reported together, each with its line. A file with mistakes is not imported unless bad lines may be
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.imports import from_nemo_gym, from_openai_chat
from velodrome.exchange.problems import FLAWS, Problems
from velodrome.records.jsonl import read_lines
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.records.rollout import encode, split_key
from velodrome.records.task import task_id
from velodrome.settings.files import file_problem

Kind = Literal["rollouts", "tasks"]
Convert = Callable[[Any, int], Iterable[Json]]  # a line's value and number -> what it becomes

FORMATS = {
    "nemo_gym": "NeMo Gym's rollouts and tasks",
    "openai_chat": "logs of chat completions: requests and answers, or conversations",
}
_MOST_RENAMED = 20


@dataclass(frozen=True)
class ImportOrder:
    """What to import."""

    format: str
    source: Path
    to: Path
    kind: Kind = "rollouts"
    agent: str | None = None
    skip_bad: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class ImportResult:
    """What came of it."""

    lines: int
    written: int
    repeated: int  # tasks that were there already
    bad: int
    notes: list[str]
    renamed: list[str] = field(default_factory=list)  # rollouts whose key was there before, the first of them


def import_file(order: ImportOrder) -> ImportResult:
    """Write the imported file, whole or not at all."""
    if order.format not in FORMATS:
        raise InputError(f"no format {order.format!r} to import; there are {', '.join(FORMATS)}")
    if (problem := file_problem(order.source)) is not None:
        raise InputError(problem)
    refuse_existing([order.to], [order.source], overwrite=order.overwrite)
    convert, problems = _converter(order), Problems()
    lines = written = 0
    kept = _Tasks() if order.kind == "tasks" else _Keys(lambda: _all_keys(order))
    with OutFile(order.to) as out:
        for number, line in read_lines(order.source):
            lines += 1
            with problems.at(f"{order.source}:{number}", FLAWS):
                rows = [kept.admit(row, number) for row in convert(orjson.loads(line), number)]
                data = [encode(row) for row in rows if row is not None]
                for each in data:
                    out.write(each)
                written += len(data)
        if not order.skip_bad:
            problems.refuse("nothing is written; --skip-bad leaves such lines out")
        if not written:
            raise InputError(f"{order.source}: nothing in it to import", *problems.lines())
        out.commit()
    renamed = [f"{order.source}:{what}" for what in kept.renamed]
    return ImportResult(lines, written, kept.repeated, problems.count, problems.lines(), renamed)


def _all_keys(order: ImportOrder) -> Iterator[str]:
    """Every key that the file has, read from its start."""
    convert = _converter(order)
    for number, line in read_lines(order.source):
        try:
            yield from [row["meta"]["key"] for row in convert(orjson.loads(line), number)]
        except FLAWS:
            continue  # reported when the line itself is imported


def _converter(order: ImportOrder) -> Convert:
    if order.format == "openai_chat":
        if order.kind == "tasks":
            return lambda row, place: [_named(from_openai_chat.read_line(row, place)[0], order.agent)]
        return from_openai_chat.Chats(order.agent).rollouts
    if order.kind == "tasks":
        return lambda row, place: [_named(from_nemo_gym.task(row), order.agent)]
    return lambda row, place: [_run_by(from_nemo_gym.rollout(row), order.agent)]


def _named(task: Json, agent: str | None) -> Json:
    return task if agent is None else {**task, "agent_ref": {"name": agent}}


def _run_by(row: Json, agent: str | None) -> Json:
    return row if agent is None else {**row, "meta": {**row["meta"], "agent": agent}}


class _Tasks:
    """Each task once, however often it was run."""

    def __init__(self) -> None:
        self.repeated = 0
        self.renamed: list[str] = []
        self._seen: set[int] = set()

    def admit(self, task: Json, line: int) -> Json | None:
        """The task, if it is new."""
        name = hash(task_id(task))
        self.repeated += name in self._seen
        if name in self._seen:
            return None
        self._seen.add(name)
        return task


class _Keys:
    """Each key once: a second rollout with the same one becomes a repeat of its task that no line of the file is."""

    def __init__(self, every: Callable[[], Iterable[str]]) -> None:
        self.repeated = 0
        self.renamed: list[str] = []
        self._seen: set[int] = set()
        self._every = every
        self._taken: set[int] | None = None  # all keys of the file, and those given away; read when it matters
        self._next: dict[str, int] = {}

    def admit(self, row: Json, line: int) -> Json | None:
        """The rollout, under a key of its own."""
        key = row["meta"]["key"]
        if hash(key) not in self._seen:
            self._seen.add(hash(key))
            return row
        self.repeated += 1
        if self._taken is None:
            self._taken = {hash(each) for each in self._every()}
        task, repeat = split_key(key)
        repeat = self._next.get(task, repeat)
        while hash(f"{task}/{repeat}") in self._taken:
            repeat += 1
        self._next[task] = repeat + 1
        own = f"{task}/{repeat}"
        self._taken.add(hash(own))
        if len(self.renamed) < _MOST_RENAMED:
            self.renamed.append(f"{line}: its key {key} was there before; it is {own} now")
        return {**row, "meta": {**row["meta"], "key": own, "rollout_index": repeat}}
