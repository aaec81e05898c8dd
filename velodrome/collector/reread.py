"""After a resume: what the rows of the whole output say, old and new, in one pass over the file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from velodrome.checks import WHILE_COLLECTING, Checks
from velodrome.profiling.profile import Profile
from velodrome.profiling.profile_file import ended, failures_of
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import DAMAGED
from velodrome.records.rows import read_failures, read_rows
from velodrome.records.unread import Unread
from velodrome.stats.metrics import Tally, failed_keys

Json = dict[str, Any]

PATIENCE_S = 2.0


class Whole:
    """Metrics, findings and profile of one output. `rollouts` counts the rows that have a key."""

    def __init__(self, output: Path, *, profiled: bool) -> None:
        self.output = output
        self.rollouts = 0
        self.tally = Tally()
        self.checks = Checks(WHILE_COLLECTING)
        self.profile = Profile(str(output)) if profiled else None
        self._failed = set(failed_keys(output))
        self._failures: Iterator[Json] = failures_of(output)  # for the profile, which takes attempts in their order
        self._next = next(self._failures, None)
        self._unread = Unread(output)
        self.checks.begin(str(output))
        for failed in read_failures(output):
            self.checks.fail(failed)

    def add(self, line: int, row: Json, size: int) -> None:
        """One row of the file."""
        facts = RowFacts(row, line=line, size=size)
        self.tally.add(facts)
        if facts.task is not None and facts.key is not None:
            self.rollouts += 1
            self._failed.discard(facts.key)
        self.checks.add(facts)
        if self.profile is not None:
            while self._next is not None and ended(self._next) <= ended(row.get("meta")):
                self._fail(self.profile)
            self.profile.add(row, line=line, size=size)

    def _fail(self, profile: Profile) -> None:
        if self._next is not None:
            profile.fail(self._next)
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


def reread(output: Path, *, profiled: bool, patience_s: float = PATIENCE_S) -> Whole:
    """Read the whole output; what takes longer than `patience_s` has a progress bar."""
    whole = Whole(output, profiled=profiled)
    every_s = 0.2 if sys.stderr.isatty() else 10.0
    with tqdm(desc="Reading the output", unit=" rollouts", delay=patience_s, mininterval=every_s) as bar:
        for line, row, size in read_rows(output, whole.lost, whole.passed):
            whole.add(line, row, size)
            bar.update()
    whole.end()
    return whole
