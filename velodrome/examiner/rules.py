"""A rule of the examination and what it reports; the rules on rewards, on data, on repetition and on sessions.

Rewards: a reference earns 1.0, a wrong answer and garbage less, a cheat nothing. Data: every example task can be run,
has an id and does not give its answer away. Repetition: the same answer has the same score, whenever and wherever it is
given. Sessions: each rollout has its own, and no session, file, thread or child process remains. Pools fill in the
first round, so growth is counted from the second.
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
_SLACK = IN_FLIGHT // 4  # for pools that fill slowly, per kind
_ATTEMPTS, _RETRY_S = 40, 0.05
_MIN_LEAK_CHARS = 8  # characters; a shorter answer may be a word of the question


@dataclass(frozen=True)
class RuleFinding:
    """A broken rule: the task, the answer, and the problem seen."""

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
    """The result of a rule. `unchecked` is the reason if it could not be checked; `note` is how much was checked."""

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
    """One rule: its name, a one-line description, and the check."""

    name: ClassVar[str]
    about: ClassVar[str]

    async def examine(self, exam: Exam) -> RuleResult:
        raise NotImplementedError


def about_play(play: PlayedAnswer, seen: str) -> RuleFinding:
    return RuleFinding(play.case.task_id, play.case.label, seen)


def differences(plays: Iterable[PlayedAnswer], replays: Iterable[PlayedAnswer], how: str) -> list[RuleFinding]:
    """A finding for each answer with another score than the first time.

    For a cheat only the reward must be the same: the effects of one cheat may race with the next rollout.
    """
    return [
        about_play(replay, f"{how}: {_changes(play, replay)}")
        for play, replay in zip(plays, replays, strict=True)
        if (play.reward != replay.reward if play.case.kind == "cheat" else play.outcome != replay.outcome)
    ]


def nothing_to_compare(plays: Sequence[PlayedAnswer]) -> str:
    """The reason why there are no scores to compare; empty if there are."""
    if not plays:
        return "there are no tasks"
    return "" if any(play.error is None for play in plays) else f"no answer has a score: {plays[0].failure}"


def _changes(play: PlayedAnswer, replay: PlayedAnswer) -> str:
    if play.error is not None or replay.error is not None:
        return f"{play.failure or f'reward {play.reward}'} before, then {replay.failure or f'reward {replay.reward}'}"
    before, after = play.outcome, replay.outcome
    names = [name for name in sorted({*before, *after}) if before.get(name, ...) != after.get(name, ...)]
    return "; ".join(
        f'"{name}" was {before.get(name, "not there")!r:.60} alone, now {after.get(name, "not there")!r:.60}'
        for name in names[:3]
    )


class DataRule(Rule):
    """Every example task is valid; a task that was played was also accepted by the environment."""

    name = "data"
    about = "every example task has an id of its own and a prompt, and is accepted"

    async def examine(self, exam: Exam) -> RuleResult:
        rows = exam.subject.rows
        if not rows:
            return RuleResult([RuleFinding("", "", exam.subject.no_tasks)], "0 tasks")
        findings = [RuleFinding(row.task_id, "", row.problem) for row in rows if row.problem]
        findings += _id_findings(exam)
        refused = [play for play in await exam.alone() if isinstance(play.error, TaskError)]
        by_task = {play.case.task_id: play.failure for play in reversed(refused)}
        findings += [RuleFinding(task_id, "", failure) for task_id, failure in by_task.items()]
        findings += [
            RuleFinding(task_id, "", why) for task_id, why in exam.unanswered.items() if task_id not in by_task
        ]
        findings += _leaked_answers(exam)
        return RuleResult(findings, f"{len(rows)} tasks")


def _id_findings(exam: Exam) -> Iterator[RuleFinding]:
    tasks = [row for row in exam.subject.rows if row.task is not None]
    for name, count in Counter(row.task_id for row in tasks).items():
        if count > 1:
            yield RuleFinding(name, "", f"{count} tasks have this id")
    without = [row for row in tasks if own_id(row.task or {}) is None]
    if without:
        yield RuleFinding(without[0].task_id, "", f'no "id"; {len(without)} tasks have none', is_warning=True)


def _leaked_answers(exam: Exam) -> Iterator[RuleFinding]:
    for case in exam.cases:
        text = case.answer.strip() if case.kind == "reference" and isinstance(case.answer, str) else ""
        if len(text) >= _MIN_LEAK_CHARS and text in prompt_text(case.task["responses_create_params"]):
            yield RuleFinding(case.task_id, case.label, "the prompt holds this answer, word for word", is_warning=True)


class References(Rule):
    """The environment's reference answers."""

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
    """The environment's wrong answers."""

    name = "wrong-answers"
    about = "wrong answers earn less than 1.0"

    async def examine(self, exam: Exam) -> RuleResult:
        return _below_one(await exam.of_kind("wrong"), _missing(exam, "wrong_answers"))


