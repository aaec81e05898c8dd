"""Times: whether they are valid, and whether a part or some rollouts take too long."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import velodrome.checks.thresholds as at
from velodrome.checks.check import Check, Finding, KeptValues, KindCheck, RowBatch, Seen, Severity, graded, part
from velodrome.records.facts import RowFacts
from velodrome.records.row_times import PARTS
from velodrome.timing.percentiles import Quantiles

_MODEL, _VERIFY = PARTS.index("model"), PARTS.index("verify")
_MISSING = ("missing",)
_WRONG = ("negative, endless or not a number",)


class BadTimes(KindCheck):
    name = "bad-times"
    severity = "warning"
    about = "times are missing, negative or not numbers"
    advice = "throughput and velo profile leave these out; a negative time is a clock that was set back, or a bug"
    says = "have no usable times"

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        if facts.times is not None:
            return ()
        return _MISSING if facts.total_s is None and "meta.timing.total_s" not in facts.wrong else _WRONG

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            yield self.finding("warning" if _WRONG[0] in self.kinds else "info", self.message())


class SlowRollouts(Check):
    name = "slow-rollouts"
    severity = "warning"
    about = f"rollouts take {at.SLOW_TIMES:g} times as long as the median"
    advice = "velo show --all prints what they did; timeout_s and max_steps of the agent bound them"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.durations = Quantiles()
        self.slowest: list[tuple[float, int]] = []  # (seconds, -line)
        self.kept_durations = KeptValues()  # if lines are kept

    def add(self, batch: RowBatch) -> None:
        times = [(facts.total_s or 0.0, -self.seen.line(facts)) for facts in batch.timed]
        self.durations.extend([seconds for seconds, _ in times if seconds])
        self.slowest = heapq.nlargest(at.EXAMPLES, [*self.slowest, *times])
        if self.seen.keeps_lines:
            self.kept_durations.extend([seconds for seconds, _ in times], [-line for _, line in times])

    def findings(self) -> Iterator[Finding]:
        count, median = self.durations.count, self.durations.quantile(0.5)
        limit = max(at.SLOW_TIMES * median, median + at.SLOW_LEAST_S)
        slow_lines = self.kept_durations.outside(0.0, limit)
        slow = len(slow_lines) if self.seen.keeps_lines else self.durations.outside(0.0, limit)
        lines = [-line for seconds, line in self.slowest if seconds > limit]
        if slow and lines and count >= at.SLOW_LEAST:
            message = f"{part(slow, count, 'rollouts')} took more than {limit:.3g} s; the median is {median:.3g} s"
            severity = graded(slow, slow / count, warning=at.SLOW_WARNING)
            yield self.finding(severity, message, count=slow, share=slow / count, examples=lines, lines=slow_lines)


class SlowVerification(Check):
    name = "slow-verification"
    severity = "warning"
    about = "verification takes longer than the model"
    advice = "velo profile says what bounds it; cache lookups, or collect with +defer_verification=true"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.timed = 0
        self.model_ns = self.verify_ns = 0  # integers: their sum does not depend on the order

    def add(self, batch: RowBatch) -> None:
        for facts in batch.timed:
            assert facts.times is not None
            parts = facts.times.parts
            self.model_ns += round(1e9 * parts[_MODEL])
            self.verify_ns += round(1e9 * parts[_VERIFY])
            if parts[_VERIFY] > parts[_MODEL]:
                self.hit([facts])
        self.timed += len(batch.timed)

    def findings(self) -> Iterator[Finding]:
        timed = self.timed or 1
        model_s, verify_s = self.model_ns / 1e9 / timed, self.verify_ns / 1e9 / timed
        if verify_s > model_s and verify_s >= at.VERIFY_LEAST_S and self.timed >= at.VERIFY_LEAST:
            message = (
                f"verification takes {verify_s:.3g} s per rollout, the model {model_s:.3g} s; "
                f"it is the longer part in {part(self.hits, timed, 'rollouts')}"
            )
            yield self.finding("warning", message, share=self.share(timed))


class Retries(Check):
    name = "retries"
    severity = "warning"
    about = "many model calls had to be repeated"
    advice = "lower num_samples_in_parallel, use auto, or set max_concurrent to what the model server takes"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.retries = self.limited = 0

    def add(self, batch: RowBatch) -> None:
        for facts in batch:
            if "retries" in facts.timing or "rate_limited" in facts.timing:
                retries, limited = facts.count("retries"), facts.count("rate_limited")
                self.retries += retries
                self.limited += limited
                if retries or limited:
                    self.hit([facts])

    def findings(self) -> Iterator[Finding]:
        share = self.share()
        if self.seen.rows >= at.RETRIES_LEAST and self.hits >= at.FEW and share >= at.RETRIES_NOTE:
            severity: Severity = "warning" if share >= at.RETRIES_WARNING else "info"
            message = f"{part(self.hits, self.seen.rows, 'rollouts')} had retries: {self.retries:,} in all"
            limited = f", {self.limited:,} for the rate limit" if self.limited else ""
            yield self.finding(severity, message + limited)


CHECKS: tuple[type[Check], ...] = (BadTimes, SlowRollouts, SlowVerification, Retries)
