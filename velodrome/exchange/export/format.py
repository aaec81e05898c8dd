"""A format: how rollouts become its records, and how they are described.

A format is a `Format` in the list of `formats.py`. It sees one unit at a time, a rollout or all chosen rollouts of a
task, and knows nothing of files, filters and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BeforeValidator, Field

from velodrome.contracts import Json
from velodrome.errors import ModelError
from velodrome.exchange.export.chat import Arguments, Reasoning, Style, Unfit
from velodrome.exchange.problems import FLAWS
from velodrome.records.facts import RowFacts
from velodrome.records.mending import mended
from velodrome.records.rollout import split_key
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, FilePath, Text

Made = TypeVar("Made")


@dataclass(frozen=True)
class Unit:
    """The source of one record or several: one rollout, or all rollouts of a task in the order of the file."""

    split: str
    rows: Sequence[Json]
    sources: Sequence[str] = ()  # the file of each row

    @property
    def task(self) -> str:
        return split_key(self.rows[0]["meta"]["key"])[0]


class ExportSettings(Settings):
    """The settings of all formats. Each format names those it uses."""

    arguments: Arguments = Field(
        "object", description="of tool calls: objects, as TRL takes them, or JSON text, as OpenAI does"
    )
    reasoning: Reasoning = Field("keep", description="a field of its own, left out, or <think> in the text")
    pairs: int = Field(1, ge=1, description="dpo: at most so many pairs per task")
    margin: float = Field(0.0, description="dpo: the rewards of a pair differ at least by this")
    answer: str = Field("expected_answer", description="verl, grpo: the field with the task's answer")
    data_source: str | None = Field(None, description="verl: its data_source [the task's, else the agent]")

    @property
    def style(self) -> Style:
        return Style(self.arguments, self.reasoning)


def _shares(value: Any) -> Any:
    """`{"train": 0.9, "test": 0.1}` of Python as it is typed."""
    return ",".join(f"{name}={share}" for name, share in value.items()) if isinstance(value, Mapping) else value


class ExportOptions(ExportSettings):
    """What is exported, in which order, and in what form."""

    to: FilePath = Field(description="a file, or a folder (a name without a suffix)")
    where: str | None = Field(
        None,
        title="FILTER",
        description='which rollouts, as in velo view [sft: "reward>=1"; else all]',
    )
    split: Annotated[Text, BeforeValidator(_shares)] | None = Field(
        None, title="SHARES", description="train=0.9,test=0.1: shares of the tasks; a task is in one split only"
    )
    seed: int = Field(0, description="the seed of the shuffle and the split")
    shuffle: bool = Field(False, description="shuffle, in an order that the seed decides")
    dedupe: bool = Field(False, description="leave out records that equal an earlier one")
    limit: Count | None = Field(None, description="the most records in all")
    overwrite: bool = Field(False, description="replace existing files")

    @property
    def style(self) -> Style:
        return replace(super().style, table=self.to.name.endswith(".parquet"))


Convert = Callable[[Unit], Iterable[Json]]
LeaveOut = Callable[[Json, Exception], None]  # a row that is left out, and why


@dataclass(frozen=True)
class Format:
    """One kind of training file."""

    name: str
    about: str
    fields: dict[str, str]  # what a record holds, for people
    start: Callable[[ExportSettings, LeaveOut], Convert]  # a fresh converter; it may count across units
    content: Callable[[Json], Any]  # what makes two records the same, for --dedupe
    by_task: bool = False
    where: str = ""  # the default filter
    needs: str = ""  # what a record takes beyond a rollout that fits, for people who got none
    settings: tuple[str, ...] = ()
    episodes: bool = False  # whether it takes rows that are not conversations
    schema: Callable[[Any, Sequence[str]], Any] | None = None  # pyarrow, numeric fields -> the schema of a Parquet file
    types: Callable[[ExportSettings], Json] = lambda settings: {}  # of its columns, in the words of a data card
    loose_schema: Callable[[Any, Sequence[str]], Any] | None = None  # the schema of a file with a record that is loose
    loose: Callable[[Json], bool] = lambda record: False  # whether a record does not fit `schema`
    remarks: Callable[[Json], Sequence[str]] = lambda record: ()  # what its user must know; each is printed once

    @property
    def suffix(self) -> str:
        return ".jsonl" if self.schema is None else ".parquet"


def only(*names: str) -> Callable[[Json], Any]:
    return lambda record: [record.get(name) for name in names]


def per_rollout(make: Callable[[Json], Json]) -> Convert:
    """The converter of a format with one record for each rollout."""
    return lambda unit: map(make, unit.rows)


def as_text(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def reward_of(row: Json) -> float | None:
    """The reward, or None if it is not a number."""
    reward = row.get("reward")
    return float(reward) if isinstance(reward, int | float) else None


def scored(row: Json) -> float:
    """The reward; a rollout without one is unfit."""
    reward = reward_of(row)
    if reward is None:
        raise Unfit("it has no reward")
    return reward


def reason(row: Json, error: Exception) -> str:
    if isinstance(error, Unfit | ModelError):
        return str(error)
    facts = RowFacts(row)
    wrong = dict.fromkeys([*facts.wrong, *mended(row)[1]])
    flaws = [*(f"no {name}" for name in facts.missing), *(f"{name} of a wrong type" for name in wrong)]
    return f"it is not a rollout: {', '.join(flaws) or 'a part of it has a wrong type'}"


def each_fit(unit: Unit, build: Callable[[Json], Made], leave_out: LeaveOut) -> list[tuple[Json, Made]]:
    """The rows of a task with the result of `build` for each; rows for which it fails are reported."""
    fitting = []
    for row in unit.rows:
        try:
            fitting.append((row, build(row)))
        except FLAWS as error:
            leave_out(row, error)
    return fitting
