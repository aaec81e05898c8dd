"""Convert a data set to tasks: one prompt for every row, with the checks of the collector.

All mistakes are reported together, each with its place. A file with mistakes is not converted unless bad rows may be
skipped. A shuffle holds all tasks in memory.

A prompt has places to fill in: `What is {question}?`. A place names a field, or a path through objects
(`{meta.topic}`). `{{` and `}}` are braces. Nothing else is interpreted, so the text of a data set can neither access an
attribute, nor call anything, nor act as a template.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.data.messages import conversation, is_messages, offered
from velodrome.exchange.data.sources import HUB, read_rows
from velodrome.exchange.problems import Problems
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.records.task import parse_task
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, JsonlFile, Names, Text

ANSWER = "expected_answer"
_TAKEN = frozenset(("responses_create_params", "agent_ref", "id"))
_ENCODE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
_PIECE = re.compile(r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})|\{(?P<name>[^{}]+)\}|(?P<bad>[{}])")


class Missing(ValueError):
    """A field that a row does not have."""


class Template:
    """A parsed prompt. A mistake in it raises an `InputError` with its place."""

    def __init__(self, text: str, what: str) -> None:
        self._pieces: list[tuple[str, bool]] = []  # text, or the name of a field
        for match in _PIECE.finditer(text):
            if match["bad"]:
                raise InputError(
                    f'{what}, character {match.start() + 1}: a "{match["bad"]}" alone; '
                    'write a field as {name}, and double a brace: "{{"'
                )
            name = match["name"]
            self._pieces.append((name.strip(), True) if name else (match["text"] or match["brace"][0], False))
        self.fields = tuple(dict.fromkeys(text for text, is_field in self._pieces if is_field))

    @property
    def alone(self) -> str | None:
        """The field, if the template is only one field."""
        return self.fields[0] if len(self._pieces) == 1 and self.fields else None

    def fill(self, row: Json) -> str:
        """The text for one row. Raises `Missing` for a field that is absent or null."""
        return "".join(self._filled(row, text) if is_field else text for text, is_field in self._pieces)

    def _filled(self, row: Json, name: str) -> str:
        value = field(row, name)
        if is_messages(value):
            raise ValueError(f'"{name}" is a list of messages, not text; use it alone: --prompt "{{{name}}}"')
        return as_text(value)


def field(row: Json, name: str) -> Any:
    """The value of a field. A name with dots is a path through objects, unless a field has exactly that name."""
    value: Any = row
    for part in [name] if name in row else name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        names = ", ".join(str(name)[:40] for name in list(row)[:12])
        raise Missing(f'no "{name}" in it, or it is null (there are: {names or "no fields"})')
    return value


def as_text(value: Any) -> str:
    """A value as text for a prompt; anything but a string is JSON."""
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


class PrepareOptions(Settings):
    """The options of `velo data prepare`."""

    to: JsonlFile = Field(description="the file of tasks to write (.jsonl or .jsonl.zst)")
    prompt: str = Field(
        description='the user message; fields as {name}, braces as "{{" and "}}"; a field of messages, alone: those'
    )
    system: str | None = Field(None, description="the system message; it can have fields too")
    answer: Text | None = Field(None, title="COLUMN", description="the column that becomes expected_answer")
    tools: Text | None = Field(
        None, title="COLUMN", description="the column with the tools on offer: a list, or one as JSON text"
    )
    keep: Names = Field((), title="COLUMNS", description="more columns to keep: col,col")
    id: Text | None = Field(None, title="COLUMN", description="the column with task ids [a hash of the content]")
    agent: Text | None = Field(None, title="NAME", description="the agent that runs them (agent_ref)")
    limit: Count | None = Field(None, description="the most tasks, after shuffling")
    shuffle: bool = Field(False, description="shuffle, in an order that the seed decides")
    seed: int = Field(0, description="the seed of the shuffle")
    skip_bad: bool = Field(False, description="leave out rows with mistakes")
    overwrite: bool = Field(False, description="replace an existing file")


@dataclass(frozen=True)
class PrepareResult:
    """The counts of a preparation, and notes."""

    rows: int
    written: int
    bad: int
    notes: list[str]


class Maker:
    """Converts rows to tasks."""

    def __init__(self, order: PrepareOptions) -> None:
        self._order = order
        self._prompt = Template(order.prompt, "--prompt")
        self._system = Template(order.system, "--system") if order.system is not None else None
        if not self._prompt.fields:
            raise InputError("--prompt: no field in it, so every task would be the same; write a field as {name}")
        self.with_tools = 0  # rows that have the column of the tools
        reserved = {*_TAKEN, *([ANSWER] if order.answer else [])} & set(order.keep)
        if reserved:
            raise InputError(f"--keep: {', '.join(sorted(reserved))} is set by the task itself")

    def task(self, row: Json) -> Json:
        """The task of one row. Raises a `ValueError` for a missing field."""
        order = self._order
        task: Json = {}
        if order.id is not None:
            task["id"] = as_text(field(row, order.id))
            if not task["id"].strip():
                raise Missing(f'"{order.id}" is empty')
        task["responses_create_params"] = {"input": self._question(row), **self._tools(row)}
        if order.answer is not None:
            answer = field(row, order.answer)
            if answer == "":
                raise Missing(f'"{order.answer}" is empty')
            task[ANSWER] = answer if isinstance(answer, list | dict) else as_text(answer)
        for name in order.keep:
            if name not in row:
                field(row, name)
            task[name] = row.get(name)
        if order.agent is not None:
            task["agent_ref"] = {"name": order.agent}
        return task

    def _question(self, row: Json) -> list[Json]:
        system = self._system.fill(row) if self._system is not None else None
        name = self._prompt.alone
        value = field(row, name) if name is not None else None
        if name is not None and is_messages(value):
            return conversation(value, name, system)
        text = self._prompt.fill(row)
        if all(not as_text(field(row, name)).strip() for name in self._prompt.fields):
            raise Missing(f'"{", ".join(self._prompt.fields)}" is empty, so the prompt asks nothing')
        question = [{"role": "user", "content": text}]
        return question if system is None else [{"role": "system", "content": system}, *question]

    def _tools(self, row: Json) -> Json:
        if self._order.tools is None:
            return {}
        try:
            tools = offered(field(row, self._order.tools), self._order.tools)
        except Missing:  # exports leave the field out where there are none
            return {}
        self.with_tools += 1
        return {"tools": tools} if tools else {}


def prepare(source: str, order: PrepareOptions) -> PrepareResult:
    """Write the tasks, whole or not at all."""
    maker, problems = Maker(order), Problems()
    sources = [] if source.startswith(HUB) else [Path(source)]
    refuse_existing([order.to], sources, overwrite=order.overwrite)
    rows, written, shuffled_lines, ids = 0, 0, list[bytes](), set[int]()
    with OutFile(order.to) as out:
        for where, row in read_rows(source):
            if not order.shuffle and written == order.limit:
                break
            rows += 1
            with problems.at(where):
                line = _line(maker, row, ids)
                shuffled_lines.append(line) if order.shuffle else out.write(line)
                written += 1
        if not order.skip_bad:
            problems.refuse("nothing is written; --skip-bad leaves such rows out")
        if not written:
            raise InputError(f"{source}: no rows in it", *problems.lines())
        if order.tools is not None and not maker.with_tools:
            raise InputError(f'--tools: no row has "{order.tools}"')
        if order.shuffle:
            random.Random(order.seed).shuffle(shuffled_lines)
            written = len(chosen := shuffled_lines[: order.limit])
            out.write(b"".join(chosen))
        out.commit()
    return PrepareResult(rows, written, problems.count, problems.lines())


def _line(maker: Maker, row: Json | str, ids: set[int]) -> bytes:
    if isinstance(row, str):
        raise ValueError(row)
    task = maker.task(row)
    try:
        line = orjson.dumps(task, default=_plain, option=_ENCODE)
    except TypeError as error:
        raise ValueError(f"a field that is kept has no form in JSON ({error.__cause__ or error})") from error
    parse_task(line)
    if "id" in task:
        if hash(task["id"]) in ids:
            raise ValueError("its id is that of an earlier row (without --id, tasks are named by their content)")
        ids.add(hash(task["id"]))
    return line


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        raise TypeError("it holds bytes")
    return str(value)
