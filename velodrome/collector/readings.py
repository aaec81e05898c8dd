"""Metrics, checks and profile of the rows of a run.

The collector adds its rows while it runs. They are read in batches, because that is faster than one at a time. After a
resume, and with workers, the whole output is read at the end instead.
"""

from __future__ import annotations

from bisect import insort
from pathlib import Path
from typing import Any

from velodrome.checks import WHILE_COLLECTING, Checks, short
from velodrome.collector.watch.progress import counting
from velodrome.profiling.profile import Profile, make_profile
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import LostLine
from velodrome.records.rows import Unread, read_attempts, read_failures
from velodrome.stats.metrics import Tally

Json = dict[str, Any]

PATIENCE_S = 2.0
_MOST_WAITING = 256  # rows; only the older half is read, because a row can arrive after one that finished later
_MOST_WAITING_BYTES = 1_000_000


class Readings:
    """Metrics, checks and profile of the rows so far; `profile` is None for a scoring pass."""

    def __init__(self, where: str, *, by_task: bool, profiled: bool) -> None:
        self.tally = Tally(by_task=by_task)
        self.checks = Checks(WHILE_COLLECTING, by_task=by_task)
        self.profile = Profile(where) if profiled else None
        self._waiting: list[RowFacts] = []  # in the order of finishing
        self._bytes = 0

    def add(self, facts: RowFacts) -> None:
        """Add a kept rollout or a failed attempt, in the order of the file."""
        self._waiting.append(facts)
        self._bytes += facts.size
        self._read_if_many()

    def _add_finished(self, facts: RowFacts) -> None:
        """Add a row of the current run, in the order of finishing."""
        insort(self._waiting, facts, key=lambda row: row.finished_at or 0.0)
        self._bytes += facts.size
        self._read_if_many()

    def _read_if_many(self) -> None:
        if len(self._waiting) >= _MOST_WAITING or self._bytes >= _MOST_WAITING_BYTES:
            self._read(1 + len(self._waiting) // 2)

    def read_waiting(self) -> Readings:
        """Read all waiting rows, and return self."""
        self._read(len(self._waiting))
        return self

    def _read(self, count: int) -> None:
        """Read the oldest waiting rows."""
        oldest, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes = sum(facts.size for facts in self._waiting)
        for facts in oldest:
            if facts.failed:
                self.checks.fail(facts)
            else:
                self.tally.add(facts)
                self.checks.add(facts)
            if self.profile is not None:
                self.profile.add(facts)

    def keep(self, facts: RowFacts) -> None:
        """Add a kept rollout."""
        self._add_finished(facts)

    def fail(self, failure: Json) -> None:
        """Add a failed attempt."""
        self._add_finished(RowFacts(failure, failed=True))

    def report(self, config: Json, output: Path | None, *, failed: int) -> Json:
        """The fields of a `Run` that come from its rows: metrics, findings, profile."""
        profile = self.read_waiting().profile
        if profile is not None and not profile.ordered and output is not None:
            profile = make_profile(output)
        return {
            "metrics": self.tally.metrics(failed=failed),
            "findings": short(self.checks.findings(), output),
            "profile": None if profile is None else profile.report(config),
        }


class OutputReadings(Readings):
    """Metrics, checks and profile of one output file. `rollouts` counts the rollouts with a key."""

    def __init__(self, output: Path, *, profiled: bool, by_task: bool) -> None:
        super().__init__(str(output), by_task=by_task, profiled=profiled)
        self.rollouts = 0
        self._output = output
        self._failed: set[str] = set()
        self._unread = Unread(output)
        self.checks.begin(str(output))
        for failure in read_failures(output):
            self.checks.fail(failure)
            if failure.key is not None:
                self._failed.add(failure.key)

    def read(self, facts: RowFacts) -> None:
        """Add a row of the file, or a failure to the profile; the checks have all failures before the first row."""
        if not facts.failed:
            if facts.key is not None:
                self.rollouts += 1
                self._failed.discard(facts.key)
            self.add(facts)
        elif self.profile is not None:
            self.read_waiting()
            self.profile.add(facts)

    def lost(self, lost: LostLine) -> None:
        """Report a line that is not a row."""
        self.read_waiting().checks.lost(lost)
        self._unread(lost)

    def end(self) -> None:
        """Read the remaining rows, and add the notes to the profile."""
        self.read_waiting()
        if self.profile is not None:
            for note in self._unread.notes:
                self.profile.note(note)

    @property
    def failed(self) -> int:
        """The number of rollouts that failed and are not kept."""
        return len(self._failed)


def read_output(output: Path, *, profiled: bool, by_task: bool = True, progress: bool = True) -> OutputReadings:
    """Read the whole output, with a progress bar if it takes long.

    Without `by_task` no task may have two rollouts: then no memory is used per task.
    """
    readings = OutputReadings(output, profiled=profiled, by_task=by_task)
    with counting("Reading the output", " rollouts", delay_s=PATIENCE_S, shown=progress) as bar:
        for facts in read_attempts(output, readings.lost):
            readings.read(facts)
            bar.update(not facts.failed)
    readings.end()
    return readings
