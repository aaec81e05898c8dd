"""Tasks and their repeats: whether there is anything to learn from them."""

from __future__ import annotations

from collections.abc import Iterator

import velodrome.checks.thresholds as at
from velodrome.checks.finding import Check, Finding, Severity, graded, part
from velodrome.checks.groups import Group
from velodrome.stats.metrics import PASS_REWARD


class _OfTasks(Check):
    """Counts tasks that have enough repeats to be judged."""

    by_task = True
    note: float
    warning: float

    def judged(self, group: Group) -> bool | None:
        """Whether the task is one of those that are looked for; None if it cannot be said."""
        raise NotImplementedError

    def says(self, tasks: str) -> str:
        """The message."""
        raise NotImplementedError

    def findings(self) -> Iterator[Finding]:
        judged = [(group.line, self.judged(group)) for group in self.seen.groups.tasks.values()]
        hits = sorted(line for line, verdict in judged if verdict)
        count = sum(verdict is not None for _, verdict in judged)
        share = len(hits) / (count or 1)
        if count < at.TASKS_LEAST or share < self.note:
            return
        severity: Severity = "warning" if share >= self.warning else "info"
        tasks = f"{part(len(hits), count, 'tasks')}{self.seen.groups.some}"
        yield self.found(severity, self.says(tasks), count=len(hits), share=share, examples=hits)


class _NoSignal(_OfTasks):
    """Tasks of which every repeat has the same reward: nothing tells a better repeat from a worse one."""

    severity = "warning"
    note, warning = at.NO_SIGNAL_NOTE, at.NO_SIGNAL_WARNING
    passing: bool

    def judged(self, group: Group) -> bool | None:
        if group.scored < at.REPEATS_LEAST:
            return None
        return group.low == group.high and (group.low >= PASS_REWARD) == self.passing

    def says(self, tasks: str) -> str:
        how = "always" if self.passing else "never"
        return f"{tasks} {how} pass: every repeat has the same reward, so there is nothing to learn from"


class NeverPasses(_NoSignal):
    name = "never-passes"
    about = "tasks of which no repeat passes"
    advice = "leave them out (velo export --where 'pass_rate > 0'), make them easier, or give more repeats"
    passing = False


class AlwaysPasses(_NoSignal):
    name = "always-passes"
    about = "tasks of which every repeat passes"
    advice = "leave them out (velo export --where 'pass_rate < 1'), or look for harder ones"
    passing = True


class SameAnswers(_OfTasks):
    name = "same-answers"
    severity = "warning"
    about = "repeats of a task say the same, word by word"
    advice = "raise the temperature, check that the seed differs between repeats; after training, entropy has collapsed"
    note, warning = at.COLLAPSED_NOTE, at.COLLAPSED_WARNING

    def judged(self, group: Group) -> bool | None:
        if group.tries < at.REPEATS_LEAST or 2 * group.long < group.tries:
            return None
        return group.same >= at.SAME_SHARE * group.tries

    def says(self, tasks: str) -> str:
        return f"{tasks} have repeats that say the same, word by word"


class DuplicateTasks(Check):
    name = "duplicate-tasks"
    severity = "warning"
    about = "tasks that differ in nothing but their id"
    advice = "drop one of each from the input; use +num_repeats for more rollouts of a task"
    by_task = True

    def findings(self) -> Iterator[Finding]:
        groups = self.seen.groups
        copies = groups.copies()
        if copies:
            count, tasks = len(copies), len(groups.tasks)
            yield self.found(
                graded(count, count / tasks, warning=at.DUPLICATE_WARNING),
                f"{part(count, tasks, 'tasks')}{groups.some} were there before under another id",
                count=count,
                share=count / tasks,
                examples=copies,
            )


CHECKS: tuple[type[Check], ...] = (NeverPasses, AlwaysPasses, SameAnswers, DuplicateTasks)
