"""What a format is: how rollouts become its records, and what is said about them.

A format is one module with one `FORMAT`. It sees one unit at a time, a rollout or all chosen rollouts of a task, and
knows nothing of files, filters and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from velodrome.errors import ModelError
from velodrome.exchange.export.chat import Style, Unfit
from velodrome.records.rollout import split_key

Json = dict[str, Any]
Made = TypeVar("Made")

# What reading a row that is no rollout can raise: fields that are missing, or of another kind.
FLAWS = (ModelError, AttributeError, IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Unit:
    """What becomes a record, or several: one rollout, or the rollouts of one task in the order of the file."""

    split: str
    rows: Sequence[Json]
    sources: Sequence[str] = ()  # the file each row stands in

    @property
    def task(self) -> str:
        """The task's id."""
        return split_key(self.rows[0]["meta"]["key"])[0]


@dataclass(frozen=True)
class Settings:
    """What a format can be told. Each format names those it listens to."""

    style: Style = field(default_factory=Style)
    pairs: int = 1
    margin: float = 0.0
    uses: int = 1
    answer: str = "expected_answer"
    data_source: str | None = None
    ability: str | None = None
    numbers: Sequence[str] = ()  # the numeric fields of the rollouts, for formats with a column each


Convert = Callable[[Unit], Iterable[Json]]
Tell = Callable[[Json, Exception], None]  # a row that is left out, and why


@dataclass(frozen=True)
class Format:
    """One kind of training file."""

    name: str
    about: str
    fields: dict[str, str]  # what stands in a record, for people
    start: Callable[[Settings, Tell], Convert]  # a fresh converter; it may count across units
    content: Callable[[Json], Any]  # what makes two records the same, for --dedupe
    by_task: bool = False
    where: str = ""  # the filter unless another is given
    needs: str = ""  # what a record takes beyond a rollout that fits, for people who got none
    settings: tuple[str, ...] = ()
    episodes: bool = False  # whether it takes rows that are no conversations
    schema: Callable[[Any, Settings], Any] | None = None  # pyarrow and settings -> the schema of a Parquet file

    @property
    def suffix(self) -> str:
        """How a file of this kind is called."""
        return ".jsonl" if self.schema is None else ".parquet"


def only(*names: str) -> Callable[[Json], Any]:
    """The named fields of a record."""
    return lambda record: [record.get(name) for name in names]


def reward_of(row: Json) -> float | None:
    """The reward, or None while there is none that is a number."""
    reward = row.get("reward")
    return float(reward) if isinstance(reward, int | float) else None


def reason(row: Json, error: Exception) -> str:
    """Why a row has no form in a format, in words."""
    if isinstance(error, Unfit | ModelError):
        return str(error)
    flaw = next(_flaws(row), None)
    if flaw is None and isinstance(error, KeyError):
        flaw = f'a part of it has no "{error.args[0]!s:.40}"'
    return f"it is not a rollout: {flaw or 'a part of it is not of the type it should be'}"


def _flaws(row: Json) -> Iterator[str]:
    """What is not as in a rollout, from the outside in."""
    parts = (("responses_create_params", "an object"), ("output", "a list"), ("meta", "an object"))
    for name, wanted in parts:
        if name not in row:
            yield f'it has no "{name}"'
        elif _kind(row[name]) != wanted:
            yield f'"{name}" is {_kind(row[name])} and not {wanted}'
    key = row["meta"].get("key")
    if not isinstance(key, str):
        yield f'"meta.key" is {_kind(key)} and not a text'
    asked = row["responses_create_params"].get("input")
    if not isinstance(asked, str | list):
        yield f'"responses_create_params.input" is {_kind(asked)} and not a text or a list'
    for name, messages in (("responses_create_params.input", asked), ("output", row["output"])):
        strange = next((_kind(each) for each in messages if _kind(each) != "an object"), None)
        if strange is not None and not isinstance(messages, str):
            yield f'"{name}" holds {strange} where a message should stand'


def _kind(value: Any) -> str:
    kinds = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return "null" if value is None else kinds.get(type(value), "an object")


def each_fit(unit: Unit, build: Callable[[Json], Made], tell: Tell) -> list[tuple[Json, Made]]:
    """The rows of a task with what is built from each; those that it cannot be built from are told."""
    found = []
    for row in unit.rows:
        try:
            found.append((row, build(row)))
        except FLAWS as error:
            tell(row, error)
    return found
