"""The folder of a run while it is being trained: held by one process, with its settings beside what it leaves.

Ctrl-C once ends the run after the epoch it is in; twice, at once. Both leave a run that goes on. A run that is refused
leaves no folder.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from velodrome.errors import InputError, StorageError
from velodrome.timing.stop_signals import StopSignals
from velodrome.training.run.folder import METRICS, folder
from velodrome.training.settings import Settings

SETTINGS, LOCK = "settings.json", ".lock"
_TRIES = 10


@contextmanager
def held(settings: Settings) -> Iterator[Path]:
    """The run's folder, for this process alone."""
    path = folder(settings)
    lock, made = _locked(path)
    whole = False
    try:
        _tell(path / SETTINGS, settings)
        yield path
        whole = True
    finally:
        if made and not whole:
            _unmake(path)
        os.close(lock)


def _locked(path: Path) -> tuple[int, bool]:
    """The lock of the folder, and whether the folder was made for it."""
    for _ in range(_TRIES):  # whoever else was refused may be taking the folder away again
        try:
            made = _made(path)
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"{path}: cannot be made ({error.strerror or error}); see output.train_dir") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise InputError(f"{path}: another process trains this run; give run= another name, or wait") from None
        with suppress(OSError):
            if os.path.samestat(os.fstat(lock), (path / LOCK).stat()):
                return lock, made
        os.close(lock)
    raise StorageError(f"{path}: cannot be made (it does not stay); see output.train_dir")


def _made(path: Path) -> bool:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    return True


def _unmake(path: Path) -> None:
    """Take away a folder in which nothing was done. The lock is still held; what somebody else puts in keeps it."""
    with suppress(OSError):
        if {each.name for each in path.iterdir() if each.stat().st_size or each.name != METRICS} <= {LOCK, SETTINGS}:
            for name in (METRICS, SETTINGS, LOCK):
                (path / name).unlink(missing_ok=True)
            path.rmdir()


def _tell(path: Path, settings: Settings) -> None:
    """Whole or not at all: of a run that a full disk has stopped, what it was told is still known."""
    new = path.with_suffix(".new")
    try:
        new.write_text(settings.model_dump_json(indent=2) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written ({error.strerror or error}); nothing was trained") from error


class Interrupt:
    """Whether somebody asked to stop."""

    def __init__(
        self, say: Callable[[str], None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._signals = StopSignals(clock=clock)
        self.asked = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Hear Ctrl-C (and SIGTERM) inside. Only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self._signals.counts(number):
            return
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._say:
            with suppress(RuntimeError):  # somebody is in the middle of a line of the same stream
                self._say("stopping after this epoch; once more stops at once")
