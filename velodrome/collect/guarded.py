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

from velodrome.errors import ChangedError, InputError, StorageError
from velodrome.records.appender import Appender
from velodrome.records.rollout import key_in


class GuardedFile:
    """One file of a running collection. `changed` says what happened to it; then `saved` is where its lines are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = Appender(path)
        self.changed: str | None = None
        self.saved: Appender | None = None
        self._rescued = False
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
        self.saved = new_file_beside(self.path)

    def _save(self, line: bytes) -> None:
        if self.saved is None:
            raise StorageError(f"{self.path}: {self.changed}, and its lines could not be saved")
        self.saved.append(line)

    def _rescue(self) -> None:
        """Of a file that changed, save its whole lines; those that were appended last are taken from memory."""
        if self.changed is None or self._rescued:
            return
        self._rescued = True
        recent = {key_in(line) or line: line for line in self.file.recent}
        for line in self.file.whole_lines():
            if (key_in(line) or line) not in recent:
                self._add(line)
        for line in recent.values():
            self._add(line)

    def _add(self, line: bytes) -> None:
        with self._lock:
            self._save(line)

    def told(self, what: str) -> str:
        """What happened, where the lines are by now, and what to do. Only of a file that changed, and is closed."""
        saved = self.saved
        if saved is None or not saved.appended:
            return f"{self.path}: {self.changed} during the run; none of its {what} could be saved"
        return (
            f"{self.path}: {self.changed} during the run; {saved.appended:,} of its {what} are saved in {saved.path}; "
            f"to continue, put that in place of {self.path.name} and run the same command again"
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
                self.saved.path.unlink(missing_ok=True)


def new_file_beside(path: Path) -> Appender:
    """A file that was not there before: `rollouts.saved-1.jsonl`; in another folder if this one takes none."""
    suffix = ".jsonl.zst" if path.name.endswith(".jsonl.zst") else path.suffix
    stem = path.name.removesuffix(suffix)
    problem: InputError | None = None
    for folder in (path.parent, Path(), Path(tempfile.gettempdir())):
        for number in count(1):
            new = folder / f"{stem}.saved-{number}{suffix}"
            if os.path.lexists(new):
                continue
            try:
                return Appender(new, new=True)
            except InputError as error:
                problem = error
                if not os.path.lexists(new):
                    break
    raise StorageError(f"{problem}; the lines of {path} could not be saved")
