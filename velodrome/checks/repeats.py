"""Tasks and their repeats: whether a model can learn from them."""

from __future__ import annotations

from collections.abc import Iterator

import velodrome.checks.thresholds as at
from velodrome.checks.check import Check, Finding, Severity, graded, part
from velodrome.checks.task_memory import TaskRepeats
from velodrome.stats.metrics import PASS_REWARD


class _TaskCheck(Check):
    """Counts tasks, of those with enough repeats."""

    by_task = True
    severity = "warning"
    note: float
    warning: float
    says: str

    def true_of(self, task: TaskRepeats) -> bool | None:
        """Whether the task has the problem; None if it has too few repeats to know."""
        raise NotImplementedError

    def findings(self) -> Iterator[Finding]:
        verdicts = [(task.line, self.true_of(task)) for task in self.seen.tasks.values()]
        hits = sorted(line for line, verdict in verdicts if verdict)
        count = sum(verdict is not None for _, verdict in verdicts)
        share = len(hits) / (count or 1)
        if count < at.TASKS_LEAST or share < self.note:
            return
        severity: Severity = "warning" if share >= self.warning else "info"
        message = f"{part(len(hits), count, 'tasks')}{self.seen.tasks.scope} {self.says}"
        lines = self.seen.tasks.lines_of({*hits})
        yield self.finding(severity, message, count=len(hits), share=share, examples=hits, lines=lines)


class _NoSignal(_TaskCheck):
    """Every repeat has the same reward."""

    note, warning = at.NO_SIGNAL_NOTE, at.NO_SIGNAL_WARNING
    passes: bool

    def true_of(self, task: TaskRepeats) -> bool | None:
        if task.scored < at.REPEATS_LEAST:
            return None
        return task.low == task.high and (task.low >= PASS_REWARD) == self.passes


class NeverPasses(_NoSignal):
    name = "never-passes"
    about = "tasks of which no repeat passes"
    advice = "leave them out (velo export --where 'pass_rate > 0'), make them easier, or give more repeats"
    says = "never pass: every repeat has the same reward, so there is nothing to learn from"
    passes = False


class AlwaysPasses(_NoSignal):
    name = "always-passes"
    about = "tasks of which every repeat passes"
    advice = "leave them out (velo export --where 'pass_rate < 1'), or look for harder ones"
    says = "always pass: every repeat has the same reward, so there is nothing to learn from"
    passes = True


class SameAnswers(_TaskCheck):
    name = "same-answers"
    about = "repeats of a task say the same, word for word"
    advice = "raise the temperature, check that the seed differs between repeats; after training, entropy has collapsed"
    note, warning = at.COLLAPSED_NOTE, at.COLLAPSED_WARNING
    says = "have repeats that say the same, word for word"

    def true_of(self, task: TaskRepeats) -> bool | None:
        if task.tries < at.REPEATS_LEAST or 2 * len(task.texts) < task.tries:
            return None
        return task.same >= at.SAME_SHARE * task.tries


class DuplicateTasks(Check):
    name = "duplicate-tasks"
    severity = "warning"
    about = "tasks that differ in nothing but their id"
    advice = "drop one of each from the input; use +num_repeats for more rollouts of a task"
    by_task = True

    def findings(self) -> Iterator[Finding]:
        copies, tasks = self.seen.tasks.copies(), len(self.seen.tasks)
        if copies:
            yield self.finding(
                graded(len(copies), len(copies) / tasks, warning=at.DUPLICATE_WARNING),
                f"{part(len(copies), tasks, 'tasks')}{self.seen.tasks.scope} were there before under another id",
                count=len(copies),
                share=len(copies) / tasks,
                examples=copies,
                lines=self.seen.tasks.lines_of({*copies}),
            )


CHECKS: tuple[type[Check], ...] = (NeverPasses, AlwaysPasses, SameAnswers, DuplicateTasks)
