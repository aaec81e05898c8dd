"""How a run ended: the counts, the metrics, and the rollouts themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import MetricError
from velodrome.records.rollout import beside
from velodrome.records.rows import Unread, read_rows
from velodrome.records.views import Rollout
from velodrome.settings.names import hint

Json = dict[str, Any]

TERMINATED = "terminated"  # the run received SIGTERM
CHANGED = "another program changed a file of the run"
REFUSED = "every call was refused"  # a wrong key, model name or missing rights


class RunMetrics(dict[str, Any]):
    """The metrics of a run. One that it does not have is an error that says why; `get` gives None."""

    def __init__(self, metrics: Json, why: str = "") -> None:
        super().__init__(metrics)
        self._why = why

    def __missing__(self, name: str) -> Any:
        raise MetricError(f'no metric "{name}"{self._why or hint(name, self)}')


@dataclass(repr=False)
class Run:
    """The result of a collection. Requested = kept + failed + `skipped` + `left` (not run, because it was stopped)."""

    requested: int
    kept: int
    failed: int
    left: int
    stopped: str | None  # why it ended early
    metrics: Json
    reasons: dict[str, int] = field(default_factory=dict)  # of failures, the most frequent first
    profile: Json | None = None  # where the time went
    findings: list[str] = field(default_factory=list)  # of the checks, in short
    unwritten: tuple[str, ...] = ()  # files about the run that could not be written, and why
    output: Path | None = None
    lines: list[bytes] = field(default_factory=list)  # without an output
    failed_attempts: list[Json] = field(default_factory=list)  # without an output
    skipped: int = 0  # repeats of tasks that were decided (`stop_task_when`)

    def __post_init__(self) -> None:
        reasons = "".join(f"; {count} x {reason}" for reason, count in list(self.reasons.items())[:1])
        later = "; deferred rewards come with verify" if "rollouts/deferred" in self.metrics else ""
        self.metrics = RunMetrics(self.metrics, later if self.kept else f": {self.summary()}{reasons}")

    @cached_property
    def rollouts(self) -> list[Rollout]:
        """The rollouts: those of this run if they were kept in memory, else all of the output."""
        rows = [orjson.loads(line) for line in self.lines] if self.output is None else _rows(self.output)
        return [Rollout(row) for row in rows]

    @cached_property
    def failures(self) -> list[Json]:
        """The failed attempts: those of this run if there is no output, else all beside the output."""
        return self.failed_attempts if self.output is None else _rows(beside(self.output, "failures.jsonl"))

    @property
    def exit_code(self) -> int:
        """0 all kept, 1 a file not written, 2 refused, 3 some failed, 4 stopped, 130 interrupted, 143 terminated."""
        if self.unwritten:
            return 1
        if self.stopped is not None:
            return {"interrupted": 130, TERMINATED: 143, REFUSED: 2}.get(self.stopped, 4)
        return 3 if self.failed or self.left else 0

    def __repr__(self) -> str:
        return f"<Run: {self.summary()}>"

    def counts(self) -> Json:
        """The counts, for the run file."""
        counts = {name: getattr(self, name) for name in ("requested", "kept", "failed", "left", "stopped")}
        return counts | ({"skipped": self.skipped} if self.skipped else {})

    def summary(self) -> str:
        """The counts in one line."""
        why = self.stopped or "the input changed while it was read"
        left = f" + {self.left} not run ({why})" if self.left else ""
        skipped = f" + {self.skipped} skipped (stop_task_when)" if self.skipped else ""
        return f"requested {self.requested} = kept {self.kept} + failed {self.failed}{skipped}{left}"


def _rows(path: Path) -> list[Json]:
    return [row for _, row, _ in read_rows(path, Unread(path))] if path.exists() else []
