"""A rule of the examination, and what it reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from velodrome.examiner.playing import PlayedAnswer

if TYPE_CHECKING:
    from velodrome.examiner.exam import Exam

Json = dict[str, Any]


@dataclass(frozen=True)
class RuleFinding:
    """One thing that is not as it should be: of which task, with which answer, and what was seen."""

    task: str
    answer: str
    seen: str
    is_warning: bool = False

    def __str__(self) -> str:
        return ": ".join(filter(None, (f"task {self.task}" if self.task else "", self.answer, self.seen)))

    def as_json(self) -> Json:
        severity = "warning" if self.is_warning else "error"
        return {"task": self.task, "answer": self.answer, "seen": self.seen, "severity": severity}


@dataclass(frozen=True)
class RuleResult:
    """What a rule found. `unchecked` says why it had nothing to work with; `note` how much it looked at."""

    findings: Sequence[RuleFinding] = ()
    note: str = ""
    unchecked: str = ""

    @property
    def status(self) -> str:
        if any(not each.is_warning for each in self.findings):
            return "failed"
        if self.unchecked:
            return "not checked"
        return "warning" if self.findings else "passed"


class Rule:
    """One rule: its name, a line on what it checks, and the check itself."""

    name: ClassVar[str]
    about: ClassVar[str]

    async def examine(self, exam: Exam) -> RuleResult:
        raise NotImplementedError


def about_play(play: PlayedAnswer, seen: str) -> RuleFinding:
    return RuleFinding(play.case.task_id, play.case.label, seen)


def differences(plays: Iterable[PlayedAnswer], others: Iterable[PlayedAnswer], how: str) -> list[RuleFinding]:
    """A finding for each answer that was not scored as the first time.

    Of a cheat only the reward has to be the same: it may leave something behind that races with what comes after it.
    """
    return [
        about_play(other, f"{how}: {_shown(play, other)}")
        for play, other in zip(plays, others, strict=True)
        if (play.reward != other.reward if play.case.kind == "cheat" else play.outcome != other.outcome)
    ]


def nothing_to_compare(plays: Sequence[PlayedAnswer]) -> str:
    """Why there is no score to compare with another; empty if there is one."""
    if not plays:
        return "there are no tasks"
    return "" if any(play.error is None for play in plays) else f"no answer has a score: {plays[0].failure}"


def _shown(play: PlayedAnswer, other: PlayedAnswer) -> str:
    if play.error is not None or other.error is not None:
        return f"{play.failure or f'reward {play.reward}'} before, then {other.failure or f'reward {other.reward}'}"
    before, after = play.outcome, other.outcome
    names = [name for name in sorted({*before, *after}) if before.get(name, ...) != after.get(name, ...)]
    return "; ".join(
        f'"{name}" was {before.get(name, "not there")!r:.60} alone, now {after.get(name, "not there")!r:.60}'
        for name in names[:3]
    )
