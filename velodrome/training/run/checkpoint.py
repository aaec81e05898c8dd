"""Checkpoints: one file each, whole or absent, with a digest at its end; tensors and JSON, never code.

A new one is written beside and renamed, so a kill at any moment leaves the last. Two are kept, so a damaged one costs
an interval and not a run.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from velodrome.errors import InputError, StorageError

_DIGEST_BYTES = 32
_KEPT = 2
_NAME = re.compile(r"checkpoint_(\d{12,})\.pt")
# what torch's reader raises for bytes that somebody else has put together
_NO_STATE = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError)
_FORMAT = 1  # of `State`; raised whenever an older one cannot be gone on from

State = dict[str, Any]  # tensors, numbers, strings, and lists and dicts of them


def name_of(step: int) -> str:
    """The file of a step."""
    return f"checkpoint_{step:012d}.pt"


def save(folder: Path, step: int, state: State) -> Path:
    """Write one, make it durable, and let go of all but the last two."""
    held = io.BytesIO()
    torch.save({**state, "format": _FORMAT}, held)
    data = held.getvalue()
    path = folder / name_of(step)
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as stream:
            stream.write(data)
            stream.write(blake2b(data, digest_size=_DIGEST_BYTES).digest())
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
        _settle(folder)
        for older in found(folder)[:-_KEPT]:
            older.unlink(missing_ok=True)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise StorageError(
            f"{path}: cannot be written ({error.strerror or error}). The checkpoint before it is good; "
            "with room made, the same command goes on from there."
        ) from error
    return path


def found(folder: Path) -> list[Path]:
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
        raise InputError(f"{path}: damaged (its digest does not match); not used")
    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except _NO_STATE as error:
        raise InputError(f"{path}: not a checkpoint of Velodrome's ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise InputError(f"{path}: not a checkpoint of Velodrome's")
    if state.pop("format", _FORMAT) != _FORMAT:
        raise InputError(f"{path}: made by another version of Velodrome, which can go on from it; this one cannot")
    return state


def latest(folder: Path, say: Callable[[str], None]) -> State | None:
    """The newest whole checkpoint; what is damaged is said and passed over. None if there was never one."""
    every = found(folder)
    for path in reversed(every):
        try:
            return read(path)
        except InputError as error:
            say(str(error))
    if every:
        raise InputError(
            f"{folder}: no whole checkpoint is left of {len(every)}; move the folder away to begin anew, "
            "or put a copy of a checkpoint back"
        )
    return None


def _settle(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
