"""A rule of the examination and what it reports; the rules on rewards, on data, on repetition and on sessions.

Rewards: a reference earns 1.0, a wrong answer and garbage less, a cheat nothing. Data: every example task can be run,
has an id and does not give its answer away. Repetition: the same answer has the same score, whenever and wherever it is
given. Sessions: each rollout has its own, and none is left over, nor a file, a thread or a child process. Pools fill at
first, so growth is counted from a second round on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from velodrome.contracts import prompt_text
from velodrome.errors import RolloutError, TaskError, describe
from velodrome.examiner.exam import IN_FLIGHT, Exam
from velodrome.examiner.playing import PlayedAnswer, Player, play_together
from velodrome.examiner.subject import TaskRow
from velodrome.records.task import own_id
from velodrome.resources_servers.environment import Environment
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpResources

Json = dict[str, Any]

TIMES = 2
_FEW = 4
_SLACK = IN_FLIGHT // 4  # of pools that fill slowly, per kind
_LOOKS, _LOOK_S = 40, 0.05
_TELLING = 8  # characters; a shorter answer may well be a word of the question


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


class References(Rule):
    """What the environment says is right."""

    name = "references"
    about = "reference answers earn exactly 1.0"

    async def examine(self, exam: Exam) -> RuleResult:
        plays = await exam.of_kind("reference")
        wrong = [play for play in plays if play.reward != 1.0]
        without = len(exam.tasks) - len(plays)
        if not plays:
            return RuleResult(unchecked=_missing(exam, "reference_answer"))
        note = f"{len(plays)} answers" + (f"; {without} tasks have none" if without else "")
        return RuleResult([_unexpected(play, "not 1.0") for play in wrong], note)


class WrongAnswers(Rule):
    """What the environment says is wrong."""

    name = "wrong-answers"
    about = "wrong answers earn less than 1.0"

    async def examine(self, exam: Exam) -> RuleResult:
        return _below(await exam.of_kind("wrong"), _missing(exam, "wrong_answers"))


class Garbage(Rule):
    """What is wrong everywhere."""

    name = "garbage"
    about = "empty, random, endless and broken answers are scored, and earn less than 1.0"

    async def examine(self, exam: Exam) -> RuleResult:
        plays = await exam.of_kind("garbage")
        return _below([play for play in plays if not isinstance(play.error, TaskError)], "there are no tasks")


class Cheats(Rule):
    """Attempts at the reward without the work."""

    name = "cheats"
    about = "cheats earn nothing"

    async def examine(self, exam: Exam) -> RuleResult:
        plays = await exam.of_kind("cheat")
        paid = [play for play in plays if play.reward is None or play.reward > 0]
        unchecked = "" if plays else _missing(exam, "cheats")
        return RuleResult([_unexpected(play, "above 0") for play in paid], f"{len(plays)} answers", unchecked)


def _missing(exam: Exam, hook: str) -> str:
    """Why there are no answers of this kind."""
    if not exam.tasks:
        return "there are no tasks"
    has = getattr(type(exam.environment), hook, None) not in (None, getattr(Environment, hook))
    return f"{hook} has none to these tasks" if has else f"the environment has no {hook}"


def _below(plays: list[PlayedAnswer], without: str) -> RuleResult:
    bad = [play for play in plays if play.reward is None or play.reward >= 1.0]
    unchecked = "" if plays else without
    return RuleResult([_unexpected(play, "not less than 1.0") for play in bad], f"{len(plays)} answers", unchecked)


def _unexpected(play: PlayedAnswer, why: str) -> RuleFinding:
    return about_play(play, play.failure or f"reward {play.reward}, {why}")


class Deterministic(Rule):
    """The same again, at once."""

    name = "deterministic"
    about = "the same answer has the same score every time"

    async def examine(self, exam: Exam) -> RuleResult:
        player = Player(exam.environment)
        findings: list[RuleFinding] = []
        sample = await exam.sample()
        for _ in range(TIMES):
            again = [await player.play(play.case) for play in sample]
            findings += differences(sample, again, "scored again")
            exam.rollouts += len(again)
        return RuleResult(findings, f"{len(sample)} answers, {TIMES + 1} times each", nothing_to_compare(sample))


class OrderAndLoad(Rule):
    """The same in another order, and with many others in flight."""

    name = "order-and-load"
    about = f"scores depend neither on what was scored before nor on {IN_FLIGHT} rollouts in flight"

    async def examine(self, exam: Exam) -> RuleResult:
        player = Player(exam.environment)
        backwards = list(reversed(await exam.sample()))
        again = [await player.play(play.case) for play in backwards]
        crowd = await exam.crowd()
        together = await exam.together()
        findings = differences(backwards, again, "in reverse order")
        findings += differences(crowd, together, f"with {IN_FLIGHT} in flight")
        exam.rollouts += len(again)
        return RuleResult(findings, f"{len(again)} in reverse, {len(together)} at once", nothing_to_compare(crowd))


class SessionsRule(Rule):
    """Many rollouts of different tasks at once, and what remains of them."""

    name = "sessions"
    about = f"sessions neither mix nor leak with {IN_FLIGHT} rollouts in flight"

    async def examine(self, exam: Exam) -> RuleResult:
        crowd = await exam.crowd()
        if nothing_to_compare(crowd):
            return RuleResult(unchecked=nothing_to_compare(crowd))
        environment = exam.environment
        findings = differences(crowd, await exam.together(), "interleaved")
        if findings:
            return RuleResult(findings, f"{len(crowd)} rollouts at once")
        player = Player(environment)
        before = _counts(environment)
        findings += differences(crowd, await play_together(player, [play.case for play in crowd]), "interleaved again")
        findings += await self._growth(environment, before)
        findings += [finding for row in exam.tasks[:_FEW] for finding in await _opened_and_closed(environment, row)]
        exam.rollouts += len(crowd)
        return RuleResult(findings, f"{2 * len(crowd)} rollouts, {IN_FLIGHT} at once")

    async def _growth(self, environment: Any, before: Counter[str]) -> list[RuleFinding]:
        """What there is more of than before, once it had a moment to end."""
        for look in range(_LOOKS):
            grown = _counts(environment) - before
            grown = Counter({name: count for name, count in grown.items() if count > _allowed(name)})
            if not grown:
                return []
            await asyncio.sleep(_LOOK_S if look else 0)
        return [RuleFinding("", "", f"{count} more {name} after {IN_FLIGHT} rollouts") for name, count in grown.items()]


async def _opened_and_closed(environment: Any, row: TaskRow) -> list[RuleFinding]:
    """A finding if a session cannot be opened and closed twice. The agent ignores a failure to close."""
    try:
        session = await environment.open(row.task)
        await environment.close(session)
        await environment.close(session)
    except RolloutError as error:
        place = f" ({error.place})" if error.place else ""
        return [RuleFinding(row.task_id, "", f"opened and closed: {describe(error)[:300]}{place}")]
    return []


def _allowed(name: str) -> int:
    return 0 if name == "open sessions" else _SLACK


def _counts(environment: Any) -> Counter[str]:
    return Counter(
        {
            "open sessions": len(getattr(environment, "sessions", ())),
            "open files": _entries("/proc/self/fd") or _entries("/dev/fd"),
            "threads": threading.active_count(),
            "child processes": len(children()),
        }
    )


def _entries(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def children() -> set[int]:
    """The ids of this process's children, where the system says."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            pids.update(map(int, path.read_text().split()))
        except OSError:
            continue
    return pids


class ServedRule(Rule):
    """The same over HTTP."""

    name = "served"
    about = "served over HTTP, answers have the scores that they have embedded"

    async def examine(self, exam: Exam) -> RuleResult:
        sample = await exam.sample()
        async with served(exam.environment, name=exam.subject.name) as url:
            player = Player(HttpResources(url))
            again = [await player.play(play.case) for play in sample]
        exam.rollouts += len(again)
        return RuleResult(differences(sample, again, "served"), f"{len(again)} answers", nothing_to_compare(sample))
