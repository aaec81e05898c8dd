"""What the index answers with: plain values, safe to keep after the index is closed.

`number` names an entry: the line of the rollouts file it stands in, counted from 1; for a failure `FAILED` plus its
line of the failures file. It stays the same for as long as the file does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FAILED = 1_000_000_000  # numbers above it are lines of the failures file
KEPT_STATE, DEFERRED_STATE, FAILED_STATE = "kept", "deferred", "failed"
STATES = (KEPT_STATE, DEFERRED_STATE, FAILED_STATE)  # their places are what the index stores


@dataclass(frozen=True, slots=True)
class Entry:
    """One rollout of a list. `numbers` holds every numeric field it has, by the name a filter knows it by."""

    number: int
    key: str
    task: str
    repeat: int | None
    task_index: int | None
    agent: str
    state: str
    reward: float | None
    error: str | None
    tokens: float | None
    tools: float | None
    turns: float | None
    total_s: float | None
    finished_at: float | None
    prompt: str
    answer: str
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def line(self) -> int:
        """Its line in the file it stands in."""
        return self.number - FAILED if self.number > FAILED else self.number


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of a sorted, filtered list. `next` and `previous` are cursors; `note` says what it does not cover."""

    entries: tuple[Entry, ...]
    next: str | None = None
    previous: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """All rollouts of one task. `n` counts those kept, `scored` those with a reward; the rates are over `scored`."""

    task: str
    n: int
    failed: int
    scored: int
    passed: int
    pass_rate: float | None
    mean_reward: float | None
    first: int | None  # the number of one of its entries
    prompt: str = ""  # of that entry


@dataclass(frozen=True, slots=True)
class Repeats:
    """A stretch of the rollouts of one task, by repeat; its sums and its mean time are of all of them."""

    task: Task
    mean_s: float | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A stretch of the tasks."""

    tasks: tuple[Task, ...]
    next: str | None = None
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Failures alike: one boundary, one message but for numbers and ids. `numbers` are its first entries."""

    boundary: str
    pattern: str
    count: int
    example: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bin:
    """How many values lie from `low` to below `high`; the last bin holds its upper end too."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Where the values of a field lie. `missing` rollouts have none; not `exact`: only the first rollouts counted."""

    field: str
    bins: tuple[Bin, ...]
    count: int
    missing: int
    mean: float | None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """What finished within `width_s` seconds from `at`. Times in which nothing did have no point."""

    at: float
    width_s: float
    kept: int
    failed: int
    tokens: int
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class State:
    """How far the index is. `bytes` of `size` are read; `searchable` entries can be found by their text."""

    rows: int = 0
    failed: int = 0
    deferred: int = 0
    unreadable: int = 0
    bytes: int = 0
    size: int = 0
    searchable: int = 0
    notes: list[str] = field(default_factory=list)
    rebuilt: str | None = None
    anew_at: float = 0.0  # when the file was last found to be another than the one that was read
    live: bool = False
    complete: bool = False  # every whole line there is has been read

    @property
    def entries(self) -> int:
        """Everything a list can show."""
        return self.rows + self.failed
