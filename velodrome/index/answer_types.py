"""What the index returns: plain values.

`number` identifies an entry: its line in the rollouts file, counted from 1; for a failure `FAILED` plus its line in
the failures file. It stays the same for as long as the file does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from velodrome.records.rollout import FAILED as FAILED

STATES = ("kept", "deferred", "failed")  # the index stores their positions
KEPT_STATE, DEFERRED_STATE, FAILED_STATE = STATES
ANY = "*"  # as the value of a filter: any value matches


@dataclass(frozen=True, slots=True)
class Entry:
    """One rollout of a list. `numbers` has its numeric fields, by their names in filters."""

    number: int
    key: str
    task: str
    agent: str
    state: str
    error: str | None
    prompt: str
    answer: str
    numbers: dict[str, float] = field(default_factory=dict)
    outcome: str = ""  # how it ended; empty for a failure

    @property
    def line(self) -> int:
        """The line number in its file."""
        return self.number - FAILED if self.number > FAILED else self.number

    @property
    def reward(self) -> float | None:
        """The reward, if there is one."""
        return self.numbers.get("reward")

    @property
    def repeat(self) -> int | None:
        """The number of this repeat of the task."""
        repeat = self.numbers.get("repeat")
        return None if repeat is None else int(repeat)


T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a sorted list of `total` rollouts or tasks. `next` and `previous` are the offsets of the parts beside it.

    `note` says what a search does not cover.
    """

    entries: tuple[T, ...]
    next: int | None = None
    previous: int | None = None
    total: int = 0
    note: str | None = None
    waiting: bool = False  # a field is still being computed, so nothing is listed yet


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """All rollouts of one task. `n` counts kept ones, `scored` those with a reward; rates are over `scored`."""

    task: str
    n: int
    failed: int
    scored: int
    passed: int
    pass_rate: float | None
    mean_reward: float | None
    prompt: str = ""  # of its first entry
    matching: int | None = None  # how many of its entries match the list's filter


class TaskCounts(NamedTuple):
    """Listed tasks that metrics leave out: tasks with failures only, and rollouts without a task in their key.

    Each such rollout is listed as a task.
    """

    only_failed: int
    without_key: int


@dataclass(frozen=True, slots=True)
class Repeats:
    """Part of the rollouts of one task, by repeat; the summary and the mean time cover all of them."""

    task: TaskSummary
    mean_s: float | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one boundary whose messages differ only in numbers and ids. `numbers` are its first entries."""

    boundary: str
    pattern: str
    count: int
    example: str
    numbers: tuple[int, ...]


class Spread(NamedTuple):
    """The minimum, the maximum and the mean of some numbers."""

    low: float
    high: float
    mean: float


@dataclass(frozen=True, slots=True)
class State:
    """How far the index is: `bytes` of `size` are read."""

    rows: int = 0
    failed: int = 0
    deferred: int = 0
    unreadable: int = 0
    bytes: int = 0
    size: int = 0
    notes: list[str] = field(default_factory=list)
    rebuilt: str | None = None
    rebuilt_at: float = 0.0  # when the file was last found to be replaced
    live: bool = False
    complete: bool = False  # every whole line has been read

    @property
    def entries(self) -> int:
        """The number of entries in a list without a filter."""
        return self.rows + self.failed
