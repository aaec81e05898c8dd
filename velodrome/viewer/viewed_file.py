"""A rollouts file in the viewer: its index, which a thread keeps up to date, and its measurements."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

from velodrome.checks import CHECKS
from velodrome.errors import InputError, blame
from velodrome.index import Index, State
from velodrome.index.check_field import LinesByCheck, check_field, lines_by_check
from velodrome.index.judgements import Judgements
from velodrome.index.lines import GONE
from velodrome.index.outside import NotYet
from velodrome.records.other_files import foreign_file, other_file
from velodrome.records.rollout import beside
from velodrome.settings.files import file_problem
from velodrome.viewer.measurements import SMALL_BYTES, Background, Measurement, Measurements, stamp

SCAN = "scan"
_SCAN_VERSION = 2  # raise it when a scan gives other numbers for the same file

_FIRST_S = 1.0
_AT_ONCE_S = 0.05  # how long a page updates the index before it answers
_BEHIND_S = 0.2  # how long the follower reads before it releases the index
_IDLE_S = 1.0
_FAR_BEHIND_BYTES = 64_000_000
_FEW = 50_000  # up to this many rollouts, a page waits for the answer
_PATIENCE_S = 0.1
_MOST_NOTES = 6
_NOTED_S = 120.0  # how long the note is shown that a file was read again
_SUFFIX = re.compile(r"\.jsonl(\.zst)?$")


class ViewedFile:
    """A file with its name in addresses. Close it to stop following."""

    def __init__(self, path: Path, slug: str, measurements: Measurements, *, name: str = "") -> None:
        self.path = path.absolute()  # independent of the working directory
        self.slug = slug
        self.name = name or path.name
        self.measurements = measurements
        checks = check_field(self._lines_by_check, lambda: measurements.updates(self), self._checks_note)
        self._index = Index(self.path, judged=True, outside=[checks])
        self._closed = threading.Event()
        self._answers = Background(f"answer-{slug}")
        self.problem: str | None = None  # why the file cannot be read now
        self.rebuilt_at = 0.0  # when the index found that the file was replaced
        self._follower = threading.Thread(target=self._follow, name=f"follow-{slug}", daemon=True)

    def follow(self) -> None:
        """Keep the index up to date until `close`. Up to a second of reading is done before this returns."""
        self._refresh(_BEHIND_S if self.behind else _FIRST_S)
        self._follower.start()

    def index(self) -> Index:
        """The index, updated for a moment."""
        self._refresh(_AT_ONCE_S)
        return self._index

    def read_on(self) -> Index:
        """The index, updated to the end of the file."""
        self._refresh(None)
        return self._index

    def soon(self, key: Hashable, answer: Callable[[Index], Any], *, patience_s: float = _PATIENCE_S) -> Measurement:
        """An answer from the index, computed in the background if it takes longer than `patience_s`."""
        state = self._index.state
        version = state.rebuilt_at, (state.rows, state.failed, self._index.outside_versions())
        patience_s = max(patience_s, _FIRST_S) if state.entries <= _FEW else patience_s
        return self._answers.answer(key, version, partial(answer, self._index), patience_s=patience_s)

    def measure(self, kind: str, *, patience_s: float) -> Measurement:
        """The metrics, the profile, the checks or the tools of the file, all of which come from one scan of it."""
        scan = self.measurements.read(SCAN, self, patience_s=patience_s)
        return replace(scan, value=None if scan.value is None else scan.value[kind])

    def _lines_by_check(self) -> LinesByCheck:
        """The lines of each check, or `NotYet`."""
        checks = self.measure("checks", patience_s=_PATIENCE_S if self.state.size <= SMALL_BYTES else 0.0)
        if checks.value is None:
            raise NotYet(checks.error or "the checks are being computed; the rollouts appear when they are done")
        return lines_by_check(checks.value)

    def _checks_note(self) -> str | None:
        stale = self.measure("checks", patience_s=0.0).stale
        return "checked before the file changed; the checks are being computed again" if stale else None

    def saved(self, kind: str) -> Any:
        """The scan of an earlier viewer, if the files are unchanged."""
        return self._index.saved(kind, self._stamps()) if kind == SCAN else None

    def save(self, kind: str, value: Any) -> None:
        """Save a scan in the index."""
        if kind == SCAN:
            self._index.save(kind, self._stamps(), value)

    def _stamps(self) -> list[Any]:
        """Sizes and times: if they are equal, a saved scan is valid."""
        paths = [self.path, beside(self.path, "failures.jsonl"), beside(self.path, "run.json")]
        return [_SCAN_VERSION, *CHECKS, *(number for path in paths for number in stamp(path)[1:])]

    @property
    def state(self) -> State:
        """How much of the file is indexed."""
        return self._index.state

    @property
    def judgements(self) -> Judgements:
        """The judgements of the rollouts."""
        return self._index.judgements.refresh()

    @property
    def behind(self) -> bool:
        """Whether much of the file is not in the index yet."""
        state = self._index.state
        return not state.complete and state.size - state.bytes > _FAR_BEHIND_BYTES

    @property
    def notes(self) -> list[str]:
        """Notes about the file, shown above every page."""
        state = self._index.state
        again = filter(None, [self._read_again(state)])
        return [*again, *self.judgements.notes, *state.notes][:_MOST_NOTES]

    def _read_again(self, state: State) -> str | None:
        """Why the file was read again, shown for a while; or that the file is gone, until it is back."""
        if state.rebuilt and GONE in state.rebuilt:
            return None if self.path.exists() else f"{self.name}: {GONE}; it is read again once it is back"
        return state.rebuilt if time.time() - state.rebuilt_at < _NOTED_S else None

    @property
    def version(self) -> str:
        """Changes whenever a page about this file would change."""
        state = self._index.state
        counts = (state.rows, state.failed, state.unreadable, state.live, state.complete, state.rebuilt)
        results = (
            self._answers.late,
            self.measurements.updates(self),
            stamp(beside(self.path, "run.json")),
            self.judgements.version,
        )
        return blake2b(repr((counts, results, self.notes, self.problem)).encode(), digest_size=8).hexdigest()

    def close(self) -> None:
        """Stop following."""
        self._closed.set()
        self._answers.close()
        if self._follower.is_alive():
            self._follower.join()

    def _refresh(self, budget_s: float | None) -> bool:
        """Update the index; returns whether it is complete. An error becomes `problem`; the index stays."""
        try:
            with blame(InputError, f"{self.name}: cannot be indexed"):
                state = self._index.refresh(budget_s)
        except InputError as error:
            self.problem = error.problems[0]
            return True
        self.problem = None
        self.rebuilt_at = state.rebuilt_at
        return state.complete

    def _follow(self) -> None:
        while not self._closed.is_set():
            up_to_date = self._refresh(_BEHIND_S)
            self._closed.wait(_IDLE_S if up_to_date else 0.005)


def slug_of(name: str, taken: Container[str]) -> str:
    """A unique name for addresses."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", _SUFFIX.sub("", name)).strip("-.")[:100] or "run"
    return next(slug for at in count(1) if (slug := plain if at == 1 else f"{plain}-{at}") not in taken)


