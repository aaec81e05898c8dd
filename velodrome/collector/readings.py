"""Metrics, checks and profile of the rows of a run.

The collector feeds its own rows while it runs, many at a time, because the code that reads them is quicker in a row
than between other things. After a resume, and with workers, the whole output is read at the end instead.
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
_AT_ONCE = 256  # rows; the older half of them is read, since workers finish side by side and rows come a little late
_BYTES_AT_ONCE = 1_000_000  # rows can be large, and are held until they are read


class Readings:
    """Metrics, checks and profile of the rows so far; `profile` is None if another run made them."""

    def __init__(self, where: str, *, by_task: bool, profiled: bool) -> None:
        self.tally = Tally(by_task=by_task)
        self.checks = Checks(WHILE_COLLECTING, by_task=by_task)
        self.profile = Profile(where) if profiled else None
        self._waiting: list[RowFacts] = []  # in the order they finished in
        self._bytes = 0

    def add(self, facts: RowFacts) -> None:
        """One kept rollout, or one failed attempt, in the order of the file."""
        self._waiting.append(facts)
        self._bytes += facts.size
        self._read_if_many()

    def _add_finished(self, facts: RowFacts) -> None:
        """Add a row of the run that goes on, in the order in which rows finished."""
        insort(self._waiting, facts, key=lambda each: each.finished_at or 0.0)
        self._bytes += facts.size
        self._read_if_many()

    def _read_if_many(self) -> None:
        if len(self._waiting) >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._read(1 + len(self._waiting) // 2)

    def up_to_date(self) -> Readings:
        """Read all waiting rows, and return self."""
        self._read(len(self._waiting))
        return self

    def _read(self, count: int) -> None:
        """Read this many of the waiting rows, the oldest first."""
        oldest, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes = sum(each.size for each in self._waiting)
        for facts in oldest:
            if facts.failed:
                self.checks.fail(facts)
            else:
                self.tally.add(facts)
                self.checks.add(facts)
            if self.profile is not None:
                self.profile.add(facts)

    def keep(self, facts: RowFacts) -> None:
        """One kept rollout."""
        self._add_finished(facts)

    def fail(self, failure: Json) -> None:
        """One failed attempt."""
        self._add_finished(RowFacts(failure, failed=True))

    def report(self, config: Json, output: Path | None, *, failed: int) -> Json:
        """The fields of a `Run` that the rows decide: metrics, findings in short, where the time went."""
        profile = self.up_to_date().profile
        if profile is not None and not profile.ordered and output is not None:
            profile = make_profile(output)
        return {
            "metrics": self.tally.metrics(failed=failed),
            "findings": short(self.checks.findings(), output),
            "profile": None if profile is None else profile.report(config),
        }


class OutputReadings(Readings):
    """Metrics, checks and profile of one output file. `rollouts` counts those that have a key."""

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
        """One row of the file, or a failure for the profile; the checks know all failures before the first row."""
        if not facts.failed:
            if facts.key is not None:
                self.rollouts += 1
                self._failed.discard(facts.key)
            self.add(facts)
        elif self.profile is not None:
            self.up_to_date()
            self.profile.add(facts)

    def lost(self, lost: LostLine) -> None:
        """A line that is not a row."""
        self.up_to_date().checks.lost(lost)
        self._unread(lost)

    def end(self) -> None:
        """Finish after the last line."""
        self.up_to_date()
        if self.profile is not None:
            for note in self._unread.notes:
                self.profile.note(note)

    @property
    def failed(self) -> int:
        """How many rollouts failed and are not kept."""
        return len(self._failed)


def read_output(output: Path, *, profiled: bool, by_task: bool = True, progress: bool = True) -> OutputReadings:
    """Read the whole output; what takes longer than a moment has a progress bar.

    Without `by_task` no task may have two rollouts: then nothing is remembered of tasks.
    """
    whole = OutputReadings(output, profiled=profiled, by_task=by_task)
    with counting("Reading the output", " rollouts", delay_s=PATIENCE_S, shown=progress) as bar:
        for facts in read_attempts(output, whole.lost):
            whole.read(facts)
            bar.update(not facts.failed)
    whole.end()
    return whole
