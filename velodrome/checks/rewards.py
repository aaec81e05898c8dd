"""Rewards: whether they tell rollouts apart, and whether they are numbers one can learn from."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from math import copysign

import velodrome.checks.thresholds as at
from velodrome.checks.facts import Batch, Facts
from velodrome.checks.finding import Check, Finding, Seen, Severity, part
from velodrome.checks.names import Names
from velodrome.checks.spread import Spread
from velodrome.stats.exact import Exact, ratio, root
from velodrome.timing.report import clean

_ROUNDING = 1e-24  # of the mean square; what differs by less differs by rounding alone


class _Alike(Check):
    """All rewards are one number."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.low: float | None = None
        self.high = 0.0
        self.scored = 0

    def add(self, batch: Batch) -> None:
        rewards = batch.rewards
        self.scored += len(rewards)
        if self.low is None:
            if not rewards:
                return
            self.low, self.high = min(rewards), max(rewards)
            self.examples = [one.line for one in batch.scored[: at.EXAMPLES]]
        elif self.low == self.high and rewards:  # once they differ, they differ
            self.low, self.high = min(self.low, *rewards), max(self.high, *rewards)

    def ours(self, reward: float) -> bool:
        """Whether this number is told by this check and not by its neighbours."""
        raise NotImplementedError

    def findings(self) -> Iterator[Finding]:
        if self.low is None or self.low != self.high or not self.ours(self.low) or self.scored < at.ALIKE_NOTE:
            return
        severity: Severity = "warning" if self.scored >= at.ALIKE_WARNING else "info"
        if self.scored >= at.ALIKE_ERROR:
            severity = "error"
        message = f"all {self.scored:,} rewards are {self.low + 0.0:g}"  # -0.0 is 0
        yield self.found(severity, message, count=self.scored, share=self.scored / (self.seen.rows or 1))


class AllZero(_Alike):
    name = "all-zero"
    severity = "error"
    about = "every reward is 0"
    advice = "look for a right answer (velo show): if it got 0, verification is broken; else the tasks are too hard"

    def ours(self, reward: float) -> bool:
        return reward == 0


class AllOne(_Alike):
    name = "all-one"
    severity = "error"
    about = "every reward is 1"
    advice = "look for a wrong answer (velo show): if it got 1, verification is broken; else the tasks are too easy"

    def ours(self, reward: float) -> bool:
        return reward == 1


class ConstantReward(_Alike):
    name = "constant-reward"
    severity = "error"
    about = "every reward is the same number, neither 0 nor 1"
    advice = "check that verify reads the answer, and not only its form"

    def ours(self, reward: float) -> bool:
        return reward not in (0, 1)


class BadReward(Check):
    name = "bad-reward"
    severity = "error"
    about = "a reward is missing, NaN, infinite or no number"
    advice = "mend verify and score the file again with velo verify; a trainer fed with these diverges or stops"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.kinds: dict[str, int] = {}

    def add(self, batch: Batch) -> None:
        bad = [one for one in batch if one.reward_flaw is not None]
        if bad:
            self.hit([one.line for one in bad])
            for one in bad:
                kind = str(one.reward_flaw)
                self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.kinds.items()))
            yield self.found("error", f"{part(self.hits, self.seen.rows, 'rewards')} are no numbers: {kinds}")


class NotFinite(Check):
    name = "not-finite"
    severity = "warning"
    about = "a number at the top level of a row is NaN or infinite"
    advice = "mend what verify returns; JSON has no such number: other readers refuse the line, and means leave it out"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.fields = Names(at.MOST_FIELDS)

    def add(self, batch: Batch) -> None:
        bad = [one for one in batch if one.infinite]
        if bad:
            self.hit([one.line for one in bad])
            for name in [name for one in bad for name in one.infinite]:
                self.fields.add(name)

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            told = ", ".join(f"{clean(name)} ({count:,})" for name, count in self.fields.most_often())
            yield self.found("warning", f"{part(self.hits, self.seen.rows, 'rows')} have NaN or infinite: {told}")


