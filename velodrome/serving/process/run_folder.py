"""The private folder of one `velo run`: keys, briefs and state. None outlives its owner for long.

The owner holds a lock on the folder. The system frees it however the owner ends, so a folder whose lock can be taken
has no owner, and the next run removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"velodrome-run-(\d+)-")


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A folder that only this user can read, removed at the end; those of owners that are dead are removed before."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"velodrome-run-{os.getpid()}-"))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove the folders that killed owners left behind."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob("velodrome-run-*"):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    match, about = _NAME.match(folder.name), folder.lstat()
    if match is None or not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        return
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the owner lives
        if any(folder.iterdir()) or not _lives(int(match[1])):  # an empty one may be about to be locked
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
