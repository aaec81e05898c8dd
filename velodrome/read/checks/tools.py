"""Tools: whether they work, and whether the model knows how to use them."""

from __future__ import annotations

from collections.abc import Iterator

import velodrome.read.checks.thresholds as at
from velodrome.read.checks.facts import Batch
from velodrome.read.checks.finding import Check, Finding, Seen, Severity, graded, part
from velodrome.timing.report import clean


class FailingTools(Check):
    name = "failing-tools"
    severity = "error"
    about = "a tool gives nothing but errors"
    advice = "call the tool by hand with the arguments of one of these rollouts (velo show)"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.tools: dict[str, list[int]] = {}  # calls, errors, the lines of the first few errors

    def add(self, batch: Batch) -> None:
        tools = self.tools
        for one in batch:
            for name, failed in one.results:
                counts = tools.get(name)
                if counts is None:
                    if len(tools) >= at.MOST_TOOLS:
                        continue
                    counts = tools[name] = [0, 0]
                counts[0] += 1
                if failed:
                    counts[1] += 1
                    if len(counts) < 2 + at.EXAMPLES and one.line not in counts[2:]:
                        counts.append(one.line)

    def findings(self) -> Iterator[Finding]:
        for name, (calls, errors, *lines) in sorted(self.tools.items()):
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
        self.names: dict[str, int] = {}

    def add(self, batch: Batch) -> None:
        odd = [one for one in batch if one.unknown]
        self.hit([one.line for one in odd])
        for one in odd:
            for name in one.unknown:
                if name in self.names or len(self.names) < at.MOST_TOOLS:
                    self.names[name] = self.names.get(name, 0) + 1

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            names = sorted(self.names.items(), key=lambda each: (-each[1], each[0]))[:3]
            shown = ", ".join(f"{clean(name)} ({count:,})" for name, count in names)
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
