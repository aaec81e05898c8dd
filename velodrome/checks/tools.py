"""Tools: whether they work, and whether the model uses them correctly."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import velodrome.checks.thresholds as at
from velodrome.checks.check import Check, Finding, KindCheck, RowBatch, RowCheck, Seen, Severity, part
from velodrome.checks.texts import is_tool_error
from velodrome.records.facts import RowFacts
from velodrome.stats.first_names import FirstNames
from velodrome.timing.report import clean

_LONGEST_NAME = 64


class FailingTools(Check):
    name = "failing-tools"
    severity = "error"
    about = "a tool returns nothing but errors"
    advice = "call the tool by hand with the arguments of one of these rollouts (velo show)"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        # by name: calls, errors, the lines of the first few errors
        self.tools: FirstNames[list[int]] = FirstNames(at.MOST_TOOLS, lambda: [0, 0])
        self.failed: dict[str, array[int]] = {}  # the lines of all errors, by name, if lines are kept

    def add(self, batch: RowBatch) -> None:
        for facts in batch:
            for name, result in facts.results if facts.tool_calls else ():
                counts = self.tools.of(name[:_LONGEST_NAME])
                if counts is None:
                    continue
                counts[0] += 1
                if is_tool_error(result):
                    counts[1] += 1
                    line = self.seen.line(facts)
                    if len(counts) < 2 + at.EXAMPLES and line not in counts[2:]:
                        counts.append(line)
                    if self.seen.keeps_lines:
                        self.failed.setdefault(name[:_LONGEST_NAME], array("Q")).append(line)

    def findings(self) -> Iterator[Finding]:
        for name, (calls, errors, *lines) in sorted(self.tools.items()):
            if calls >= at.TOOL_LEAST and errors >= at.TOOL_FAILS * calls:
                message = f"{clean(name)}: {part(errors, calls, 'calls')} ended in an error"
                severity: Severity = "error" if errors == calls else "warning"
                failed = self.failed.get(name, ())
                yield self.finding(severity, message, count=errors, share=errors / calls, examples=lines, lines=failed)


class UnknownTools(KindCheck):
    name = "unknown-tools"
    about = "the model calls tools that were not offered"
    advice = "name the tools in the prompt as they are offered, or offer the one it looks for"
    says = "call a tool that was not offered"
    warning = at.UNKNOWN_WARNING

    def kinds_of(self, facts: RowFacts) -> Sequence[str]:
        if not facts.tool_calls or not facts.params.get("tools"):
            return ()
        offered, called = facts.offered, dict.fromkeys(str(name) for name, _ in facts.calls)
        return [name[:_LONGEST_NAME] for name in called if name not in offered]


class RepeatedCalls(RowCheck):
    name = "repeated-calls"
    about = f"the same tool call, or the same few in turn, occur {at.LOOP_CALLS} times in a row"
    advice = "see with velo show what the tool returns: a model repeats a call whose result it cannot use"
    says = f"repeat one call, or a few in turn, {at.LOOP_CALLS} times or more"
    warning = at.LOOPS_WARNING

    def true_of(self, facts: RowFacts) -> bool:
        return facts.tool_calls >= at.LOOP_CALLS and loops(facts.calls)


def loops(calls: list[tuple[Any, Any]]) -> bool:
    """Whether the same call, or the same few in turn, occur several times in a row."""
    for period in range(1, at.LOOP_PERIOD + 1):
        run = 0
        for before, call in zip(calls, islice(calls, period, None), strict=False):
            run = run + 1 if call == before else 0
            if run >= period * (at.LOOP_CALLS - 1):
                return True
    return False


CHECKS: tuple[type[Check], ...] = (FailingTools, UnknownTools, RepeatedCalls)
