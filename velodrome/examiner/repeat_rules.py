"""Rules on repetition: the same answer has the same score, whenever, beside whatever and wherever it is given."""

from __future__ import annotations

from velodrome.examiner.exam import IN_FLIGHT, Exam
from velodrome.examiner.playing import PlayedAnswer, Player, cpu_clock
from velodrome.examiner.rule import Rule, RuleFinding, RuleResult, differences, nothing_to_compare
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpResources

TIMES = 2


class Deterministic(Rule):
    """The same again, at once."""

    name = "deterministic"
    about = "the same answer has the same score every time"

    def __init__(self) -> None:
        self.plays: list[PlayedAnswer] = []  # timed in CPU, for the cost

    async def examine(self, exam: Exam) -> RuleResult:
        player = Player(exam.environment)
        findings: list[RuleFinding] = []
        sample = await exam.sample()
        for _ in range(TIMES):
            again = [await player.play(play.case, cpu_clock) for play in sample]
            findings += differences(sample, again, "scored again")
            self.plays += again
        exam.rollouts += len(self.plays)
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
