"""What rows say: the metrics, what may be wrong with them, and where the time went.

The collector feeds its own rows while it runs, many at a time, because the code that reads them is quicker in a row
than between other things. After a resume the whole output is read instead, old rows and new.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from velodrome.checks import WHILE_COLLECTING, Checks
from velodrome.collector.watch.progress import ProgressBar
from velodrome.profiling.profile import Profile
from velodrome.profiling.profile_text import profile_tree
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import DAMAGED
from velodrome.records.rows import Unread, read_failures, read_rows
from velodrome.stats.metrics import Tally, failed_keys

Json = dict[str, Any]

PATIENCE_S = 2.0
_AT_ONCE = 256
_BYTES_AT_ONCE = 1_000_000  # rows can be large, and are held until they are read


class Readings:
    """What the rows so far say; `profiled` unless they were made by another run."""

    def __init__(self, where: str, *, by_task: bool, profiled: bool) -> None:
        self.tally = Tally(by_task=by_task)
        self.checks = Checks(WHILE_COLLECTING, by_task=by_task)
        self.profile = Profile(where) if profiled else None
        self._waiting: list[tuple[Json, int]] = []  # kept rows with their size; failures with none, in their order
        self._bytes = 0

    def add(self, row: Json, size: int) -> None:
        """One kept rollout of so many bytes."""
        self._take(row, size)

    def fail(self, failure: Json) -> None:
        """One failed attempt."""
        self._take(failure, 0)

    def _take(self, row: Json, size: int) -> None:
        self._waiting.append((row, size))
        self._bytes += size
        if len(self._waiting) >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self.up_to_date()

    def up_to_date(self) -> Readings:
        """Itself, with nothing waiting to be read."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for row, size in waiting:
            facts = RowFacts(row, size=size, failed=not size)
            if size:
                self.tally.add(facts)
                self.checks.add(facts)
            else:
                self.checks.fail(facts)
            if self.profile is not None:
                self.profile.add(facts)
        return self

    def tree(self) -> str:
        """Where the time of the rollouts so far went; nothing if they were made by another run."""
        self.up_to_date()
        if self.profile is None:
            return ""
        return profile_tree({"rollouts": self.profile.rollouts, "tree": self.profile.tree()})


class OutputReadings:
    """Metrics, findings and profile of one output file. `rollouts` counts the rows that have a key."""

    def __init__(self, output: Path, *, profiled: bool, by_task: bool = True) -> None:
        self.output = output
        self.rollouts = 0
        self.tally = Tally(by_task=by_task)
        self.checks = Checks(WHILE_COLLECTING, by_task=by_task)
        self.profile = Profile(str(output)) if profiled else None
        self._failed = set(failed_keys(output))
        self._failures: Iterator[RowFacts] = read_failures(output)  # for the profile: attempts in their order
        self._next = next(self._failures, None)
        self._unread = Unread(output)
        self.checks.begin(str(output))
        for failed in read_failures(output):
            self.checks.fail(failed)

    def add(self, line: int, row: Json, size: int) -> None:
        """One row of the file."""
        facts = RowFacts(row, line=line, size=size)
        self.tally.add(facts)
        if facts.key is not None:
            self.rollouts += 1
            self._failed.discard(facts.key)
        self.checks.add(facts)
        if self.profile is not None:
            while self._next is not None and (self._next.finished_at or 0.0) <= (facts.finished_at or 0.0):
                self._fail(self.profile)
            self.profile.add(facts)

    def _fail(self, profile: Profile) -> None:
        if self._next is not None:
            profile.add(self._next)
        self._next = next(self._failures, None)

    def lost(self, line: int, reason: str, torn: bool) -> None:
        """A line that is not a row."""
        self.checks.unreadable(line, reason, torn=torn)
        self._unread(line, reason, torn)

    def passed(self, line: int, start: int, size: int) -> None:
        """Bytes that cannot be decompressed."""
        self.checks.damaged(line, size, self.output.stat().st_size)
        self._unread(line, f"{size:,} bytes from byte {start:,} on {DAMAGED}", False)

    def end(self) -> None:
        """The file is over."""
        if self.profile is not None:
            for note in self._unread.notes:
                self.profile.note(note)
            while self._next is not None:
                self._fail(self.profile)

    def metrics(self) -> Json:
        """The numbers of the whole file."""
        return self.tally.metrics(failed=len(self._failed))


def read_output(
    output: Path, *, profiled: bool, by_task: bool = True, progress: bool = True, patience_s: float = PATIENCE_S
) -> OutputReadings:
    """Read the whole output; what takes longer than `patience_s` has a progress bar.

    Without `by_task` no task may have two rollouts: then nothing is remembered of tasks.
    """
    whole = OutputReadings(output, profiled=profiled, by_task=by_task)
    every_s = 0.2 if sys.stderr.isatty() else 10.0
    with ProgressBar(
        desc="Reading the output", unit=" rollouts", delay=patience_s, mininterval=every_s, disable=not progress
    ) as bar:
        for line, row, size in read_rows(output, whole.lost, whole.passed):
            whole.add(line, row, size)
            bar.update()
    whole.end()
    return whole
