"""Rewards: whether they tell rollouts apart, and whether they are numbers one can learn from."""

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

_ROUNDING = 1e-12  # of the sum of squares; what differs by less differs by rounding alone
_LONGEST_NAME = 64


class _Alike(Check):
    """All rewards are one number: `only`, or without it neither 0 nor 1."""

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


def _unscored(one: RowFacts) -> bool:
    return one.deferred or (one.reward is None and "reward" in one.row and one.row["reward"] is None)


class BadReward(KindCheck):
    name = "bad-reward"
    least = "error"
    about = "a reward is missing, NaN, infinite or not a number"
    advice = "fix verify and score the file again with velo verify; a trainer fed with these diverges or stops"
    of, says = "rewards", "are not usable numbers"

    def kinds_of(self, one: RowFacts) -> Sequence[str]:
        reward = one.reward
        if (reward is not None and abs(reward) < at.LARGEST) or _unscored(one):
            return ()
        if "reward" in one.wrong:
            return ("not a number",)
        if reward is not None or "reward" in one.not_finite:
            return ("NaN",) if one.row["reward"] != one.row["reward"] else ("infinite",)
        return ("missing",)


class NotFinite(KindCheck):
    name = "not-finite"
    least = "warning"
    about = "a number at the top level of a row is NaN or infinite"
    advice = "fix what verify returns; JSON has no such number: other readers refuse the line, and means leave it out"
    of, says = "rows", "have NaN or infinite numbers"

    def kinds_of(self, one: RowFacts) -> Sequence[str]:
        return [name[:_LONGEST_NAME] for name in one.not_finite if name != "reward"] if one.not_finite else ()


class RewardOutliers(Check):
    name = "reward-outliers"
    severity = "warning"
    about = "a reward is beyond 10, or far from all others"
    advice = "look at these rollouts with velo show; a mean over them is a mean of the outliers"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.spread = Quantiles()
        self.highest: list[tuple[float, int]] = []  # the few most extreme: (reward, -line), and (-reward, -line)
        self.lowest: list[tuple[float, int]] = []
        self.all = KeptValues()  # if lines are kept

    def add(self, batch: RowBatch) -> None:
        rewards = batch.rewards
        if not rewards:
            return
        self.spread.extend(rewards)
        if max(rewards) > at.OUTLIER_REWARD or min(rewards) < -at.OUTLIER_REWARD:
            self.hit([one for one in batch.scored if abs(one.reward or 0.0) > at.OUTLIER_REWARD])
        places = [(reward, -self.seen.line(one)) for reward, one in zip(rewards, batch.scored, strict=True)]
        self.highest = heapq.nlargest(at.EXAMPLES, [*self.highest, *places])
        self.lowest = heapq.nlargest(at.EXAMPLES, [*self.lowest, *((-reward, line) for reward, line in places)])
        if self.seen.keeps_lines:
            self.all.extend(rewards, [-line for _, line in places])

    def findings(self) -> Iterator[Finding]:
        count = self.spread.count
        if self.hits:
            mostly = self.share(count) > at.SCALE_SHARE
            beyond = f"{part(self.hits, count, 'rewards')} are beyond {at.OUTLIER_REWARD:g}"
            message = f"{beyond}: that is their scale" if mostly else beyond
            yield self.finding("info" if mostly else "warning", message, share=self.share(count))
            return
        if count < at.OUTLIER_LEAST:
            return
        median = self.spread.quantile(0.5)
        away = at.OUTLIER_DEVIATIONS * max(1.4826 * self.spread.deviation(), at.OUTLIER_LEAST_DEVIATION)
        beyond_all = self.all.outside(median - away, median + away)
        far = len(beyond_all) if self.seen.keeps_lines else self.spread.outside(median - away, median + away)
        extremes = [*self.highest, *((-reward, line) for reward, line in self.lowest)]
        lines = sorted({-line for reward, line in extremes if abs(reward - median) > away})
        if lines and 0 < far <= at.OUTLIER_SHARE * count:
            message = f"{part(far, count, 'rewards')} are more than {away:.3g} from the median, {median:.3g}"
            yield self.finding("warning", message, count=far, share=far / count, examples=lines, lines=beyond_all)


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
        for reward, one in zip(batch.rewards, batch.scored, strict=True):
            if one.task is not None and self.tasks.takes(place := hashed(one.task)):
                if place not in self.tasks:
                    self.tasks.put(place, Correlated())
                if place in self.tasks:
                    self.tasks[place].add(sum(map(len, one.written)), reward)

    def findings(self) -> Iterator[Finding]:
        r, n, telling = _within(self.tasks.values())
        if abs(r) >= at.CORRELATION and telling >= at.CORRELATION_LEAST:
            which = "longer" if r > 0 else "shorter"
            message = f"{which} outputs of the same task get the higher rewards: r = {r:.2f} over {n:,} rollouts"
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
    """The correlation within tasks, over how many rollouts, and how many of these are beyond one per task."""
    lengths = rewards = both = 0.0
    n = telling = 0
    for each in tasks:
        if each.low >= each.high:  # one reward tells nothing
            continue
        spread = each.yy - each.y * each.y / each.n
        if spread > _ROUNDING * each.yy:
            lengths += (each.n * each.xx - each.x**2) / each.n
            rewards += spread
            both += each.xy - each.x * each.y / each.n
            n, telling = n + each.n, telling + each.n - 1
    return (both / sqrt(lengths) / sqrt(rewards) if lengths > 0 and rewards > 0 else 0.0), n, telling


class Deferred(RowCheck):
    name = "deferred"
    about = "rollouts that are not scored yet"
    advice = "velo verify scores them into a new file"
    says = "have no reward yet"

    def true_of(self, one: RowFacts) -> bool:
        return _unscored(one)


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
