"""Convert another tool's file, line by line, into rollouts or tasks.

All mistakes are reported together, each with its line. A file with mistakes is not imported unless bad lines may be
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import Field

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.imports import from_nemo_gym, from_openai_chat, from_players
from velodrome.exchange.imports.foreign import Convert, ForeignFormat
from velodrome.exchange.problems import FLAWS, Problems
from velodrome.records.jsonl import read_lines
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.records.rollout import encode, split_key
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.values import JsonlFile, Text

FOREIGN_FORMATS: dict[str, ForeignFormat] = {
    each.name: each for each in (from_nemo_gym.FORMAT, from_openai_chat.FORMAT, from_players.FORMAT)
}
_MOST_RENAMED = 20


class ImportOptions(Settings):
    """The options of `velo import`."""

    to: JsonlFile = Field(description="the file to write (.jsonl or .jsonl.zst)")
    kind: Literal["rollouts", "tasks"] = Field("rollouts", alias="as", description="what to make of each line")
    agent: Text | None = Field(None, title="NAME", description="the agent to name [the one the file names]")
    skip_bad: bool = Field(False, description="leave out lines with mistakes")
    overwrite: bool = Field(False, description="replace an existing file")


@dataclass(frozen=True)
class ImportResult:
    """The counts of an import, and notes."""

    lines: int
    written: int
    repeated: int  # tasks or keys of earlier lines
    bad: int
    notes: list[str]
    renamed: list[str] = field(default_factory=list)  # the first few rollouts with the key of an earlier line


def import_file(format: str, source: Path, options: ImportOptions) -> ImportResult:
    """Write the imported file, whole or not at all."""
    if format not in FOREIGN_FORMATS:
        raise InputError(f"no format {format!r} to import; there are {', '.join(FOREIGN_FORMATS)}")
    if (problem := file_problem(source)) is not None:
        raise InputError(problem)
    refuse_existing([options.to], [source], overwrite=options.overwrite)
    reader, problems = FOREIGN_FORMATS[format], Problems()
    converter = (
        _Tasks(reader, source, options.agent) if options.kind == "tasks" else _Keys(reader, source, options.agent)
    )
    lines = written = 0
    with OutFile(options.to) as out:
        for number, line in read_lines(source):
            lines += 1
            with problems.at(f"{source}:{number}", FLAWS):
                data = [encode(row) for row in converter.convert(orjson.loads(line), number)]
                for each in data:
                    out.write(each)
                written += len(data)
        if not options.skip_bad:
            problems.refuse("nothing is written; --skip-bad leaves such lines out")
        if not written:
            raise InputError(f"{source}: nothing in it to import", *problems.lines())
        out.commit()
    renamed = [f"{source}:{what}" for what in converter.renamed]
    return ImportResult(lines, written, converter.repeated, problems.count, problems.lines(), renamed)


def _all_keys(convert: Convert, source: Path) -> Iterator[str]:
    """All keys of the file."""
    for number, line in read_lines(source):
        try:
            yield from [row["meta"]["key"] for row in convert(orjson.loads(line), number)]
        except FLAWS:
            continue  # reported when the line itself is imported


class _Tasks:
    """Converts lines to tasks, each task once."""

    def __init__(self, reader: ForeignFormat, source: Path, agent: str | None) -> None:
        self.repeated = 0
        self.renamed: list[str] = []
        self._read = reader.tasks(source)
        self._agent_field = {} if agent is None else {"agent_ref": {"name": agent}}
        self._seen: set[int] = set()

    def convert(self, value: Any, line: int) -> list[Json]:
        """The task of a line, if it is new."""
        name, task = self._read(value, line)
        if hash(name) in self._seen:
            self.repeated += 1
            return []
        self._seen.add(hash(name))
        return [{**task, **self._agent_field}]


class _Keys:
    """Converts lines to rollouts. A second rollout with the same key becomes a new repeat of its task."""

    def __init__(self, reader: ForeignFormat, source: Path, agent: str | None) -> None:
        self.repeated = 0
        self.renamed: list[str] = []
        self._convert = reader.rollouts(agent, source)
        self._new_converter = partial(reader.rollouts, agent, source)
        self._source = source
        self._seen: set[int] = set()
        self._used_keys: set[int] | None = None  # all keys of the file and all new ones; read at the first conflict
        self._next_repeat: dict[str, int] = {}

    def convert(self, value: Any, line: int) -> list[Json]:
        """The rollouts of a line, each with a unique key."""
        return [self._with_new_key(row, line) for row in self._convert(value, line)]

    def _with_new_key(self, row: Json, line: int) -> Json:
        key = row["meta"]["key"]
        if hash(key) not in self._seen:
            self._seen.add(hash(key))
            return row
        self.repeated += 1
        if self._used_keys is None:
            self._used_keys = {hash(each) for each in _all_keys(self._new_converter(), self._source)}
        task, repeat = split_key(key)
        repeat = self._next_repeat.get(task, repeat)
        while hash(f"{task}/{repeat}") in self._used_keys:
            repeat += 1
        self._next_repeat[task] = repeat + 1
        own = f"{task}/{repeat}"
        self._used_keys.add(hash(own))
        if len(self.renamed) < _MOST_RENAMED:
            self.renamed.append(f"{line}: its key {key} was there before; it is {own} now")
        return {**row, "meta": {**row["meta"], "key": own, "rollout_index": repeat}}
