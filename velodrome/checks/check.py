"""The base classes of checks, and their findings.

A check reads the facts of rows and keeps counters and a few line numbers, never rows. To add one, write a class in the
file of its family, add it to `CHECKS` there, and describe it under its name in docs/checks.md. Its base class is

- `RowCheck`, if each row has the problem or not: `true_of(row)`. It counts the rows and grades their share: from
  `warning` on (a share, 0.05 is 5% of the rollouts) it reports a warning, from `error` on an error, below that `least`;
- `KindCheck`, if the problem has several forms: `kinds_of(row)` returns them, and the message lists the commonest;
- `Check` for anything else, such as a comparison of rows.

`severity` is the worst that it can report, for `velo check --list`. A `RowCheck` derives it from its limits.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

import velodrome.checks.thresholds as at
from velodrome.checks.task_memory import TaskMemory
from velodrome.records.facts import RowFacts
from velodrome.stats.first_names import FirstNames
from velodrome.timing.figures import percent
from velodrome.timing.report import clean

Json = dict[str, Any]
Severity = Literal["info", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `examples` are line numbers, each in the file at the same place of `files`."""

    name: str
    severity: Severity
    message: str
    count: int
    share: float
    examples: list[int]
    advice: str
    files: list[str] = field(default_factory=list)
    # Of every affected rollout, if lines are kept. A failure has `FAILED` plus its line in the failures file.
    lines: Sequence[int] = field(default=(), compare=False, repr=False)

    def as_json(self) -> Json:
        return {name: value for name, value in asdict(replace(self, lines=())).items() if name != "lines"}


class RowBatch(list[RowFacts]):
    """Some rows of one file, with selections that several checks share. Episodes are not checked as answers."""

    def __init__(self, rows: list[RowFacts]) -> None:
        super().__init__(rows)
        answers = [facts for facts in rows if "episode" not in facts.row or not facts.episode]
        self.scored = [facts for facts in answers if facts.reward is not None and abs(facts.reward) < at.LARGEST]
        self.rewards: list[Any] = [facts.reward for facts in self.scored]
        self.timed = [facts for facts in answers if facts.total_s and facts.times is not None]


class Seen:
    """State that all checks share: the number of rollouts, the tasks, and the line where the file starts."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.rows = 0
        self.keeps_lines = keeps_lines  # of all affected rollouts, not only of examples
        self.tasks = TaskMemory(keeps_lines=keeps_lines)
        self.before = 0  # lines of the files before this one

    def line(self, facts: RowFacts) -> int:
        """The line of a row, counted over all files."""
        return self.before + facts.line


class Check:
    """One check: `add` reads rows, `findings` returns the results.

    `name` is its heading in docs/checks.md, `severity` the worst it can report, `about` one line for a list.
    """

    name: ClassVar[str]
    severity: ClassVar[Severity]
    about: ClassVar[str]
    advice: ClassVar[str]
    by_task: ClassVar[bool] = False  # whether it reads `seen.tasks`

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.hits = 0
        self.examples: list[int] = []
        self.lines = array("Q")  # of all hits, if they are kept

    def add(self, batch: RowBatch) -> None:
        """Read some rollouts."""

    def findings(self) -> Iterator[Finding]:
        """The findings so far."""
        raise NotImplementedError

    def hit(self, rows: Sequence[RowFacts]) -> None:
        if rows:
            self.hit_lines([self.seen.line(facts) for facts in rows])

    def hit_lines(self, lines: Sequence[int]) -> None:
        self.hits += len(lines)
        self.examples.extend(lines[: at.EXAMPLES - len(self.examples)])
        if self.seen.keeps_lines:
            self.lines.extend(lines)

    def share(self, of: int | None = None) -> float:
        """The hits as a share of `of`, which is by default the number of rollouts."""
        return self.hits / ((self.seen.rows if of is None else of) or 1)

    def finding(
        self,
        severity: Severity,
        message: str,
        *,
        count: int | None = None,
        share: float | None = None,
        examples: Sequence[int] | None = None,
        lines: Sequence[int] | None = None,
    ) -> Finding:
        return Finding(
            name=self.name,
            severity=severity,
            message=message,
            count=self.hits if count is None else count,
            share=round(self.share() if share is None else share, 6),
            examples=list(self.examples if examples is None else examples)[: at.EXAMPLES],
            advice=self.advice,
            lines=(self.lines if lines is None else lines) if self.seen.keeps_lines else (),
        )


class RowCheck(Check):
    """Counts the rows for which `true_of` holds, and grades their share."""

    of: ClassVar[str] = "rollouts"
    says: ClassVar[str]  # "3 of 200 answers (1.5%) <says>"
    least: ClassVar[Severity] = "info"  # of a few rows
    warning: ClassVar[float | None] = None  # the share of rows from which it is a warning
    error: ClassVar[float | None] = None  # the share from which it is an error

    def __init_subclass__(cls) -> None:
        if "severity" not in cls.__dict__:
            cls.severity = "error" if cls.error is not None else "warning" if cls.warning is not None else cls.least

    def true_of(self, facts: RowFacts) -> bool:
        raise NotImplementedError

    def add(self, batch: RowBatch) -> None:
        self.hit([facts for facts in batch if self.true_of(facts)])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severity = graded(self.hits, self.share(), warning=self.warning, error=self.error)
            severity = max(severity, self.least, key=SEVERITIES.index)
            yield self.finding(severity, self.message())

    def message(self) -> str:
        return f"{part(self.hits, self.seen.rows, self.of)} {self.says}"


class KindCheck(RowCheck):
    """Counts rows by the kind of their problem, and reports the commonest kinds."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.kinds: FirstNames[list[int]] = FirstNames(at.MOST_NAMES, lambda: [0])

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        raise NotImplementedError

    def add(self, batch: RowBatch) -> None:
        odd = [(facts, kinds) for facts in batch if (kinds := self.kinds_of(facts))]
        self.hit([facts for facts, _ in odd])
        for kind in [kind for _, kinds in odd for kind in kinds]:
            count = self.kinds.of(kind)
            if count is not None:
                count[0] += 1

    def message(self) -> str:
        often = sorted(self.kinds.items(), key=lambda each: (-each[1][0], each[0]))[:3]
        return f"{super().message()}: {', '.join(f'{clean(kind)} ({count:,})' for kind, [count] in often)}"


class KeptValues:
    """A number and a line of each rollout, to list the rollouts beyond a bound at the end."""

    def __init__(self) -> None:
        self._values, self._lines = array("d"), array("Q")

    def extend(self, values: Sequence[float], lines: Sequence[int]) -> None:
        self._values.extend(values)
        self._lines.extend(lines)

    def outside(self, low: float, high: float) -> list[int]:
        """The lines of the rollouts below `low` or above `high`."""
        if not self._lines:
            return []
        import numpy as np

        values = np.frombuffer(self._values, np.float64)
        lines: list[int] = np.frombuffer(self._lines, np.uint64)[(values < low) | (values > high)].tolist()
        return lines


def graded(count: int, share: float, *, warning: float | None = None, error: float | None = None) -> Severity:
    """The severity of a share; fewer than `FEW` rollouts are a note at most."""
    if count >= at.FEW:
        if error is not None and share >= error:
            return "error"
        if warning is not None and share >= warning:
            return "warning"
    return "info"


def part(count: int, of: int, what: str) -> str:
    """`12 of 400 answers (3%)`."""
    return f"{count:,} of {of:,} {what} ({percent(count / (of or 1))})"
