"""`metrics.jsonl` of a run: one line per epoch and per evaluation.

A run that resumes from a checkpoint cuts it back to what was there then, so no step appears twice. Lines that
another program removed cost the run nothing: a line `{"lost_bytes": ...}` of their length takes their place, so the
offsets in older checkpoints stay valid. A file that is removed or replaced during the run is put back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import StorageError

Json = dict[str, Any]

_SHORTEST = 40  # bytes; none of our lines is shorter, so a line that replaces a lost one has room
_TIMES = ("sps", "rollout_ms", "update_ms", "evaluation_s")
_RESUME = "The last checkpoint is good; once there is room, the same command resumes from it."


class MetricsLog:
    """An open metrics file. `offset` is where the next line begins; `lost` counts bytes that disappeared."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self._file, min(os.fstat(self._file).st_size, offset))
            self.lost = self._fill(offset)
            os.lseek(self._file, offset, os.SEEK_SET)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
        self.offset = offset

    def _fill(self, offset: int) -> int:
        """Make the file end at `offset` with a whole line; returns how many bytes of other lines that replaces."""
        kept = os.fstat(self._file).st_size
        while kept and (0 < offset - kept < _SHORTEST or os.pread(self._file, 1, kept - 1) != b"\n"):
            kept -= 1
        lost = offset - kept
        if lost:
            os.pwrite(self._file, orjson.dumps({"lost_bytes": lost}).ljust(lost - 1) + b"\n", kept)
        return lost

    def write(self, line: Json) -> None:
        """Add a line, whole or not at all."""
        data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        self._repair()
        try:
            done = os.write(self._file, data)
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError as error:
            os.ftruncate(self._file, self.offset)
            raise StorageError(f"{self._path}: cannot be written ({error.strerror or error}). {_RESUME}") from error
        self.offset += len(data)

    def _repair(self) -> None:
        """Undo what another program did to the file since the last line."""
        try:
            if os.fstat(self._file).st_size != self.offset:
                os.ftruncate(self._file, min(os.fstat(self._file).st_size, self.offset))
                self.lost += self._fill(self.offset)
                os.lseek(self._file, self.offset, os.SEEK_SET)
            if not (self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._file))):
                self._restore()
        except OSError as error:
            raise StorageError(
                f"{self._path}: another program removed or changed it, and it cannot be restored "
                f"({error.strerror or error}). {_RESUME}"
            ) from error

    def _restore(self) -> None:
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(os.dup(self._file), "rb") as old, os.fdopen(os.dup(file), "wb") as copy:
            old.seek(0)
            shutil.copyfileobj(old, copy)
        os.replace(part, self._path)
        os.close(self._file)
        self._file = file
        os.lseek(file, self.offset, os.SEEK_SET)

    def flush(self) -> None:
        """Make it survive a power cut."""
        self._repair()
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line by tag: `train/<name>`, `time/<name>`, `evaluation_greedy/<name>` …"""
    return dict(_tagged(line))


def past_scalars(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Step and numbers of every line of a metrics file."""
    for text in path.read_bytes().splitlines():
        line = orjson.loads(text)
        if "step" in line:  # not one that replaces lost bytes
            yield line["step"], scalars(line)


def _tagged(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, Mapping):
            group = "time" if name != "evaluation" else f"evaluation_{'greedy' if value['greedy'] else 'sampled'}"
            yield from (
                (f"{group}/{inner}", number) for inner, number in value.items() if inner not in ("greedy", "actions")
            )
        elif name != "step" and not isinstance(value, str):
            yield f"{'time' if name in _TIMES else 'train'}/{name}", value
