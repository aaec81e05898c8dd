"""All checks over all rollouts, in one pass: the collector feeds `Checks` row by row, `run_checks` from files.

The checks read rows in batches, which takes a third of the time of single rows. Memory does not grow with rows, except
for sixteen bytes per key where keys are compared, and eight per answer where answers are. The findings do not depend on
the order of rows; examples are the first lines of the file.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import velodrome.checks.final_answers as final_answers
import velodrome.checks.form as form
import velodrome.checks.repeats as repeats
import velodrome.checks.rewards as rewards
import velodrome.checks.times as times
import velodrome.checks.tools as tools
from velodrome.checks.check import SEVERITIES, Check, Finding, RowBatch, Seen, Severity
from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import LostLine
from velodrome.records.rows import read_facts, read_failures
from velodrome.settings.names import hint
from velodrome.timing.figures import counted

CHECKS: dict[str, type[Check]] = {
    check.name: check for family in (form, rewards, final_answers, tools, repeats, times) for check in family.CHECKS
}
# The checks at the end of a collection. The collector itself refuses duplicate keys and tasks.
WHILE_COLLECTING = frozenset(CHECKS) - {form.DuplicateKeys.name, repeats.DuplicateTasks.name}
_AT_ONCE = 64
_BYTES_AT_ONCE = 1_000_000
_MOST_SHORT = 5


class Checks:
    """The requested checks (all of them by default), fed with rows.

    Without `by_task` the checks that compare repeats are left out, and tasks are not remembered. With `keeps_lines` a
    finding has the lines of all affected rollouts, at a cost of some bytes per rollout.
    """

    def __init__(self, only: Collection[str] | None = None, *, by_task: bool = True, keeps_lines: bool = False) -> None:
        self.seen = Seen(keeps_lines=keeps_lines)
        names = [name for name in CHECKS if (only is None or name in only) and (by_task or not CHECKS[name].by_task)]
        self._unreadable, self._keys = form.Unreadable(self.seen), form.DuplicateKeys(self.seen)
        self._failures = form.Failures(self.seen)
        own: dict[str, Check] = {each.name: each for each in (self._unreadable, self._keys, self._failures)}
        self._checks = [own.get(name) or CHECKS[name](self.seen) for name in names]
        self._fed_checks = self._checks if self._failures in self._checks else [*self._checks, self._failures]
        self._by_task = any(check.by_task for check in self._checks)
        self.seen.tasks.compared = repeats.DuplicateTasks.name in names
        self._pending: list[RowFacts] = []
        self._bytes = 0
        self._starts: list[tuple[int, str]] = []  # of each file: the lines before it, and its name
        self._line = 0  # of the last row, in its file

    @property
    def rollouts(self) -> int:
        return self.seen.rows

    @property
    def failed(self) -> int:
        self._read_waiting()
        return self._failures.count

    def begin(self, file: str) -> None:
        """Start another file, in which lines count from 1."""
        self._read_waiting()
        if self._starts:
            self._keys.end_file()
        self.seen.before += self._line
        self._line = 0
        self._starts.append((self.seen.before, file))

    def add(self, facts: RowFacts) -> None:
        """Read one rollout. Without a line number, it is in the next line."""
        self._line = facts.line = facts.line or self._line + 1
        self.seen.rows += 1
        if self._by_task and facts.task is not None and not facts.episode:
            self.seen.tasks.add(facts, self.seen.line(facts))
        self._pending.append(facts)
        self._bytes += facts.size
        if len(self._pending) >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._read_waiting()

    def fail(self, failure: RowFacts) -> None:
        self._failures.fail(failure)

    def lost(self, lost: LostLine) -> None:
        """Count a line that could not be read."""
        self._line = lost.number
        self._unreadable.lost(self.seen.before + lost.number, lost.reason, torn=lost.torn)

    def _read_waiting(self) -> None:
        if self._pending:
            batch = RowBatch(self._pending)
            for check in self._fed_checks:
                check.add(batch)
            self._pending, self._bytes = [], 0

    def findings(self) -> list[Finding]:
        """All findings so far, the worst first."""
        self._read_waiting()
        findings = [finding for check in self._checks for finding in check.findings()]
        findings.sort(key=lambda each: -SEVERITIES.index(each.severity))
        return [self._with_files(each) for each in findings]

    def _with_files(self, finding: Finding) -> Finding:
        """The finding with the file and the line within it of each example."""
        if not self._starts or not finding.examples:
            return finding
        places = [[start for start in self._starts if start[0] < line][-1] for line in finding.examples]
        lines = [line - place[0] for line, place in zip(finding.examples, places, strict=True)]
        return replace(finding, examples=lines, files=[place[1] for place in places])


def known_checks(names: Collection[str]) -> list[str]:
    """The names, or an `InputError` for those that are not checks."""
    unknown = [name for name in names if name not in CHECKS]
    problems = [
        f"there is no check {name!r:.60}{hint(name, CHECKS) or '; velo check --list names them'}" for name in unknown
    ]
    if problems:
        raise InputError(*problems)
    return list(names)


def run_checks(path: Path, *more: Path, only: Collection[str] | None = None) -> list[Finding]:
    """Check rollouts files and the failures beside them; the worst findings first."""
    return read_checks(path, *more, only=only).findings()


def read_checks(path: Path, *more: Path, only: Collection[str] | None = None, keeps_lines: bool = False) -> Checks:
    """The checks after they have read whole files."""
    checks = Checks(None if only is None else known_checks(only), keeps_lines=keeps_lines)
    for each in (path, *more):
        checks.begin(str(each))
        for failure in read_failures(each):
            checks.fail(failure)
        for facts in read_facts(each, checks.lost):
            checks.add(facts)
    return checks


def worst(findings: Collection[Finding]) -> Severity | None:
    return max((each.severity for each in findings), key=SEVERITIES.index, default=None)


def short(findings: Collection[Finding], file: Path | None = None) -> list[str]:
    """A few lines for the end of a collection: errors, warnings and the names of notes; empty if there are none."""
    bad = [each for each in findings if each.severity != "info"]
    lines = [f"{each.severity}: {each.name}: {each.message}" for each in bad[:_MOST_SHORT]]
    notes = sorted({each.name for each in findings if each.severity == "info"}) if bad else []
    rest = [f"{len(bad) - _MOST_SHORT} more"] if len(bad) > _MOST_SHORT else []
    rest += [f"{counted(len(notes), 'note')} ({', '.join(notes)})"] if notes else []
    shows = "" if file is None else f"; velo check {file} shows them"
    return [*lines, f"and {' and '.join(rest)}{shows}"] if rest else lines
