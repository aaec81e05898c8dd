"""`metrics.jsonl` of a run: one line an epoch and one an evaluation, each written whole.

A run that goes on from a checkpoint cuts the file back to what was there then, so no step stands in it twice. What
somebody has taken out of it costs these lines and not the run: a line `{"lost_bytes": ...}` of their length stands for
them, so that the places older checkpoints know stay those of lines. A file that is removed or replaced while the run
lasts is put back.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import StorageError

Json = dict[str, Any]

_SHORTEST = 40  # bytes; no line of ours is shorter, and what stands for a lost one has room in it


class Log:
    """An open metrics file. `place` is where the next line will begin; `lost`, bytes that were there and are not."""

    def __init__(self, path: Path, place: int) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self._file, min(os.fstat(self._file).st_size, place))
            self.lost = self._fill(place)
            os.lseek(self._file, place, os.SEEK_SET)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
        self.place = place

    def _fill(self, place: int) -> int:
        """Make the file end at `place` with a whole line; how many bytes of other lines had to be given up for it."""
        kept = os.fstat(self._file).st_size
        while kept and (0 < place - kept < _SHORTEST or os.pread(self._file, 1, kept - 1) != b"\n"):
            kept -= 1
        lost = place - kept
        if lost:
            told = orjson.dumps({"lost_bytes": lost})
            os.pwrite(self._file, told.ljust(lost - 1) + b"\n", place - lost)
        return lost

    def write(self, line: Json) -> None:
        """Add a line. One that does not fit on the disk is taken back."""
        data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        self._put_right()
        try:
            done = os.write(self._file, data)
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError as error:
            os.ftruncate(self._file, self.place)
            raise StorageError(
                f"{self._path}: cannot be written ({error.strerror or error}). The last checkpoint is good; "
                "with room made, the same command goes on from there."
            ) from error
        self.place += len(data)

    def _put_right(self) -> None:
        """Undo what another program did to the file since the last line."""
        try:
            if os.fstat(self._file).st_size != self.place:
                os.ftruncate(self._file, min(os.fstat(self._file).st_size, self.place))
                self.lost += self._fill(self.place)
                os.lseek(self._file, self.place, os.SEEK_SET)
            if not (self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._file))):
                self._put_back()
        except OSError as error:
            raise StorageError(
                f"{self._path}: another program removed or changed it, and it cannot be put back "
                f"({error.strerror or error}). The last checkpoint is good; the same command goes on from there."
            ) from error

    def _put_back(self) -> None:
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(os.dup(self._file), "rb") as held, os.fdopen(os.dup(file), "wb") as copy:
            held.seek(0)
            shutil.copyfileobj(held, copy)
        os.replace(part, self._path)
        os.close(self._file)
        self._file = file
        os.lseek(file, self.place, os.SEEK_SET)

    def settle(self) -> None:
        """Make it survive a power cut."""
        self._put_right()
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)
