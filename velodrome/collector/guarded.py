"""A file that is appended to while other programs may remove, replace, cut or overwrite it.

Once such a change is noticed nothing more goes into that file. Its whole lines, those that were appended last and
those that still come are saved in a new file beside it.
"""

from __future__ import annotations

import os
import tempfile
import threading
from itertools import count
from pathlib import Path

from velodrome.errors import ChangedError, InputError, StorageError, VelodromeError
from velodrome.records.appender import Appender
from velodrome.records.rollout import key_in


class GuardedFile:
    """One file of a running collection. `changed` says what happened to it; then `saved` is where its lines are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = Appender(path)
        self.changed: str | None = None
        self.saved: Appender | None = None
        self.unsaved: str | None = None  # why not all of its lines could be saved
        self._rescued = False
        self._folders = iter((path.parent, Path(), Path(tempfile.gettempdir())))
        self._lock = threading.Lock()  # the loop appends, a thread compares

    def append(self, line: bytes) -> None:
        """Add one line, wherever lines go by now."""
        with self._lock:
            if self.saved is None:
                try:
                    self.file.append(line)
                    return
                except ChangedError as error:
                    self._leave(str(error).removeprefix(f"{self.path}: "))
            self._save(line)

    def compare(self, *, thorough: bool = False) -> None:
        """Compare the file with its path. With `thorough` lines are read again if somebody touched the file."""
        with self._lock:
            if self.changed is None:
                problem = self.file.difference()
                if problem is not None and self.file.size == 0:
                    problem = self._reopened(problem)
                if problem is None and thorough:
                    problem = self.file.damage()
                if problem is not None:
                    self._leave(problem)
        self._rescue()

    def leave(self, problem: str) -> None:
        """Take the file for changed, because of something that only a reader can see."""
        with self._lock:
            if self.changed is None:
                self._leave(problem)
        self._rescue()

    def _reopened(self, problem: str) -> str | None:
        """An empty file that is gone is made again; there is nothing to lose."""
        if self.path.exists():
            return problem
        try:
            fresh = Appender(self.path)
        except InputError:
            return problem
        if fresh.size:
            fresh.close()
            return problem
        self.file.close()
        self.file = fresh
        return None

    def _leave(self, problem: str) -> None:
        self.changed = problem
        self._save_elsewhere()

    def _save(self, line: bytes) -> None:
        while self.saved is not None:
            try:
                self.saved.append(line)
                return
            except StorageError as error:
                self.unsaved = _reason(error)
                if not self._save_elsewhere():
                    break
        raise StorageError(f"{self.path}: {self.changed}, and its lines cannot be saved: {self.unsaved}")

    def _save_elsewhere(self) -> bool:
        """Save in the next folder that takes what is saved so far; False if there is none."""
        before = self.saved
        for folder in self._folders:
            try:
                new = new_file(folder, self.path.name)
            except InputError as error:
                self.unsaved = _reason(error)
                continue
            try:
                for line in () if before is None else before.whole_lines():
                    new.append(line)
            except StorageError as error:
                self.unsaved = _reason(error)
                _drop(new)
                continue
            self.saved, self.unsaved = new, None
            if before is not None:
                _drop(before)
            return True
        return False

    def _rescue(self) -> None:
        """Of a file that changed, save its whole lines; those that were appended last are taken from memory."""
        if self.changed is None or self._rescued:
            return
        self._rescued = True
        recent = {key_in(line) or line: line for line in self.file.recent}
        try:
            for line in self.file.whole_lines():
                if (key_in(line) or line) not in recent:
                    self._add(line)
            for line in recent.values():
                self._add(line)
        except StorageError:
            return  # `unsaved` says why

    def _add(self, line: bytes) -> None:
        with self._lock:
            self._save(line)

    def report(self, what: str) -> str:
        """What happened, where the lines are by now, and what to do. Only of a file that changed, and is closed."""
        saved = self.saved
        if saved is None or not saved.appended:
            why = f": {self.unsaved}" if self.unsaved else ""
            return f"{self.path}: {self.changed} during the run; none of its {what} could be saved{why}"
        return (
            f"{self.path}: {self.changed} during the run; {saved.appended:,} of its {what} are saved in {saved.path}; "
            + (f"the others could not be saved ({self.unsaved}); " if self.unsaved else "")
            + f"to continue, put that in place of {self.path} and run the same command again"
        )

    def sync(self) -> None:
        """Ask the disk to keep what was written."""
        self.file.sync()
        if self.saved is not None:
            self.saved.sync()

    def close(self, *, remove_empty: bool = False) -> None:
        """Sync and let go of the file. With `remove_empty` it is removed if it is empty and still this one."""
        unused = remove_empty and self.changed is None and self.file.size == 0 and self.file.difference() is None
        if unused:
            self.path.unlink(missing_ok=True)
        self.file.close()
        if self.saved is not None:
            self.saved.close()
            if not self.saved.appended:
                _drop(self.saved)


def new_file(folder: Path, name: str) -> Appender:
    """A file that was not there before: `rollouts.saved-1.jsonl` for `rollouts.jsonl`."""
    stem, _, suffix = name.rpartition(".jsonl")
    paths = (folder / f"{stem}.saved-{number}.jsonl{suffix}" for number in count(1))
    return Appender(next(path for path in paths if not os.path.lexists(path)), new=True)


def _reason(error: VelodromeError) -> str:
    return str(error).partition(";")[0]


def _drop(file: Appender) -> None:
    file.close()
    file.path.unlink(missing_ok=True)
