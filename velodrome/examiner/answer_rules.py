"""Rules on rewards: a reference earns 1.0, a wrong answer and garbage less, a cheat nothing."""

from __future__ import annotations

from velodrome.errors import TaskError
from velodrome.examiner.exam import Exam
from velodrome.examiner.playing import PlayedAnswer
from velodrome.examiner.rule import Rule, RuleFinding, RuleResult, about_play
from velodrome.resources_servers.environment import Environment


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
