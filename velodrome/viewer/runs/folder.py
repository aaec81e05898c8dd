"""The runs below a folder: rollouts files and training runs, found by what is in them.

A folder is read again when it has changed, a file when it is another one. Links are not followed, hidden folders are
left out, and the search is bounded: whatever is beyond a bound is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velodrome.records.other_files import first_row
from velodrome.records.rollout import beside

DEEPEST = 8  # folders below the one that was given
MOST_RUNS = 5_000
MOST_NAMES = 200_000  # files and folders that are looked at
METRICS, SETTINGS = "metrics.jsonl", "settings.json"  # of a training run
_ENDS = (".jsonl", ".jsonl.zst")
_NEVER = frozenset(("node_modules", "__pycache__", "site-packages"))
_SETTLED_S = 2.0  # in a folder that changed later than this another file may appear unnoticed
_TEXT = 120  # characters of a name


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run: a rollouts file, or the folder of a training run. `model` and `agent` are those of its first row."""

    path: Path
    name: str
    kind: str  # rollouts, training
    model: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class _Listed:
    """A folder as it was."""

    changed_ns: int
    read_at: float
    folders: tuple[str, ...]
    files: tuple[str, ...]


class RunFolder:
    """A folder whose runs are looked for again and again."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path.absolute()
        self.note: str | None = None  # what was left out
        self._clock = clock
        self._listed: dict[str, _Listed] = {}
        self._kinds: dict[str, tuple[tuple[int, int, int], FoundRun | None]] = {}

    def runs(self) -> list[FoundRun]:
        """Every run below the folder, by path."""
        self.note = None
        found: list[FoundRun] = []
        names = 0
        for folder, depth, listed in self._folders():
            names += len(listed.files) + len(listed.folders)
            if len(found) >= MOST_RUNS or names > MOST_NAMES:
                self.note = f"{self.path}: too much is below it; the first {len(found):,} runs are listed"
                break
            if depth == DEEPEST and listed.folders:
                self.note = f"{self.path}: folders more than {DEEPEST} levels below it are not searched"
            found += self._in(folder, listed)
        return found[:MOST_RUNS]

    def _folders(self) -> Iterator[tuple[str, int, _Listed]]:
        """The folders, each before those below it."""
        waiting = [(str(self.path), 0)]
        while waiting:
            folder, depth = waiting.pop()
            listed = self._list(folder)
            if listed is not None:
                yield folder, depth, listed
                if depth < DEEPEST:
                    waiting += [(f"{folder}/{name}", depth + 1) for name in reversed(listed.folders)]

    def _list(self, folder: str) -> _Listed | None:
        try:
            changed_ns, now = os.stat(folder).st_mtime_ns, self._clock()
            known = self._listed.get(folder)
            if known and known.changed_ns == changed_ns and known.read_at - changed_ns / 1e9 > _SETTLED_S:
                return known
            with os.scandir(folder) as entries:
                there = sorted((each.name, each.is_dir(follow_symlinks=False), each.is_symlink()) for each in entries)
        except OSError:
            return None
        folders = tuple(name for name, is_folder, _ in there if is_folder and name not in _NEVER and name[0] != ".")
        files = tuple(
            name for name, is_folder, linked in there if not (is_folder or linked) and name.endswith((*_ENDS, SETTINGS))
        )
        self._listed[folder] = listed = _Listed(changed_ns, now, folders, files)
        return listed

    def _in(self, folder: str, listed: _Listed) -> Iterator[FoundRun]:
        if SETTINGS in listed.files and METRICS in listed.files:
            yield FoundRun(Path(folder), self._name(folder), "training")
        for name in listed.files:
            if name.endswith(_ENDS):
                run = self._run(f"{folder}/{name}")
                if run is not None:
                    yield run

    def _run(self, path: str) -> FoundRun | None:
        """The run in a file, if it is one. A file that is a run stays one until another takes its place."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._kinds.get(path)
        if known and (known[0] == version or (known[1] and known[0][0] == version[0])):
            return known[1]
        file = Path(path)
        kind, row = first_row(file) if status.st_size else (None, None)
        begun = not status.st_size and beside(file, "run.json").exists()
        run = FoundRun(file, self._name(path), "rollouts", *_made_by(row)) if kind == "rollout" or begun else None
        self._kinds[path] = ((version[0], version[1], version[2]) if status.st_size else (0, 0, 0), run)
        return run

    def _name(self, path: str) -> str:
        """The path below the folder; of the folder itself its name."""
        return os.path.relpath(path, self.path) if path != str(self.path) else self.path.name or path


def found_file(path: Path, name: str) -> FoundRun:
    """A rollouts file that was given by name."""
    return FoundRun(path, name, "rollouts", *_made_by(first_row(path)[1]))


def _made_by(row: Any) -> tuple[str, str]:
    """The model and the agent that a row names."""
    values = []
    for part, name in (("response", "model"), ("meta", "agent")):
        inside = row.get(part) if isinstance(row, dict) else None
        value = inside.get(name) if isinstance(inside, dict) else None
        values.append(value[:_TEXT] if isinstance(value, str) else "")
    return values[0], values[1]
