"""Times: whether they are times, and whether some part or some rollouts take far too long."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import velodrome.checks.thresholds as at
from velodrome.checks.facts import Batch
from velodrome.checks.finding import Check, Finding, Seen, Severity, graded, part
from velodrome.checks.spread import Spread


class BadTimes(Check):
    name = "bad-times"
    severity = "warning"
    about = "times are missing, negative or no numbers"
    advice = "throughput and velo profile leave these out; a negative time is a clock that was set back, or a bug"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.wrong = 0

    def add(self, batch: Batch) -> None:
        bad = [one for one in batch if one.untimed or one.time_flaw is not None]
        if bad:
            self.hit([one.line for one in bad])
            self.wrong += sum(one.time_flaw is not None for one in bad)

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            kinds = {"missing": self.hits - self.wrong, "negative, endless or no number": self.wrong}
            told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
            message = f"{part(self.hits, self.seen.rows, 'rollouts')} have no times to go by: {told}"
            yield self.found("warning" if self.wrong else "info", message)


class SlowRollouts(Check):
    name = "slow-rollouts"
    severity = "warning"
    about = f"rollouts take {at.SLOW_TIMES:g} times as long as the median"
    advice = "velo show --all tells what they did; timeout_s and max_steps of the agent bound them"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.spread = Spread()
        self.slowest: list[tuple[float, int]] = []

    def add(self, batch: Batch) -> None:
        timed = batch.timed
        totals = [one.total_s for one in timed]
        if not totals:
            return
        self.spread.extend(totals)
        if len(self.slowest) < at.EXAMPLES or max(totals) > self.slowest[-1][0]:
            fresh = [(one.total_s, -one.line) for one in timed]
            self.slowest = heapq.nlargest(at.EXAMPLES, [*self.slowest, *fresh])

    def findings(self) -> Iterator[Finding]:
        count, median = self.spread.count, self.spread.quantile(0.5)
        limit = max(at.SLOW_TIMES * median, median + at.SLOW_LEAST_S)
        slow = self.spread.outside(0.0, limit)
        if slow and count >= at.SLOW_LEAST:
            share = slow / count
            message = f"{part(slow, count, 'rollouts')} took more than {limit:.3g} s; the median is {median:.3g} s"
            lines = [-line for seconds, line in self.slowest if seconds > limit]
            if not lines:
                return  # the buckets of the spread are coarse: they were not so slow
            severity = graded(slow, share, warning=at.SLOW_WARNING)
            yield self.found(severity, message, count=slow, share=share, examples=lines)


class SlowVerification(Check):
    name = "slow-verification"
    severity = "warning"
    about = "verification takes longer than the model"
    advice = "velo profile says what bounds it; cache lookups, or collect with +defer_verification=true"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.timed = 0
        self.model_ns = self.verify_ns = 0  # whole numbers: a sum of them does not depend on the order

    def add(self, batch: Batch) -> None:
        timed = batch.timed
        self.timed += len(timed)
        self.model_ns += sum([round(1e9 * one.model_s) for one in timed])
        self.verify_ns += sum([round(1e9 * one.verify_s) for one in timed])
        slower = [one.line for one in timed if one.verify_s > one.model_s]
        self.hit(slower)

    def findings(self) -> Iterator[Finding]:
        timed = self.timed or 1
        model_s, verify_s = self.model_ns / 1e9 / timed, self.verify_ns / 1e9 / timed
        slow = verify_s > model_s and verify_s >= at.VERIFY_LEAST_S
        if slow and self.timed >= at.VERIFY_LEAST:
            message = (
                f"verification takes {verify_s:.3g} s a rollout, the model {model_s:.3g} s; "
                f"it is the longer part in {part(self.hits, timed, 'rollouts')}"
            )
            yield self.found("warning", message, share=self.share(timed))


class Retries(Check):
    name = "retries"
    severity = "warning"
    about = "many model calls had to be repeated"
    advice = "lower num_samples_in_parallel, use auto, or set max_concurrent to what the model server takes"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.retries = self.limited = 0

    def add(self, batch: Batch) -> None:
        again = [one for one in batch if one.retries or one.rate_limited]
        if again:
            self.hit([one.line for one in again])
            self.retries += sum(one.retries for one in again)
            self.limited += sum(one.rate_limited for one in again)

    def findings(self) -> Iterator[Finding]:
        share = self.share()
        if self.seen.rows >= at.RETRIES_LEAST and self.hits >= at.FEW and share >= at.RETRIES_NOTE:
            severity: Severity = "warning" if share >= at.RETRIES_WARNING else "info"
            message = f"{part(self.hits, self.seen.rows, 'rollouts')} had retries: {self.retries:,} in all"
            limited = f", {self.limited:,} for the rate limit" if self.limited else ""
            yield self.found(severity, message + limited)


CHECKS: tuple[type[Check], ...] = (BadTimes, SlowRollouts, SlowVerification, Retries)
