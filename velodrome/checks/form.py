"""The file itself: lines that are not rollouts, duplicate keys, and failures."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence

import velodrome.checks.thresholds as at
from velodrome.checks.check import Check, Finding, KindCheck, RowBatch, RowCheck, Seen, Severity, graded, part
from velodrome.checks.task_memory import HashSample
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import FAILED
from velodrome.records.task import hashed
from velodrome.timing.report import clean

_FOLDED = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")
_LONGEST_REASON = 160
_CHECKED_ELSEWHERE = ("reward", "usage.", "meta.timing.")


class Unreadable(Check):
    name = "unreadable-lines"
    severity = "error"
    about = "lines that are not JSON objects, bytes that cannot be decompressed"
    advice = "another program wrote to the file, or it was cut; velo collect mends a torn last line"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.torn = 0
        self.reason: tuple[bool, str] | None = None  # the first in sorted order; a torn line only if there is no other

    def lost(self, line: int, reason: str, *, torn: bool = False) -> None:
        """Count a line that could not be read."""
        self.reason = min(self.reason or (torn, reason), (torn, reason))
        self.torn += torn
        self.hit_lines([line])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            lines = self.seen.rows + self.hits
            severity: Severity = "error"
            reason = clean(self.reason[1] if self.reason else "", longest=_LONGEST_REASON)
            message = f"{part(self.hits, lines, 'lines')} cannot be read: {reason}"
            if self.torn == self.hits:
                severity, message = "info", "the last line is not whole: it is being written, or was torn"
            yield self.finding(severity, message, share=self.hits / lines, lines=())


class Schema(KindCheck):
    name = "schema"
    least = "error"
    about = "rows that lack a part of a rollout, or have it in another type"
    advice = "docs/rollouts.md names every field; velo import turns other formats into rollouts"
    of, says = "rows", "are not rollouts"

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        wrong = [name for name in facts.wrong if not name.startswith(_CHECKED_ELSEWHERE)] if facts.wrong else []
        return [*(f"no {name}" for name in facts.missing), *(f"{name} of a wrong type" for name in wrong)][:1]


class DuplicateKeys(Check):
    name = "duplicate-keys"
    severity = "error"
    about = "a key is in one file more than once"
    advice = "two collections or a copy were joined; keep one line of each key, or metrics count these twice"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.keys, self.places = array("q"), array("Q")

    def add(self, batch: RowBatch) -> None:
        keyed = [facts for facts in batch if facts.key is not None]
        self.keys.extend([hash(facts.key) for facts in keyed])
        self.places.extend([self.seen.line(facts) for facts in keyed])

    def end_file(self) -> None:
        """Start a new file: the same key in another file is another run."""
        self.hit_lines(self._duplicate_lines())
        self.keys, self.places = array("q"), array("Q")

    def _duplicate_lines(self) -> list[int]:
        import numpy as np

        keys = np.frombuffer(self.keys, np.int64)
        order = np.argsort(keys, kind="stable")
        repeated = order[1:][keys[order][1:] == keys[order][:-1]]
        return sorted(self.places[place] for place in repeated)

    def findings(self) -> Iterator[Finding]:
        duplicates = self._duplicate_lines()
        count = self.hits + len(duplicates)
        if count:
            message = f"{part(count, self.seen.rows, 'rollouts')} have a key that was there before"
            share, examples = count / self.seen.rows, [*self.examples, *duplicates]
            lines = [*self.lines, *duplicates]
            yield self.finding("error", message, count=count, share=share, examples=examples, lines=lines)


class TokenCounts(RowCheck):
    name = "no-token-counts"
    about = "rollouts whose tokens are not counted"
    advice = "the model server returns no usage; token metrics and max_total_tokens miss these rollouts"
    says = "have no token counts"

    def true_of(self, facts: RowFacts) -> bool:
        return not (facts.total_tokens or facts.output_tokens) and not facts.episode


class TokenIds(KindCheck):
    name = "no-token-ids"
    least = "warning"
    about = "token ids or log-probabilities were asked for and did not come, or came for some turns only"
    advice = (
        "docs/models.md#token-ids says which server gives what, and what to set;"
        " llama.cpp and local_model give no prompt_token_ids"
    )
    says = "lack token ids or log-probabilities that were asked for or that other turns have"

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        return facts.token_flaws


class NoRollouts(Check):
    name = "no-rollouts"
    severity = "warning"
    about = "there is no rollout at all"
    advice = "the collection has not begun or everything failed; velo show reads the failures file"

    def findings(self) -> Iterator[Finding]:
        if not self.seen.rows:
            yield self.finding("warning", "there are no rollouts", share=0.0)


class Failures(Check):
    name = "failures"
    severity = "error"
    about = "rollouts that failed and were not made up for"
    advice = "velo show reads the failures file; the same velo collect command tries them again"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        # by a hash of the key: a reason, and the line of the last failure
        self.failed: HashSample[tuple[str, int]] = HashSample(at.MOST_FAILED)

    def fail(self, failure: RowFacts) -> None:
        if failure.key is not None:
            place, reason = hashed(failure.key), failure.error[:_LONGEST_REASON]
            self.failed.put(place, (min(self.failed.get(place, (reason,))[0], reason), failure.line))

    def add(self, batch: RowBatch) -> None:
        if self.failed:
            for facts in batch:
                self.failed.pop(hashed(facts.key or ""), None)

    @property
    def count(self) -> int:
        """Keys that failed and were not made up for; of very many, an estimate from the remembered ones."""
        return len(self.failed) * self.failed.each_of

    def findings(self) -> Iterator[Finding]:
        count, each_of = self.count, self.failed.each_of
        if not count:
            return
        requested = self.seen.rows + count
        error = at.FAILED_ERROR if count >= at.FAILED_LEAST else None
        severity = graded(count, count / requested, warning=at.FAILED_WARNING, error=error)
        similar_reasons: dict[str, list[str]] = {}  # reasons that differ in numbers alone
        for reason, _ in self.failed.values():
            similar_reasons.setdefault(_FOLDED.sub("…", reason), []).append(reason)
        commonest = min(similar_reasons, key=lambda folded: (-len(similar_reasons[folded]), folded))
        reason = clean(min(similar_reasons[commonest]), longest=_LONGEST_REASON)
        about, times = "about " if each_of > 1 else "", len(similar_reasons[commonest]) * each_of
        message = f"{about}{part(count, requested, 'rollouts')} failed, most often ({times:,}): {reason}"
        lines = [FAILED + line for _, line in self.failed.values() if line]
        yield self.finding(severity, message, count=count, share=count / requested, lines=lines)


CHECKS: tuple[type[Check], ...] = (NoRollouts, Unreadable, Schema, DuplicateKeys, Failures, TokenCounts, TokenIds)