class Garbage(Rule):
    """Answers that are wrong in any environment."""

    name = "garbage"
    about = "empty, random, endless and broken answers are scored, and earn less than 1.0"

    async def examine(self, exam: Exam) -> RuleResult:
        plays = await exam.of_kind("garbage")
        return _below_one([play for play in plays if not isinstance(play.error, TaskError)], "there are no tasks")


class Cheats(Rule):
    """Attempts to get the reward without doing the task."""

    name = "cheats"
    about = "cheats earn nothing"

    async def examine(self, exam: Exam) -> RuleResult:
        plays = await exam.of_kind("cheat")
        rewarded = [play for play in plays if play.reward is None or play.reward > 0]
        unchecked = "" if plays else _missing(exam, "cheats")
        return RuleResult([_unexpected(play, "above 0") for play in rewarded], f"{len(plays)} answers", unchecked)


def _missing(exam: Exam, hook: str) -> str:
    """The reason why there are no answers of this kind."""
    if not exam.tasks:
        return "there are no tasks"
    has = getattr(type(exam.environment), hook, None) not in (None, getattr(Environment, hook))
    return f"{hook} has none to these tasks" if has else f"the environment has no {hook}"


def _below_one(plays: list[PlayedAnswer], without: str) -> RuleResult:
    bad = [play for play in plays if play.reward is None or play.reward >= 1.0]
    unchecked = "" if plays else without
    return RuleResult([_unexpected(play, "not less than 1.0") for play in bad], f"{len(plays)} answers", unchecked)


def _unexpected(play: PlayedAnswer, why: str) -> RuleFinding:
    return about_play(play, play.failure or f"reward {play.reward}, {why}")


class Deterministic(Rule):
    """Each answer again, immediately."""

    name = "deterministic"
    about = "the same answer has the same score every time"

    async def examine(self, exam: Exam) -> RuleResult:
        player = Player(exam.environment)
        findings: list[RuleFinding] = []
        sample = await exam.sample()
        for _ in range(TIMES):
            replays = [await player.play(play.case) for play in sample]
            findings += differences(sample, replays, "scored again")
            exam.rollouts += len(replays)
        return RuleResult(findings, f"{len(sample)} answers, {TIMES + 1} times each", nothing_to_compare(sample))


class OrderAndLoad(Rule):
    """Each answer in reverse order, and with many others in flight."""

    name = "order-and-load"
    about = f"scores depend neither on what was scored before nor on {IN_FLIGHT} rollouts in flight"

    async def examine(self, exam: Exam) -> RuleResult:
        player = Player(exam.environment)
        backwards = list(reversed(await exam.sample()))
        replays = [await player.play(play.case) for play in backwards]
        crowd = await exam.crowd()
        together = await exam.together()
        findings = differences(backwards, replays, "in reverse order")
        findings += differences(crowd, together, f"with {IN_FLIGHT} in flight")
        exam.rollouts += len(replays)
        return RuleResult(findings, f"{len(replays)} in reverse, {len(together)} at once", nothing_to_compare(crowd))


class SessionsRule(Rule):
    """Many concurrent rollouts of different tasks, and the resources that remain after them."""

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
        findings += [finding for row in exam.tasks[:_FEW] for finding in await _close_twice(environment, row)]
        exam.rollouts += len(crowd)
        return RuleResult(findings, f"{2 * len(crowd)} rollouts, {IN_FLIGHT} at once")

    async def _growth(self, environment: Any, before: Counter[str]) -> list[RuleFinding]:
        """The resources that are more than before, after some time to be freed."""
        for attempt in range(_ATTEMPTS):
            growth = _counts(environment) - before
            growth = Counter({name: count for name, count in growth.items() if count > _allowed(name)})
            if not growth:
                return []
            await asyncio.sleep(_RETRY_S if attempt else 0)
        return [
            RuleFinding("", "", f"{count} more {name} after {IN_FLIGHT} rollouts") for name, count in growth.items()
        ]


async def _close_twice(environment: Any, row: TaskRow) -> list[RuleFinding]:
    """Open a session and close it twice; returns a finding if that fails. The agent ignores a failure to close."""
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
    """The ids of this process's children, if the system provides them."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            pids.update(map(int, path.read_text().split()))
        except OSError:
            continue
    return pids


class ServedRule(Rule):
    """Each answer again, over HTTP."""

    name = "served"
    about = "served over HTTP, answers have the scores that they have embedded"

    async def examine(self, exam: Exam) -> RuleResult:
        sample = await exam.sample()
        async with served(exam.environment, name=exam.subject.name) as url:
            player = Player(HttpResources(url))
            replays = [await player.play(play.case) for play in sample]
        exam.rollouts += len(replays)
        return RuleResult(differences(sample, replays, "served"), f"{len(replays)} answers", nothing_to_compare(sample))