class RewardOutliers(Check):
    name = "reward-outliers"
    severity = "warning"
    about = "a reward is beyond 10, or far from all others"
    advice = "look at these rollouts with velo show; a mean over them is a mean of the outliers"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.spread = Spread()
        self.lowest: list[tuple[float, int]] = []  # the few most extreme: (-reward, -line) and (reward, -line)
        self.highest: list[tuple[float, int]] = []

    def add(self, batch: Batch) -> None:
        scored, rewards = batch.scored, batch.rewards
        if not rewards:
            return
        for reward, times in Counter(rewards).items():  # often the same few
            self.spread.add(reward, times)
        if max(rewards) > at.OUTLIER_REWARD or min(rewards) < -at.OUTLIER_REWARD:
            self.hit([one.line for one in scored if abs(one.reward or 0.0) > at.OUTLIER_REWARD])
        self.highest = _most(self.highest, rewards, scored, 1)
        self.lowest = _most(self.lowest, rewards, scored, -1)

    def findings(self) -> Iterator[Finding]:
        count = self.spread.count
        if self.hits:
            mostly = self.share(count) > at.SCALE_SHARE
            beyond = f"{part(self.hits, count, 'rewards')} are beyond {at.OUTLIER_REWARD:g}"
            yield self.found(
                "info" if mostly else "warning",
                f"{beyond}: that is their scale" if mostly else beyond,
                share=self.share(count),
            )
            return
        if count < at.OUTLIER_LEAST:
            return
        median = self.spread.quantile(0.5)
        away = at.OUTLIER_DEVIATIONS * max(1.4826 * self.spread.deviation(), at.OUTLIER_LEAST_DEVIATION)
        far = self.spread.outside(median - away, median + away)
        if 0 < far <= at.OUTLIER_SHARE * count:
            extremes = [(reward, -line) for reward, line in self.highest] + [(-low, -line) for low, line in self.lowest]
            lines = sorted({line for reward, line in extremes if abs(reward - median) > away})
            if not lines:
                return  # the buckets of the spread are coarse: it was not so far off
            message = f"{part(far, count, 'rewards')} are more than {away:.3g} from the median, {median:.3g}"
            yield self.found("warning", message, count=far, share=far / count, examples=lines)


def _most(
    kept: list[tuple[float, int]], rewards: Sequence[float], scored: Sequence[Facts], sign: int
) -> list[tuple[float, int]]:
    """The few largest (or, with sign -1, smallest) rewards so far, with their lines."""
    if len(kept) == at.EXAMPLES and max(sign * reward for reward in (max(rewards), min(rewards))) <= kept[-1][0]:
        return kept
    fresh = ((sign * reward, -one.line) for reward, one in zip(rewards, scored, strict=True))
    return heapq.nlargest(at.EXAMPLES, [*kept, *fresh])


class RewardLength(Check):
    name = "reward-length"
    severity = "warning"
    about = "the reward goes with the length of what the model wrote"
    advice = (
        "a policy trained on this learns the length; check what verify looks at, and max_output_tokens if short wins"
    )

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.n = self.x = self.xx = 0  # x is the length, y the reward; sums are exact
        self.y, self.yy, self.xy = Exact(), Exact(), Exact()

    def add(self, batch: Batch) -> None:
        if not batch.scored:
            return
        lengths = [one.length for one in batch.scored]
        self.n += len(lengths)
        self.x += sum(lengths)
        self.xx += sum([length * length for length in lengths])
        by_reward: dict[float, tuple[int, int]] = {}  # often few: how many have it, and their length
        for reward, length in zip(batch.rewards, lengths, strict=True):
            times, whole = by_reward.get(reward, (0, 0))
            by_reward[reward] = times + 1, whole + length
        for reward, (times, whole) in by_reward.items():
            numerator, denominator = reward.as_integer_ratio()
            self.y.add_ratio(numerator * times, denominator)
            self.yy.add_ratio(numerator * numerator * times, denominator * denominator)
            self.xy.add_ratio(numerator * whole, denominator)

    def findings(self) -> Iterator[Finding]:
        if self.n < at.CORRELATION_LEAST:
            return
        n, x, y, yy, xy = self.n, self.x, self.y, self.yy, self.xy
        lengths = n * self.xx - x * x
        rewards = n * yy.whole * y.unit * y.unit - y.whole * y.whole * yy.unit  # in 1 / (yy.unit * y.unit ** 2)
        if not lengths or ratio(rewards, n * yy.whole * y.unit * y.unit or 1) <= _ROUNDING:
            return
        both = n * xy.whole * y.unit - x * y.whole * xy.unit  # in 1 / (xy.unit * y.unit)
        r = copysign(root(both * both * yy.unit, xy.unit * xy.unit * lengths * rewards), both)
        if abs(r) >= at.CORRELATION:
            which = "longer" if r > 0 else "shorter"
            message = f"{which} outputs get the higher rewards: r = {r:.2f} over {self.n:,} rollouts"
            yield self.found("warning", message, count=self.n, share=self.n / (self.seen.rows or 1), examples=())


class Deferred(Check):
    name = "deferred"
    severity = "info"
    about = "rollouts that are not scored yet"
    advice = "velo verify scores them into a new file"

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.deferred])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            message = f"{part(self.hits, self.seen.rows, 'rollouts')} have no reward yet"
            yield self.found("info", message)


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
