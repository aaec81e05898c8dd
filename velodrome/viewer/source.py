"""One rollouts file that is looked at: its index, which follows the file in the background, and its facts."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from velodrome.errors import InputError, blame
from velodrome.index import Histogram, Index, Query, State
from velodrome.index.source import GONE
from velodrome.records.foreign import foreign_file
from velodrome.records.rollout import beside
from velodrome.viewer.facts import Fact, Facts
from velodrome.viewer.left_behind import left_behind

_FIRST_S = 1.0
_AT_ONCE_S = 0.05  # how long a page reads on before it answers
_BEHIND_S = 0.2  # how long the follower reads before it lets others in
_IDLE_S = 1.0
_LOOK_S = 0.25
_FAR_BEHIND_BYTES = 64_000_000
_PAUSE_SHARE = 30.0  # how many times as long as a picture took it is good for, while the file grows
_MOST_COUNTS = 64
_FEW = 50_000  # rollouts that are counted in no time
_FEW_PATIENCE_S, _MANY_PATIENCE_S = 10.0, 0.02
_MOST_NOTES = 6
_TOLD_S = 120.0  # how long it is said that a file was read again, once it is whole
_NOT_THERE = "no such file; one that a collection writes is there once that has started: start it first"
_SUFFIX = re.compile(r"\.jsonl(\.zst)?$")


class Source:
    """A file under the name it has in addresses. Close it to stop following."""

    def __init__(self, path: Path, slug: str, facts: Facts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path.absolute()  # wherever the process goes
        self.slug = slug
        self.name = path.name
        self.facts = facts
        self._index = Index(self.path)
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._clock = clock
        self._counts: dict[tuple[str, object], Future[tuple[int, bool]]] = {}
        self._count_turns = 0
        self._counter = ThreadPoolExecutor(1, thread_name_prefix=f"count-{slug}")
        self._rewards: tuple[object, float, Histogram] | None = None
        self._anew: tuple[str | None, float] = (None, 0.0)  # why it was read again, and when that was first told
        self.problem: str | None = None  # why the file cannot be read on, while that is so
        self.anew_at = 0.0  # when the index found it to be another file than the one that was read
        facts.watch(self.path, self)
        self._follower = threading.Thread(target=self._follow, name=f"follow-{slug}", daemon=True)

    def follow(self) -> None:
        """Keep the index up to date until `close`. A file of ordinary size is read before this returns."""
        self._refresh(_LOOK_S if self.behind else _FIRST_S)  # a long one is read faster by the follower
        self._follower.start()

    def index(self) -> Index:
        """The index, as far as it can be brought up to date in a moment."""
        self._refresh(_AT_ONCE_S)
        return self._index

    def read_on(self) -> Index:
        """The index, with everything there is in the file."""
        while not self._refresh(_BEHIND_S):
            pass
        return self._index

    def rewards(self) -> Histogram:
        """Where the rewards lie. Of a large file that grows it may be a few seconds old."""
        version, now = self._counted(), time.monotonic()
        known = self._rewards
        if known is None or (known[0] != version and now >= known[1]):
            found = self._index.histogram("reward")
            self._rewards = known = (version, now + _PAUSE_SHARE * (time.monotonic() - now), found)
        return known[2]

    def count(self, query: Query, *, patience_s: float | None = None) -> tuple[int, bool] | None:
        """How many match, and whether that is all of them; counted once for all pages of a list.

        Of a large file it may take longer than a page should: then it is None, and known a little later.
        """
        wanted = (query.text, self._counted())
        with self._lock:
            counting = self._counts.get(wanted)
            if counting is None:
                self._counts[wanted] = counting = self._counter.submit(self._index.count, query)
                counting.add_done_callback(self._count_turned)
                while len(self._counts) > _MOST_COUNTS:
                    self._counts.pop(next(iter(self._counts))).cancel()
        if patience_s is None:
            patience_s = _FEW_PATIENCE_S if self._index.state.entries <= _FEW else _MANY_PATIENCE_S
        done = wait([counting], timeout=patience_s).done and not counting.cancelled()
        return counting.result() if done else None

    def _count_turned(self, counting: Future[tuple[int, bool]]) -> None:
        with self._lock:
            self._count_turns += 1

    def _counted(self) -> tuple[int, int, int, str | None]:
        state = self._index.state
        return state.rows, state.failed, state.searchable, state.rebuilt

    def fact(self, kind: str, *, patience_s: float) -> Fact:
        """Something measured of the whole file."""
        return self.facts.ask(kind, self.path, patience_s=patience_s)

    def left_behind(self, kind: str) -> Any:
        """What the collection left beside the file, if that is of the file as it is."""
        return left_behind(kind, self.path, self.index())

    @property
    def state(self) -> State:
        """How far the index is."""
        return self._index.state

    @property
    def behind(self) -> bool:
        """Whether much of the file is not in the index yet."""
        state = self._index.state
        return not state.complete and state.size - state.bytes > _FAR_BEHIND_BYTES

    @property
    def notes(self) -> list[str]:
        """What is to be said about the file above every page."""
        state = self._index.state
        anew = self._read_again(state)
        return [*([anew] if anew else []), *state.notes][:_MOST_NOTES]

    def _read_again(self, state: State) -> str | None:
        """Why everything was read again: for a while, and of a file that was gone until it is back."""
        if state.rebuilt != self._anew[0] or not state.complete:
            self._anew = (state.rebuilt, self._clock())
        if state.rebuilt and GONE in state.rebuilt:
            return None if self.path.exists() else f"{self.name}: {GONE}; it is read again once it is back"
        return state.rebuilt if self._clock() - self._anew[1] < _TOLD_S else None

    @property
    def version(self) -> str:
        """Another one whenever a page of this file would be another."""
        state = self._index.state
        told = (state.rows, state.failed, state.unreadable, state.searchable, state.live, state.complete, state.rebuilt)
        made = (self._count_turns, self.facts.turns(self.path), _touched(beside(self.path, "run.json")))
        return blake2b(repr((told, made, self.notes, self.problem)).encode(), digest_size=8).hexdigest()

    def close(self) -> None:
        """Stop following and let go of the index."""
        self._over.set()
        self._counter.shutdown(cancel_futures=True)
        if self._follower.is_alive():
            self._follower.join()
        self._index.close()

    def _refresh(self, budget_s: float) -> bool:
        """Read on; whether everything is read now. What goes wrong is a note: what was read before stays."""
        try:
            with blame(InputError, f"{self.name}: cannot be indexed"):
                state = self._index.refresh(budget_s)
        except InputError as error:
            self.problem = error.problems[0]
            return True
        self.problem = None
        self.anew_at = state.anew_at
        return state.complete and state.searchable >= state.entries

    def _follow(self) -> None:
        while not self._over.is_set():
            if self.behind:
                self._catch_up()
            up_to_date = self._refresh(_BEHIND_S)
            self._over.wait(_IDLE_S if up_to_date else 0.005)

    def _catch_up(self) -> None:
        """Let the index read with all it has, until everything can be found."""
        self._index.start()
        state = self._index.state
        while not self._over.is_set() and not (state.complete and state.searchable >= state.entries):
            self._over.wait(_LOOK_S)
            state = self._index.state
        self._index.stop()


def _touched(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def open_sources(paths: Sequence[Path], facts: Facts) -> list[Source]:
    """One source a file, each under a name of its own; every mistake in the files at once."""
    problems = []
    for path in paths:
        if not path.is_file():
            problems.append(f"{path}: {'not a regular file' if path.exists() else _NOT_THERE}")
        elif path.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
            problems.append(f"{path}: give the rollouts file; the failures beside it are shown with it")
        else:
            problems += filter(None, [foreign_file(path)])
    if problems:
        raise InputError(*problems)
    taken: set[str] = set()
    found = []
    for path in dict.fromkeys(paths):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", _SUFFIX.sub("", path.name)).strip("-.") or "run"
        slug, again = name, 1
        while slug in taken:
            again += 1
            slug = f"{name}-{again}"
        taken.add(slug)
        found.append(Source(path, slug, facts))
    return found


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """One file, let go of at the end."""
    facts = Facts()
    source = open_sources([path], facts)[0]
    try:
        yield source
    finally:
        facts.close()  # which may be asking the source
        source.close()
