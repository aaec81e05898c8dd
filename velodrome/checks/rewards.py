"""Rewards: whether they differ between rollouts, and whether they are usable numbers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from math import inf, sqrt
from typing import ClassVar

import velodrome.checks.thresholds as at
from velodrome.checks.check import Check, Finding, KeptValues, KindCheck, RowBatch, RowCheck, Seen, Severity, part
from velodrome.checks.task_memory import HashSample
from velodrome.records.facts import RowFacts
from velodrome.records.task import hashed
from velodrome.timing.percentiles import Quantiles

_ROUNDING = 1e-12  # of the sum of squares; smaller differences are rounding
_LONGEST_NAME = 64


class _Alike(Check):
    """All rewards are the same number: `only`, or without it a number other than 0 and 1."""

    severity = "error"
    only: float | None = None
    least: ClassVar[int] = at.ALIKE_NOTE

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.rewards: set[float] = set()  # two different ones are enough

    def add(self, batch: RowBatch) -> None:
        if len(self.rewards) < 2:
            self.rewards.update(batch.rewards)
            self.hit(batch.scored)

    def findings(self) -> Iterator[Finding]:
        if len(self.rewards) != 1 or self.hits < self.least:
            return
        [reward] = self.rewards
        if reward == self.only or (self.only is None and reward not in (0, 1)):
            grades: list[Severity] = ["info", "warning", "error"]
            severity = grades[(self.hits >= at.ALIKE_WARNING) + (self.hits >= at.ALIKE_ERROR)]
            yield self.finding(severity, f"all {self.hits:,} rewards are {reward + 0.0:g}")  # -0.0 is 0


class AllZero(_Alike):
    name = "all-zero"
    about = "every reward is 0"
    advice = "look for a right answer (velo show): if it got 0, verification is broken; else the tasks are too hard"
    only = 0.0
    least = at.ZERO_NOTE


class AllOne(_Alike):
    name = "all-one"
    about = "every reward is 1"
    advice = "look for a wrong answer (velo show): if it got 1, verification is broken; else the tasks are too easy"
    only = 1.0


class ConstantReward(_Alike):
    name = "constant-reward"
    about = "every reward is the same number, neither 0 nor 1"
    advice = "check that verify reads the answer, and not only its form"


def _unscored(facts: RowFacts) -> bool:
    return facts.deferred or (facts.reward is None and "reward" in facts.row and facts.row["reward"] is None)


class BadReward(KindCheck):
    name = "bad-reward"
    least = "error"
    about = "a reward is missing, NaN, infinite or not a number"
    advice = "fix verify and score the file again with velo verify; a trainer fed with these diverges or stops"
    of, says = "rewards", "are not usable numbers"

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        reward = facts.reward
        if (reward is not None and abs(reward) < at.LARGEST) or _unscored(facts):
            return ()
        if "reward" in facts.wrong:
            return ("not a number",)
        if reward is not None or "reward" in facts.not_finite:
            return ("NaN",) if facts.row["reward"] != facts.row["reward"] else ("infinite",)
        return ("missing",)


class NotFinite(KindCheck):
    name = "not-finite"
    least = "warning"
    about = "a number at the top level of a row is NaN or infinite"
    advice = "fix what verify returns; JSON has no such number: other readers refuse the line, and means leave it out"
    of, says = "rows", "have NaN or infinite numbers"

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        return [name[:_LONGEST_NAME] for name in facts.not_finite if name != "reward"] if facts.not_finite else ()


class RewardOutliers(Check):
    name = "reward-outliers"
    severity = "warning"
    about = "a reward is beyond 10, or far from all others"
    advice = "look at these rollouts with velo show; a mean over them is a mean of the outliers"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.distribution = Quantiles()
        self.highest: list[tuple[float, int]] = []  # the few most extreme: (reward, -line), and (-reward, -line)
        self.lowest: list[tuple[float, int]] = []
        self.kept_rewards = KeptValues()  # if lines are kept

    def add(self, batch: RowBatch) -> None:
        rewards = batch.rewards
        if not rewards:
            return
        self.distribution.extend(rewards)
        if max(rewards) > at.OUTLIER_REWARD or min(rewards) < -at.OUTLIER_REWARD:
            self.hit([facts for facts in batch.scored if abs(facts.reward or 0.0) > at.OUTLIER_REWARD])
        places = [(reward, -self.seen.line(facts)) for reward, facts in zip(rewards, batch.scored, strict=True)]
        self.highest = heapq.nlargest(at.EXAMPLES, [*self.highest, *places])
        self.lowest = heapq.nlargest(at.EXAMPLES, [*self.lowest, *((-reward, line) for reward, line in places)])
        if self.seen.keeps_lines:
            self.kept_rewards.extend(rewards, [-line for _, line in places])

    def findings(self) -> Iterator[Finding]:
        count = self.distribution.count
        if self.hits:
            is_scale = self.share(count) > at.SCALE_SHARE
            text = f"{part(self.hits, count, 'rewards')} are beyond {at.OUTLIER_REWARD:g}"
            message = f"{text}: that is their scale" if is_scale else text
            yield self.finding("info" if is_scale else "warning", message, share=self.share(count))
            return
        if count < at.OUTLIER_LEAST:
            return
        median = self.distribution.quantile(0.5)
        distance = at.OUTLIER_DEVIATIONS * max(1.4826 * self.distribution.deviation(), at.OUTLIER_LEAST_DEVIATION)
        outlier_lines = self.kept_rewards.outside(median - distance, median + distance)
        outliers = (
            len(outlier_lines)
            if self.seen.keeps_lines
            else self.distribution.outside(median - distance, median + distance)
        )
        extremes = [*self.highest, *((-reward, line) for reward, line in self.lowest)]
        lines = sorted({-line for reward, line in extremes if abs(reward - median) > distance})
        if lines and 0 < outliers <= at.OUTLIER_SHARE * count:
            message = f"{part(outliers, count, 'rewards')} are more than {distance:.3g} from the median, {median:.3g}"
            yield self.finding(
                "warning", message, count=outliers, share=outliers / count, examples=lines, lines=outlier_lines
            )


class RewardLength(Check):
    name = "reward-length"
    severity = "warning"
    about = "the reward goes with the length of what the model wrote, among the repeats of a task"
    advice = (
        "a policy trained on this learns the length; check what verify looks at, and max_output_tokens if short wins"
    )

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.tasks: HashSample[Correlated] = HashSample(at.CORRELATION_TASKS)

    def add(self, batch: RowBatch) -> None:
        for reward, facts in zip(batch.rewards, batch.scored, strict=True):
            if facts.task is not None and self.tasks.takes(place := hashed(facts.task)):
                if place not in self.tasks:
                    self.tasks.put(place, Correlated())
                if place in self.tasks:
                    self.tasks[place].add(sum(map(len, facts.written)), reward)

    def findings(self) -> Iterator[Finding]:
        r, n, freedom = _within(self.tasks.values())
        if abs(r) >= at.CORRELATION and freedom >= at.CORRELATION_LEAST:
            better = "longer" if r > 0 else "shorter"
            message = f"{better} outputs of the same task get the higher rewards: r = {r:.2f} over {n:,} rollouts"
            yield self.finding("warning", message, count=n, share=n / (self.seen.rows or 1), examples=(), lines=())


class Correlated:
    """Lengths (x) and rewards (y) of the repeats of a task, as sums."""

    __slots__ = ("high", "low", "n", "x", "xx", "xy", "y", "yy")

    def __init__(self) -> None:
        self.n = self.x = self.xx = 0
        self.y = self.yy = self.xy = 0.0
        self.low, self.high = inf, -inf

    def add(self, length: int, reward: float) -> None:
        self.n += 1
        self.x += length
        self.xx += length * length
        self.y += reward
        self.yy += reward * reward
        self.xy += reward * length
        self.low, self.high = min(self.low, reward), max(self.high, reward)


def _within(tasks: Iterable[Correlated]) -> tuple[float, int, int]:
    """The correlation within tasks, the number of rollouts, and the number of rollouts minus one per task."""
    lengths = rewards = both = 0.0
    n = freedom = 0
    for each in tasks:
        if each.low >= each.high:  # equal rewards show no correlation
            continue
        spread = each.yy - each.y * each.y / each.n
        if spread > _ROUNDING * each.yy:
            lengths += (each.n * each.xx - each.x**2) / each.n
            rewards += spread
            both += each.xy - each.x * each.y / each.n
            n, freedom = n + each.n, freedom + each.n - 1
    return (both / sqrt(lengths) / sqrt(rewards) if lengths > 0 and rewards > 0 else 0.0), n, freedom


class Deferred(RowCheck):
    name = "deferred"
    about = "rollouts that are not scored yet"
    advice = "velo verify scores them into a new file"
    says = "have no reward yet"

    def true_of(self, facts: RowFacts) -> bool:
        return _unscored(facts)


CHECKS: tuple[type[Check], ...] = (
    BadReward,
    NotFinite,
    AllZero,
    AllOne,
    ConstantReward,
    RewardOutliers,
    RewardLength,
    Deferred,
)
