"""What a collection is told, what it has to do, and how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from velodrome.collector.account import Surroundings
from velodrome.collector.attempt import Tried
from velodrome.collector.budget import Budget
from velodrome.collector.plan import Job, Survey
from velodrome.collector.watch.watch import Watcher
from velodrome.serving.connect import Components

Json = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What a collection is told, under its inner names."""

    input: Path
    output: Path
    agent: str | None = None
    limit: int | None = None
    repeats: int = 1
    parallel: int | Literal["auto"] = 16
    overrides: Json = field(default_factory=dict)
    defer: bool = False
    overwrite: bool = False
    allow_mixed: bool = False
    budget: Budget = field(default_factory=Budget)
    drain_s: float = 30.0
    server_wait_s: float = 300.0
    sync_every_s: float = 1.0
    what: str = "Collecting rollouts"
    timing_every: int | None = None
    watchers: Sequence[Watcher] = ()


@dataclass(frozen=True)
class Outcome:
    """How it ended."""

    requested: int
    kept: int
    failed: int
    left: int
    stopped: str | None
    metrics: Json
    reasons: dict[str, int] = field(default_factory=dict)
    profile: Json | None = None
    findings: list[str] = field(default_factory=list)  # of the checks, in short
    unwritten: tuple[str, ...] = ()  # files that tell of the run and could not be written, and why

    @property
    def exit_code(self) -> int:
        """0 all kept, 1 a file could not be written, 3 some failed, 4 stopped by itself, 130 interrupted."""
        if self.unwritten:
            return 1
        if self.stopped is not None:
            return 130 if self.stopped == "interrupted" else 4
        return 3 if self.failed or self.left else 0

    def counts(self) -> Json:
        """The account, for the run file."""
        return {name: getattr(self, name) for name in ("requested", "kept", "failed", "left", "stopped")}

    def summary(self) -> str:
        """The account in one line."""
        why = self.stopped or "the input changed while it was read"
        left = f" + {self.left} not run ({why})" if self.left else ""
        return f"requested {self.requested} = kept {self.kept} + failed {self.failed}{left}"


Attempt = Callable[[Job], Awaitable[Tried]]


@dataclass(frozen=True)
class Work:
    """What is to be done, by whom, and what decides its result (the recipe)."""

    found: Survey
    jobs: Iterator[Job]
    attempt: Attempt
    components: Components
    recipe: Json
    around: Surroundings
    profiled: bool = False  # whether the rows tell of this run: those that are scored again tell of another
