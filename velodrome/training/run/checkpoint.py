"""Checkpoints: one file each, whole or absent, with a digest at its end; tensors and JSON, never code.

A new one is written to a temporary file and renamed, so a kill at any moment leaves the last one. Two are kept, so a
damaged one costs an interval, not the run.

The weights of the best evaluation and of the end of each phase are in separate files, named by their step. A
checkpoint says which of them belong to it: a file that was written later means nothing until a checkpoint names it.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from velodrome.errors import InputError, StorageError

_DIGEST_BYTES = 32
_KEPT = 2
_NAME = re.compile(r"checkpoint_(\d{12,})\.pt")
_WEIGHTS = re.compile(r"(?:best|best_sampled|phase_.+)_\d{12,}\.pt")
# what torch's reader raises for a file that is not a checkpoint
_NO_STATE = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError)
_FORMAT = 2  # of `State`; increased whenever older ones cannot be resumed

State = dict[str, Any]  # tensors, numbers, strings, and lists and dicts of them


def name_of(step: int, kind: str = "checkpoint") -> str:
    """The file of a step."""
    return f"{kind}_{step:012d}.pt"


def save(folder: Path, step: int, state: State, keep: Iterable[str] = ()) -> Path:
    """Write one and make it durable; remove all but the last two, and files of weights that are not in `keep`."""
    path = folder / name_of(step)
    write(path, state)
    kept = set(keep)
    stale = [each for each in folder.glob("*.pt") if _WEIGHTS.fullmatch(each.name) and each.name not in kept]
    for older in (*checkpoints(folder)[:-_KEPT], *stale):
        with suppress(OSError):  # it is removed with the next one
            older.unlink(missing_ok=True)
    return path


def write(path: Path, state: State) -> None:
    """Write a file, whole or not at all."""
    buffer = io.BytesIO()
    torch.save({**state, "format": _FORMAT}, buffer)
    data = buffer.getvalue()
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as stream:
            stream.write(data)
            stream.write(blake2b(data, digest_size=_DIGEST_BYTES).digest())
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
        _sync(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: cannot be written ({error.strerror or error}). The checkpoint before it is good; "
            "once there is room, the same command resumes from it."
        ) from error


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    steps = {path: _NAME.fullmatch(path.name) for path in folder.glob("checkpoint_*.pt")}
    return sorted((path for path, name in steps.items() if name), key=lambda path: int(path.stem.rpartition("_")[2]))


def read(path: Path) -> State:
    """The state in a checkpoint. A damaged file is an `InputError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(digest) < _DIGEST_BYTES or blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        raise InputError(f"{path}: damaged, or no checkpoint of a run (its digest does not match); not used")
    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except _NO_STATE as error:
        raise InputError(f"{path}: not a Velodrome checkpoint ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise InputError(f"{path}: not a Velodrome checkpoint")
    if state.pop("format", _FORMAT) != _FORMAT:
        raise InputError(f"{path}: made by another version of Velodrome; resume it with that version")
    return state


def latest(folder: Path, say: Callable[[str], None]) -> State | None:
    """The newest whole checkpoint; damaged ones are reported and skipped. None if there is none."""
    every = checkpoints(folder)
    for path in reversed(every):
        try:
            return read(path)
        except InputError as error:
            say(str(error))
    if every:
        raise InputError(
            f"{folder}: all {len(every)} checkpoints are damaged; move the folder away to start over, "
            "or restore a copy of a checkpoint"
        )
    return None


def _sync(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
