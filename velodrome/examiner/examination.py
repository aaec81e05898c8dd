"""The whole examination: every rule, the cost of a call, and the report."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.errors import InputError
from velodrome.examiner.exam import SAMPLE, Exam
from velodrome.examiner.playing import PlayedAnswer
from velodrome.examiner.rules import (
    Cheats,
    DataRule,
    Deterministic,
    Garbage,
    OrderAndLoad,
    References,
    Rule,
    RuleFinding,
    RuleResult,
    ServedRule,
    SessionsRule,
    WrongAnswers,
)
from velodrome.examiner.subject import Subject
from velodrome.examiner.tool_fuzz import ToolsRule
from velodrome.scope import Scope
from velodrome.settings.names import hint
from velodrome.timing.figures import counted

Json = dict[str, Any]

RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        DataRule,
        References,
        WrongAnswers,
        Garbage,
        Cheats,
        Deterministic,
        OrderAndLoad,
        ToolsRule,
        SessionsRule,
        ServedRule,
    )
}
MAX_TASKS = 24
MAX_SHOWN = 5


@dataclass(frozen=True)
class CallCost:
    """The time of one kind of call, in milliseconds: median and maximum."""

    name: str
    calls: int
    wall_ms: float
    longest_ms: float

    def as_json(self) -> Json:
        return {"calls": self.calls, "wall_ms": round(self.wall_ms, 4), "longest_ms": round(self.longest_ms, 4)}

    def line(self) -> str:
        """The cost as text."""
        wall = f"{self.wall_ms:.3f} ms, longest {self.longest_ms:.3f} ms"
        return f"cost  {self.name}: {wall} ({counted(self.calls, 'call')})"


@dataclass(frozen=True)
class Examination:
    """The result of an examination: `passed`, the result of each rule by name, and the costs of calls."""

    name: str
    tasks: int
    rollouts: int
    rules: dict[str, RuleResult]
    costs: Sequence[CallCost]
    strict: bool = False

    @property
    def failed(self) -> list[str]:
        """The names of the failed rules; with `strict` also of those that could not be checked."""
        bad = ("failed", "not checked") if self.strict else ("failed",)
        return [name for name, result in self.rules.items() if result.status in bad]

    @property
    def unchecked(self) -> list[str]:
        return [name for name, result in self.rules.items() if result.status == "not checked"]

    @property
    def passed(self) -> bool:
        return not self.failed

    def as_json(self) -> Json:
        """The report as `velo test --json` prints it."""
        rules = {
            name: {
                "status": result.status,
                "about": RULES[name].about,
                "note": result.unchecked or result.note,
                "findings": [finding.as_json() for finding in result.findings],
            }
            for name, result in self.rules.items()
        }
        return {
            "environment": self.name,
            "passed": self.passed,
            "not_checked": self.unchecked,
            "tasks": self.tasks,
            "rollouts": self.rollouts,
            "rules": rules,
            "cost": {cost.name: cost.as_json() for cost in self.costs},
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The report as text: one line per rule, its findings below it, and the costs."""
        verdict = f"failed: {', '.join(self.failed)}" if self.failed else "passed"
        unchecked = f"; not checked: {', '.join(self.unchecked)}" if self.unchecked and not self.strict else ""
        yield f"{self.name}: {verdict}{unchecked} ({counted(self.tasks, 'task')}, {counted(self.rollouts, 'rollout')})"
        width = max(map(len, self.rules), default=0)
        first_rule: dict[str, str] = {}  # by the reason why a rule could not be checked
        for name, result in self.rules.items():
            note = f"{RULES[name].about} ({result.note})"
            if result.unchecked:
                earlier = first_rule.setdefault(result.unchecked, name)
                note = f"not checked: {result.unchecked if earlier == name else f'as {earlier}'}"
            yield f"  {result.status:<11}  {name:<{width}}  {note}"
            by_text: dict[str, list[RuleFinding]] = defaultdict(list)
            for finding in result.findings:
                by_text[finding.seen].append(finding)
            for similar in list(by_text.values())[:MAX_SHOWN]:
                suffix = f" (and {len(similar) - 1} more like it)" if len(similar) > 1 else ""
                yield f"{'':<{width + 15}}  {' '.join(str(similar[0]).split())}{suffix}"
            if hidden := sum(map(len, list(by_text.values())[MAX_SHOWN:])):
                yield f"{'':<{width + 15}}  and {hidden} more"
        yield from (f"  {cost.line()}" for cost in self.costs)


async def examine_subject(
    subject: Subject,
    *,
    only: Sequence[str] | None = None,
    max_tasks: int = MAX_TASKS,
    sample: int = SAMPLE,
    strict: bool = False,
    on_step: Callable[[str], None] = lambda step: None,
) -> Examination:
    """Check every rule, or `only` these, on one environment; `sample` answers are played again."""
    check_rule_names(only or ())
    rules = [RULES[name]() for name in RULES if only is None or name in only]
    async with Scope():
        environment = subject.make()
        try:
            exam = Exam(subject, environment, max_tasks, sample, on_step)
            results = {}
            for rule in rules:
                on_step(rule.name)
                results[rule.name] = await rule.examine(exam)
            tools = [f"tool:{tool['name']}" for tool in await environment.tools()]
            costs = list(call_costs(await exam.alone(), {"verify", "tool:reset", "tool:step", *tools}))
            return Examination(subject.name, len(exam.tasks), exam.rollouts, results, costs, strict)
        finally:
            if subject.owned and hasattr(environment, "aclose"):
                await environment.aclose()


def check_rule_names(names: Iterable[str]) -> None:
    """Raise an `InputError` for a name that is not a rule."""
    problems = [f'no rule is called "{name}"{hint(name, RULES)}' for name in names if name not in RULES]
    if problems:
        raise InputError(*problems, f"the rules are {', '.join(RULES)}")


def call_costs(plays: Sequence[PlayedAnswer], names: Collection[str]) -> Iterator[CallCost]:
    """The costs of these calls."""
    times_ms: dict[str, list[float]] = defaultdict(list)
    for play in plays:
        for span in play.times.walk():
            times_ms[span.name].append(span.seconds * 1e3)
    for name in sorted(times_ms.keys() & names, key=lambda name: (name != "verify", name)):
        yield CallCost(name, len(times_ms[name]), statistics.median(times_ms[name]), max(times_ms[name]))
