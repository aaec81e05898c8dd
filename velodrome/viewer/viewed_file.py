"""A rollouts file as the viewer knows it: its index, followed by a thread, and its measurements."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from velodrome.checks.check_field import FoundLines, check_field, found_lines
from velodrome.errors import InputError, blame
from velodrome.index import Index, Query, State
from velodrome.index.lines.followed_file import GONE
from velodrome.index.outside import NotYet
from velodrome.records.other_files import foreign_file, other_file
from velodrome.records.people.judgements import Judgements
from velodrome.records.rollout import beside
from velodrome.settings.files import file_problem
from velodrome.viewer.measure import start_measuring
from velodrome.viewer.measurements import SMALL_BYTES, Measurement, Measurements
from velodrome.viewer.saved_results import saved_result

T = TypeVar("T")

_FIRST_S = 1.0
_AT_ONCE_S = 0.05  # how long a page reads on before it answers
_BEHIND_S = 0.2  # how long the follower reads before it lets others in
_IDLE_S = 1.0
_LOOK_S = 0.25
_FAR_BEHIND_BYTES = 64_000_000
_FEW = 50_000  # rollouts about which everything is answered at once
_PATIENCE_S = 0.1
_MOST_ANSWERS = 64
_MOST_NOTES = 6
_NOTED_S = 120.0  # how long the note that a file was read again stays
_SUFFIX = re.compile(r"\.jsonl(\.zst)?$")


class ViewedFile:
    """A file with its name in addresses. Close it to stop following."""

    def __init__(
        self,
        path: Path,
        slug: str,
        measurements: Measurements,
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path.absolute()  # independent of the working directory
        self.slug = slug
        self.name = name or path.name
        self.measurements = measurements
        checks = check_field(self._found_lines, lambda: measurements.updates(self), self._checks_note)
        self._index = Index(self.path, judged=True, outside=[checks])
        self._over = threading.Event()
        self._elsewhere = False  # whether another process brings the index up to date
        self._clock = clock
        self._answers: dict[tuple[Hashable, ...], Future[Any]] = {}
        self._missed: set[Future[Any]] = set()  # answers that a page did not wait for
        self._answering = ThreadPoolExecutor(1, thread_name_prefix=f"answer-{slug}")
        self._rebuilt: tuple[str | None, float] = (None, 0.0)  # why it was read again, and when that was first noted
        self.problem: str | None = None  # why the file cannot be read on, while that is so
        self.rebuilt_at = 0.0  # when the index noticed that it is another file
        self._follower = threading.Thread(target=self._follow, name=f"follow-{slug}", daemon=True)

    def follow(self) -> None:
        """Keep the index up to date until `close`. A file of ordinary size is read before this returns."""
        self._refresh(_LOOK_S if self.behind else _FIRST_S)
        self._follower.start()

    def index(self) -> Index:
        """The index, as far as it can be brought up to date in a moment."""
        if not self._elsewhere:
            self._refresh(_AT_ONCE_S)
        return self._index

    def read_on(self) -> Index:
        """The index, with everything there is in the file."""
        self._refresh(None)
        return self._index

    def count(self, query: Query) -> int | None:
        """How many match; None if counting takes longer than a page should."""
        return self.soon(("count", query.text), lambda index: index.count(query))

    def soon(
        self, what: Hashable, ask: Callable[[Index], T], *, patience_s: float = _PATIENCE_S, older: bool = False
    ) -> T | None:
        """What the index answers. About a large file that can take longer than a page should: then None for now.

        With `older` the answer is kept, and one about the file as it was before will do meanwhile.
        """
        state = self._index.state
        few = state.entries <= _FEW
        if few and not older:
            return _unless_early(ask, self._index)
        others = self._index.outside_versions()
        wanted = (what, state.rebuilt_at, state.rows, state.failed, state.searchable, others)
        asked = self._answers.get(wanted)
        if asked is None:
            self._answers[wanted] = asked = self._answering.submit(_unless_early, ask, self._index)
            for old in list(self._answers)[:-_MOST_ANSWERS]:
                self._answers.pop(old, asked).cancel()
        wait([asked], timeout=max(patience_s, _FIRST_S) if few else patience_s)
        answers = list(self._answers.items())
        if not asked.done():
            self._missed = {each for _, each in answers if each in self._missed} | {asked}
        elif not asked.cancelled() and asked.exception():  # the next one may have better luck
            self._answers.pop(wanted, None)
        known = [asked, *(each for key, each in reversed(answers) if older and key[:2] == wanted[:2])]
        answer: T | None = next((each.result() for each in known if each.done() and not each.cancelled()), None)
        return answer

    def measure(self, kind: str, *, patience_s: float) -> Measurement:
        """A measurement of the whole file."""
        return self.measurements.read(kind, self, patience_s=patience_s)

    def _found_lines(self) -> FoundLines:
        """The rollouts that each check is about."""
        checks = self.measure("checks", patience_s=_PATIENCE_S if self.state.size <= SMALL_BYTES else 0.0)
        if checks.value is None:
            raise NotYet(checks.error or "the checks are being computed; the rollouts appear when they are done")
        return found_lines(checks.value)

    def _checks_note(self) -> str | None:
        stale = self.measure("checks", patience_s=0.0).stale
        return "checked before the file changed; the checks are being computed again" if stale else None

    def saved(self, kind: str) -> Any:
        """The result that the collection saved beside the file, if it describes the file as it is."""
        return saved_result(kind, self.path, self.index())

    @property
    def state(self) -> State:
        """How far the index is."""
        return self._index.state

    @property
    def judgements(self) -> Judgements:
        """What people said of the rollouts."""
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
        """Why everything was read again: for a while, and for a file that is gone until it is back."""
        if state.rebuilt != self._rebuilt[0] or not state.complete:
            self._rebuilt = (state.rebuilt, self._clock())
        if state.rebuilt and GONE in state.rebuilt:
            return None if self.path.exists() else f"{self.name}: {GONE}; it is read again once it is back"
        return state.rebuilt if self._clock() - self._rebuilt[1] < _NOTED_S else None

    @property
    def version(self) -> str:
        """Changes whenever a page about this file would change."""
        state = self._index.state
        seen = (state.rows, state.failed, state.unreadable, state.searchable, state.live, state.complete, state.rebuilt)
        answered = sum(answer.done() for answer in self._missed)
        made = (
            answered,
            self.measurements.updates(self),
            _modified(beside(self.path, "run.json")),
            self.judgements.version,
        )
        return blake2b(repr((seen, made, self.notes, self.problem)).encode(), digest_size=8).hexdigest()

    def close(self) -> None:
        """Stop following and close the index."""
        self._over.set()
        self._answering.shutdown(cancel_futures=True)
        if self._follower.is_alive():
            self._follower.join()
        self._index.close()

    def _refresh(self, budget_s: float | None) -> bool:
        """Read on; whether everything is read now. An error becomes a note, and what was read before stays."""
        try:
            with blame(InputError, f"{self.name}: cannot be indexed"):
                state = self._index.refresh(budget_s)
        except InputError as error:
            self.problem = error.problems[0]
            return True
        self.problem = None
        self.rebuilt_at = state.rebuilt_at
        return state.complete and state.searchable >= state.entries

    def _follow(self) -> None:
        alone = False
        while not self._over.is_set():
            if self.behind and not alone:
                alone = not self._index_elsewhere()
            up_to_date = self._refresh(_BEHIND_S)
            self._over.wait(_IDLE_S if up_to_date else 0.005)

    def _index_elsewhere(self) -> bool:
        """Index a long file in a process of its own. False: that did not work."""
        with start_measuring("index", self.path) as child:
            self._elsewhere = True
            while child.poll() is None and not self._over.wait(_LOOK_S):
                pass
            child.kill()
        self._elsewhere = False
        return child.returncode == 0


def _unless_early(ask: Callable[[Index], T], index: Index) -> T | None:
    """What the index answers; None while a field that it needs is still being computed."""
    try:
        return ask(index)
    except NotYet:
        return None


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def open_files(paths: Sequence[Path], measurements: Measurements) -> list[ViewedFile]:
    """Each file under a name of its own; every mistake in the files at once."""
    problems = [_problem(path) for path in paths]
    if any(problems):
        raise InputError(*filter(None, problems))
    files: dict[str, ViewedFile] = {}
    for path in dict.fromkeys(paths):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", _SUFFIX.sub("", path.name)).strip("-.") or "run"
        slug, copy = name, 1
        while slug in files:
            copy += 1
            slug = f"{name}-{copy}"
        files[slug] = ViewedFile(path, slug, measurements)
    return list(files.values())


def file_to_view(path: Path, slug: str, measurements: Measurements, *, name: str) -> ViewedFile:
    """One file under a name of its own, or what is wrong with it."""
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
        measurements.close()  # which may be using the file
        viewed.close()
