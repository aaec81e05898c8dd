"""What a format is: how rollouts become its records, and what is said about them.

A format is one module with one `FORMAT`. It sees one unit at a time, a rollout or all chosen rollouts of a task, and
knows nothing of files, filters and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from velodrome.errors import ModelError, describe
from velodrome.read.export.chat import Style, Unfit
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
    settings: tuple[str, ...] = ()
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


def reason(error: Exception) -> str:
    """Why a row has no form in a format, in words."""
    return str(error) if isinstance(error, Unfit | ModelError) else f"it is not a rollout ({describe(error):.80})"


def each_fit(unit: Unit, build: Callable[[Json], Made], tell: Tell) -> list[tuple[Json, Made]]:
    """The rows of a task with what is built from each; those that it cannot be built from are told."""
    found = []
    for row in unit.rows:
        try:
            found.append((row, build(row)))
        except FLAWS as error:
            tell(row, error)
    return found
