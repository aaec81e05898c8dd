"""Tools: whether they work, and whether the model knows how to use them."""

from __future__ import annotations

from collections.abc import Iterator

import velodrome.checks.thresholds as at
from velodrome.checks.facts import Batch
from velodrome.checks.finding import Check, Finding, Seen, Severity, graded, part
from velodrome.checks.names import Names
from velodrome.timing.report import clean


class FailingTools(Check):
    name = "failing-tools"
    severity = "error"
    about = "a tool gives nothing but errors"
    advice = "call the tool by hand with the arguments of one of these rollouts (velo show)"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.tools = Names(at.MOST_TOOLS, counts=2)  # calls, errors, the lines of the first few errors

    def add(self, batch: Batch) -> None:
        for one in batch:
            for name, failed in one.results:
                counts = self.tools.counts(name)
                if counts is None:
                    continue
                counts[0] += 1
                if failed:
                    counts[1] += 1
                    if len(counts) < 2 + at.EXAMPLES and one.line not in counts[2:]:
                        counts.append(one.line)

    def findings(self) -> Iterator[Finding]:
        for name, (calls, errors, *lines) in sorted(self.tools.kept.items()):
            if calls >= at.TOOL_LEAST and errors >= at.TOOL_FAILS * calls:
                message = f"{clean(name)}: {part(errors, calls, 'calls')} ended in an error"
                severity: Severity = "error" if errors == calls else "warning"
                yield self.found(severity, message, count=errors, share=errors / calls, examples=lines)


class UnknownTools(Check):
    name = "unknown-tools"
    severity = "warning"
    about = "the model calls tools that were not offered"
    advice = "name the tools in the prompt as they are offered, or offer the one it looks for"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.names = Names(at.MOST_TOOLS)

    def add(self, batch: Batch) -> None:
        odd = [one for one in batch if one.unknown]
        self.hit([one.line for one in odd])
        for one in odd:
            for name in one.unknown:
                self.names.add(name)

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            shown = ", ".join(f"{clean(name)} ({count:,})" for name, count in self.names.most_often())
            message = f"{part(self.hits, self.seen.rows, 'rollouts')} call a tool that was not offered: {shown}"
            yield self.found(graded(self.hits, self.share(), warning=at.UNKNOWN_WARNING), message)


class RepeatedCalls(Check):
    name = "repeated-calls"
    severity = "warning"
    about = f"the same tool call, or the same few in turn, stand {at.LOOP_CALLS} times in a row"
    advice = "see with velo show what the tool answers: a result the model cannot use is asked for again"

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.loop])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            again = f"repeat one call, or a few in turn, {at.LOOP_CALLS} times or more"
            message = f"{part(self.hits, self.seen.rows, 'rollouts')} {again}"
            yield self.found(graded(self.hits, self.share(), warning=at.LOOPS_WARNING), message)


CHECKS: tuple[type[Check], ...] = (FailingTools, UnknownTools, RepeatedCalls)
