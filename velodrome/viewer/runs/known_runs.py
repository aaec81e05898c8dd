"""All runs of a viewer: the files on its command line, and the runs below the folders there.

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
from velodrome.viewer.runs.folder import FoundRun, RunFolder, file_run
from velodrome.viewer.runs.run_summary import RunSummaries, RunSummary
from velodrome.viewer.runs.training_run import TrainingRun
from velodrome.viewer.viewed_file import ViewedFile, file_to_view, open_files, slug_of

_RESCAN_S = 2.0  # between two searches of the folders


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run with its name in addresses."""

    slug: str
    found: FoundRun

    @property
    def name(self) -> str:
        """The name on pages."""
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
        self.given = open_files([path for path in given if not path.is_dir()], measurements)
        self._open: dict[str, ViewedFile | TrainingRun] = {each.slug: each for each in self.given}
        self._slugs = {each.path: each.slug for each in self.given}
        self._given = {each.slug: KnownRun(each.slug, file_run(each.path, each.name)) for each in self.given}
        self._runs = self._given
        self._summaries = RunSummaries()
        self._scanned_at = -_RESCAN_S

    def start(self) -> None:
        """Follow the files of the command line, and search the folders."""
        for source in self.given:
            source.follow()
        self.all()

    def close(self) -> None:
        """Stop following."""
        with self._lock:
            for source in self.opened:
                source.close()

    def all(self) -> list[KnownRun]:
        """Every run: the files of the command line first, then by path."""
        with self._lock:
            if self.folders and self._clock() - self._scanned_at >= _RESCAN_S:
                runs = [run for folder in self.folders for run in folder.runs()]
                below = {slug: KnownRun(slug, run) for run in runs if (slug := self._slug(run)) not in self._given}
                self._runs, self._scanned_at = self._given | below, self._clock()
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
        """The rollouts file of a run. It is opened on first use."""
        run, source = self._open_run(slug)
        if not isinstance(source, ViewedFile):
            raise InputError(f"{run.name} is a training run, not a rollouts file.")
        return source

    def training(self, slug: str) -> TrainingRun:
        """A training run."""
        run, source = self._open_run(slug)
        if not isinstance(source, TrainingRun):
            raise InputError(f"{run.name} is a rollouts file, not a training run.")
        return source

    def _open_run(self, slug: str) -> tuple[KnownRun, ViewedFile | TrainingRun]:
        run = self.named(slug)
        with self._lock:
            if slug not in self._open and run.found.kind == "training":
                self._open[slug] = TrainingRun(run.found.path, slug, run.name)
            elif slug not in self._open:
                self._open[slug] = source = file_to_view(run.found.path, slug, self._measurements, name=run.name)
                source.follow()
            return run, self._open[slug]

    def at(self, path: Path) -> KnownRun | None:
        """The run in a file or folder, if it is known."""
        self.all()
        with self._lock:
            return self._runs.get(self._slugs.get(path, ""))

    def summary(self, run: KnownRun) -> RunSummary:
        """The summary of a run: from its index if the file is open, else from the files beside it."""
        source, summary = self._open.get(run.slug), self._summaries.of(run.found)
        return _of_open(source, summary) if isinstance(source, ViewedFile) else summary

    def version(self, runs: Sequence[KnownRun] | None = None) -> str:
        """Changes whenever the list of all runs would change, or with `runs` a page about these."""
        parts: list[object] = []
        for run in self.all() if runs is None else runs:
            if runs is None:
                parts.append((run.slug, self.summary(run)))
            else:
                parts.append((self._open_run(run.slug)[1].version, self._summaries.of(run.found).live))
        return blake2b(repr(parts).encode(), digest_size=8).hexdigest()

    @property
    def opened(self) -> list[ViewedFile]:
        """The files that are followed now."""
        return [each for each in self._open.values() if isinstance(each, ViewedFile)]

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