def open_files(paths: Sequence[Path], measurements: Measurements) -> list[ViewedFile]:
    """Open files, each under its own name. The error has all problems."""
    problems = [problem for path in paths if (problem := _problem(path))]
    if problems:
        raise InputError(*problems)
    files: dict[str, ViewedFile] = {}
    for path in dict.fromkeys(paths):
        slug = slug_of(path.name, files)
        files[slug] = ViewedFile(path, slug, measurements)
    return list(files.values())


def file_to_view(path: Path, slug: str, measurements: Measurements, *, name: str) -> ViewedFile:
    """Open one file under a name."""
    if (problem := _problem(path)) is not None:
        raise InputError(problem)
    return ViewedFile(path, slug, measurements, name=name)


def _problem(path: Path) -> str | None:
    if (problem := file_problem(path)) is not None:
        return f"{problem}; to watch a collection, start it first" if problem.endswith("no such file") else problem
    if path.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
        return f"{path}: a failures file; give the rollouts file, the failures beside it are shown with it"
    return other_file(path) or foreign_file(path)


@contextmanager
def opened(path: Path) -> Iterator[ViewedFile]:
    """One file, closed at the end."""
    measurements = Measurements()
    viewed = open_files([path], measurements)[0]
    try:
        yield viewed
    finally:
        measurements.close()  # a measurement may be using the file
        viewed.close()
