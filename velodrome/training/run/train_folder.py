"""The folder of a run: `train_dir/<run>_<digest>`, held by one process while it trains.

The digest is made of what decides the weights: the same command continues the run, and another setting never writes
into an older run's folder. A run that is refused leaves no folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from velodrome.errors import InputError, StorageError
from velodrome.forks import close_alone, keep_alone, lock_holders
from velodrome.training.settings import RunSettings, leaves

METRICS, SETTINGS, LOCK = "metrics.jsonl", "settings.json", ".lock"

_DIGITS = 8
_FREE = ("trainer.total_timesteps", "trainer.timing_interval", "trainer.checkpoint_seconds", "supervised.profiled")
_FREE_GROUPS = ("evaluator.", "output.", "trainer.profiler.")


def digest(settings: RunSettings) -> str:
    """Of every setting except those a run may be continued with: its length, its evaluation and its output."""
    fixed = {leaf.name: leaf.value for leaf in leaves(settings) if not is_free(leaf.name)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def is_free(name: str) -> bool:
    """Whether a setting can change without the run becoming another one."""
    return name in _FREE or name.startswith(_FREE_GROUPS)


def run_folder(settings: RunSettings) -> Path:
    """Where the run is kept. With the profiler on, a folder that is not there yet: what is profiled starts afresh."""
    try:
        above = Path(settings.output.train_dir).expanduser()
    except RuntimeError:
        raise InputError(f"output.train_dir={settings.output.train_dir}: there is no such home folder") from None
    name = digest(settings)
    path, number = above / f"{settings.run}_{name}", 1
    while settings.trainer.profiler.enabled and path.exists():
        number += 1
        path = above / f"{settings.run}_{number}_{name}"
    return path


@contextmanager
def held_folder(settings: RunSettings) -> Iterator[Path]:
    """The run's folder, locked for this process, with `settings.json` in it. An environment may chdir."""
    with held(run_folder(settings).absolute()) as path:
        _write_settings(path / SETTINGS, settings)
        yield path


@contextmanager
def held(path: Path) -> Iterator[Path]:
    """A folder, locked for this process. If it was made for this and nothing was done in it, it is removed."""
    created, completed = not path.is_dir(), False
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = keep_alone(os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644))
    except OSError as error:
        raise StorageError(f"{path}: cannot be made ({error.strerror or error}); see output.train_dir") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            created, who = False, lock_holders(path / LOCK)
            raise InputError(f"{path}: another process trains this run{who}; give run= another name, or wait") from None
        yield path
        completed = True
    finally:
        if created and not completed:
            _remove_unused(path)
        close_alone(lock)


def _remove_unused(path: Path) -> None:
    """Remove a folder in which nothing was done, while the lock is held. Anybody else's file keeps it."""
    with suppress(OSError):
        if {each.name for each in path.iterdir() if each.stat().st_size or each.name != METRICS} <= {LOCK, SETTINGS}:
            for name in (METRICS, SETTINGS, LOCK):
                (path / name).unlink(missing_ok=True)
            path.rmdir()


def _write_settings(path: Path, settings: RunSettings) -> None:
    """Whole or not at all: if the disk is full, the settings of the last run remain."""
    new = path.with_suffix(".new")
    try:
        new.write_text(settings.model_dump_json(indent=2) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written ({error.strerror or error}); nothing was trained") from error
