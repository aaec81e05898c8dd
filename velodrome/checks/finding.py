"""What a check is, and what it finds.

A check reads facts, never rows: what it keeps are counters and a few line numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

import velodrome.checks.thresholds as at
from velodrome.checks.facts import Batch
from velodrome.checks.groups import Groups

Json = dict[str, Any]
Severity = Literal["info", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a check found. `examples` are line numbers, each in the file at the same place of `files`."""

    name: str
    severity: Severity
    message: str
    count: int
    share: float
    examples: list[int]
    advice: str
    files: list[str] = field(default_factory=list)

    def as_json(self) -> Json:
        """As `velo check --json` prints it."""
        return asdict(self)


class Seen:
    """What all checks share: how many rollouts there were, and what is remembered of their tasks."""

    def __init__(self) -> None:
        self.rows = 0
        self.groups = Groups()


class Check:
    """One check: `add` is fed facts, `findings` says what they come to.

    `name` is its heading in docs/checks.md, `severity` the worst it can say, `about` one line for a list.
    """

    name: ClassVar[str]
    severity: ClassVar[Severity]
    about: ClassVar[str]
    advice: ClassVar[str]
    by_task: ClassVar[bool] = False  # whether it reads `seen.groups`

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.hits = 0
        self.examples: list[int] = []

    def add(self, batch: Batch) -> None:
        """Look at some rollouts."""

    def fail(self, failure: Json) -> None:
        """Look at one failed attempt."""

    def findings(self) -> Iterator[Finding]:
        """What was found so far."""
        raise NotImplementedError

    def hit(self, lines: Sequence[int]) -> None:
        """Count rollouts, and remember the first few."""
        if lines:
            self.hits += len(lines)
            if len(self.examples) < at.EXAMPLES:
                self.examples.extend(lines[: at.EXAMPLES - len(self.examples)])

    def share(self, of: int | None = None) -> float:
        """The share of rollouts, or of something else, that was counted."""
        return self.hits / ((self.seen.rows if of is None else of) or 1)

    def found(
        self,
        severity: Severity,
        message: str,
        *,
        count: int | None = None,
        share: float | None = None,
        examples: Sequence[int] | None = None,
    ) -> Finding:
        """A finding of this check."""
        return Finding(
            name=self.name,
            severity=severity,
            message=message,
            count=self.hits if count is None else count,
            share=round(self.share() if share is None else share, 6),
            examples=list(self.examples if examples is None else examples)[: at.EXAMPLES],
            advice=self.advice,
        )


def graded(count: int, share: float, *, warning: float | None = None, error: float | None = None) -> Severity:
    """How bad a share is; a few rollouts are worth a note and no more."""
    if count >= at.FEW:
        if error is not None and share >= error:
            return "error"
        if warning is not None and share >= warning:
            return "warning"
    return "info"


def part(count: int, of: int, what: str) -> str:
    """`12 of 400 answers (3%)`."""
    return f"{count:,} of {of:,} {what} ({percent(count / (of or 1))})"


def percent(share: float) -> str:
    """A share as a person reads it."""
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
