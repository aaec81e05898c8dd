"""All runs of a viewer: the files it was given, and what is below the folders it was given.

A file named on the command line is followed from the start. A run below a folder is opened and indexed on first use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from velodrome.errors import InputError
from velodrome.viewer.measurements import Measurements
from velodrome.viewer.runs.folder import FoundRun, RunFolder, found_file
from velodrome.viewer.runs.run_summary import RunSummaries, RunSummary
from velodrome.viewer.runs.training_run import TrainingRun
from velodrome.viewer.viewed_file import ViewedFile, file_to_view, open_files, slug_of

_RESCAN_S = 2.0  # between two looks at the folders


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run with its name in addresses."""

    slug: str
    found: FoundRun

    @property
    def name(self) -> str:
        """What a page calls it."""
        return self.found.name


class KnownRuns:
    """The runs of a viewer. Safe to use from several threads."""

    def __init__(
        self, given: Sequence[Path], measurements: Measurements, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measurements = measurements
        self._clock = clock
        self._lock = threading.RLock()
        self.folders = [RunFolder(path) for path in dict.fromkeys(given) if path.is_dir()]
        self._given = open_files([path for path in given if not path.is_dir()], measurements)
        self._open = {each.slug: each for each in self._given}
        self._slugs = {each.path: each.slug for each in self._given}
        self._runs = {each.slug: KnownRun(each.slug, found_file(each.path, each.name)) for each in self._given}
        self._training: dict[str, TrainingRun] = {}
        self._summaries = RunSummaries()
        self._fresh: dict[str, RunSummary] = {}  # of runs that are not open, since the last look at the folders
        self._scanned_at = -_RESCAN_S

    def start(self) -> None:
        """Follow the files that were given, and look for runs."""
        for source in self._given:
            source.follow()
        self.all()

    def close(self) -> None:
        """Stop following."""
        with self._lock:
            for source in self._open.values():
                source.close()

    def all(self) -> list[KnownRun]:
        """Every run there is now: files that were given first, then by path."""
        with self._lock:
            if self.folders and self._clock() - self._scanned_at >= _RESCAN_S:
                given = {each.slug for each in self._given}
                runs = {slug: run for slug, run in self._runs.items() if slug in given}
                for found in (run for folder in self.folders for run in folder.runs()):
                    slug = self._slug(found)
                    runs.setdefault(slug, KnownRun(slug, found))
                self._runs, self._scanned_at, self._fresh = runs, self._clock(), {}
            return list(self._runs.values())

    def _slug(self, found: FoundRun) -> str:
        """The name of a run in addresses. It stays the same for as long as the viewer runs."""
        if found.path not in self._slugs:
            self._slugs[found.path] = slug_of(found.name, set(self._slugs.values()))
        return self._slugs[found.path]

    def named(self, slug: str) -> KnownRun:
        """The run of an address."""
        with self._lock:
            if slug not in self._runs:
                self.all()
            if slug not in self._runs:
                raise InputError(f"There is no run {slug!r:.100} here.")
            return self._runs[slug]

    def file(self, slug: str) -> ViewedFile:
        """A rollouts file, opened if it is not."""
        run = self.named(slug)
        if run.found.kind != "rollouts":
            raise InputError(f"{run.name} is a training run, not a rollouts file.")
        with self._lock:
            if slug not in self._open:
                source = file_to_view(run.found.path, slug, self._measurements, name=run.name)
                self._open[slug] = source
                source.follow()
            return self._open[slug]

    def training(self, slug: str) -> TrainingRun:
        """A training run."""
        run = self.named(slug)
        if run.found.kind != "training":
            raise InputError(f"{run.name} is a rollouts file, not a training run.")
        with self._lock:
            if slug not in self._training:
                self._training[slug] = TrainingRun(run.found.path, slug, run.name)
            return self._training[slug]

    def at(self, path: Path) -> KnownRun | None:
        """The run in a file or folder, if it is known."""
        self.all()
        with self._lock:
            return self._runs.get(self._slugs.get(path, ""))

    def summary(self, run: KnownRun) -> RunSummary:
        """The line about a run: of one that is open what its index says, of others what is written beside it."""
        source = self._open.get(run.slug)
        if source is not None:
            return _of_open(source, self._summaries.of(run.found))
        if run.slug not in self._fresh:
            self._fresh[run.slug] = self._summaries.of(run.found)
        return self._fresh[run.slug]

    def version(self, runs: Sequence[KnownRun] | None = None) -> str:
        """Changes whenever a list of the runs would, or of some of them a page about these."""
        seen: list[object] = []
        for run in self.all() if runs is None else runs:
            if runs is not None:
                self._fresh.pop(run.slug, None)  # whether it is live must be looked at again
            if run.found.kind == "training" and runs is not None:
                seen.append((self.training(run.slug).version, self.summary(run).live))
            elif runs is not None:
                seen.append(self.file(run.slug).version)
            else:
                seen.append((run.slug, self.summary(run)))
        return blake2b(repr(seen).encode(), digest_size=8).hexdigest()

    @property
    def given(self) -> list[ViewedFile]:
        """The files that the viewer was started with."""
        return self._given

    @property
    def opened(self) -> list[ViewedFile]:
        """The files that are followed now."""
        return list(self._open.values())

    @property
    def notes(self) -> list[str]:
        """What was left out of the list."""
        return [folder.note for folder in self.folders if folder.note]


def _of_open(source: ViewedFile, summary: RunSummary) -> RunSummary:
    state = source.index().state
    metrics = source.measure("metrics", patience_s=0.0).value or {}
    note = next(iter(filter(None, (source.problem, *source.notes))), "")
    if source.behind:
        return replace(summary, note=note or "being indexed")
    rewards, pass_1 = source.index().spread("reward"), metrics.get("pass@1")
    rate = pass_1 if isinstance(pass_1, int | float) else None
    return replace(
        summary, reward=rewards and rewards.mean, pass_1=rate, kept=state.rows, failed=state.failed, note=note
    )
