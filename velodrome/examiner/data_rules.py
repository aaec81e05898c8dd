"""The rule on data: every example task can be run, has a name of its own and does not give its answer away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from velodrome.contracts import prompt_text
from velodrome.errors import TaskError
from velodrome.examiner.exam import Exam
from velodrome.examiner.rule import Rule, RuleFinding, RuleResult
from velodrome.records.task import own_id

_TELLING = 8  # characters; a shorter answer may well be a word of the question


class DataRule(Rule):
    """The example tasks, all of them; those that were played, also by what became of them."""

    name = "data"
    about = "every example task has an id of its own and a prompt, and is accepted"

    async def examine(self, exam: Exam) -> RuleResult:
        rows = exam.subject.rows
        if not rows:
            return RuleResult([RuleFinding("", "", exam.subject.no_tasks)], "0 tasks")
        findings = [RuleFinding(row.task_id, "", row.problem) for row in rows if row.problem]
        findings += _names(exam)
        refused = [play for play in await exam.alone() if isinstance(play.error, TaskError)]
        by_task = {play.case.task_id: play.failure for play in reversed(refused)}
        findings += [RuleFinding(task_id, "", failure) for task_id, failure in by_task.items()]
        findings += [
            RuleFinding(task_id, "", why) for task_id, why in exam.unanswered.items() if task_id not in by_task
        ]
        findings += _given_away(exam)
        return RuleResult(findings, f"{len(rows)} tasks")


def _names(exam: Exam) -> Iterator[RuleFinding]:
    tasks = [row for row in exam.subject.rows if row.task is not None]
    for name, count in Counter(row.task_id for row in tasks).items():
        if count > 1:
            yield RuleFinding(name, "", f"{count} tasks have this id")
    without = [row for row in tasks if own_id(row.task or {}) is None]
    if without:
        yield RuleFinding(without[0].task_id, "", f'no "id"; {len(without)} tasks have none', is_warning=True)


def _given_away(exam: Exam) -> Iterator[RuleFinding]:
    for case in exam.cases:
        text = case.answer.strip() if case.kind == "reference" and isinstance(case.answer, str) else ""
        if len(text) >= _TELLING and text in prompt_text(case.task["responses_create_params"]):
            yield RuleFinding(case.task_id, case.label, "the prompt holds this answer, word for word", is_warning=True)
