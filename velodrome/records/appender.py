"""Writes a JSONL file, plain or `.zst`: locks it, repairs its last line when it is opened, and appends to it.

Each line is one `write(2)` under a lock on the file itself. A write that the disk refuses is undone, so the file holds
whole lines. `change` reports changes by other programs.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from velodrome.errors import InputError, StorageError, VelodromeError
from velodrome.forks import close_alone, keep_alone, lock_holders
from velodrome.records.jsonl import loads

_CHUNK_BYTES = 1024 * 1024


class Appender:
    """One open file. `notes` lists repairs. If another process has it locked, wait, or raise an `InputError`."""

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self.path = path
        self.notes: list[str] = []
        self._checksum = 0  # of the bytes appended here
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = keep_alone(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        self._pack: Callable[[bytes], bytes] | None = None
        if path.suffix == ".zst":
            from velodrome.records.zst import pack

            self._pack = pack
        self._broken: str | None = None
        try:
            self._lock(wait)
            self.size = self._mend()
        except VelodromeError:
            close_alone(self._fd)
            raise
        self.size_before = self._synced = self.size

    def _lock(self, wait: bool) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise InputError(
                f"{self.path}: another collection is writing to it{lock_holders(self.path)};"
                " wait for it, or give another output file"
            ) from error
        self.size = self.size_found = os.fstat(self._fd).st_size
        problem = self.change()  # it may have been replaced between opening and locking
        if problem is not None:
            raise InputError(f"{self.path}: {problem} while it was opened; run the command again")

    def _mend(self) -> int:
        """Cut a torn last line, or add its missing line end. Returns the new size."""
        size = self.size_found
        if size == 0:
            return 0
        whole = self._whole_lines(size) if self._pack is None else self._whole_frames(self._pack)
        if whole < size:
            os.ftruncate(self._fd, whole)
            self.notes.append(
                f"{self.path}: the last line was torn ({size - whole} bytes); it is cut and will be run again"
            )
        elif whole > size:
            self.notes.append(f"{self.path}: the last line had no line end; it is whole and kept")
        return os.fstat(self._fd).st_size

    def _whole_frames(self, pack: Callable[[bytes], bytes]) -> int:
        """The end of the last whole frame. A missing line end is added."""
        from velodrome.records.zst import whole_frames

        whole, line_ended = whole_frames(self.path)
        if line_ended:
            return whole
        os.ftruncate(self._fd, whole)
        end = pack(b"\n")
        self._write(end, whole)
        return whole + len(end)

    def _whole_lines(self, size: int) -> int:
        """The end of the last whole line. A last line of valid JSON without a line end gets one."""
        tail = b""
        start = size
        while start > 0 and b"\n" not in tail:
            step = min(_CHUNK_BYTES, start)
            start -= step
            tail = os.pread(self._fd, step, start) + tail
        line_start = tail.rfind(b"\n") + 1
        last_line = tail[line_start:]
        if not last_line:
            return size
        try:
            loads(last_line)
        except ValueError:
            return start + line_start
        self._write(b"\n", size)
        return size + 1

    def append(self, line: bytes) -> None:
        """Add one line (with its line end) completely, or raise and add nothing."""
        data = line if self._pack is None else self._pack(line)
        self._write(data, self.size)
        self.size += len(data)
        self._checksum = zlib.crc32(data, self._checksum)

    def _write(self, data: bytes, before: int) -> None:
        if self._broken is not None:
            raise StorageError(self._broken)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError as error:
            problem = f"{self.path}: {error.strerror or error}; everything finished before is in the file, "
            problem += "and the same command continues from there"
            if written and not self._undo_write(before, written):
                self._broken = problem  # the file ends in half a line: another line after it would be damaged, too
            raise StorageError(problem) from error

    def _undo_write(self, before: int, written: int) -> bool:
        """Remove a partly written line, if it is still the end of the file. Returns whether it did."""
        try:
            if os.fstat(self._fd).st_size != before + written:
                return False
            os.ftruncate(self._fd, before)
        except OSError:
            return False
        return True

    def change(self, *, reread: bool = False) -> str | None:
        """How another program changed the file, or None. With `reread` the appended bytes are read back, too."""
        opened = os.fstat(self._fd)
        try:
            current = os.stat(self.path)
        except FileNotFoundError:
            return "it was removed or renamed"
        except OSError as error:
            return f"it cannot be reached ({error.strerror or error})"
        if (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino):
            return "it was replaced by another file"
        if opened.st_size < self.size:
            return f"it was cut from {self.size:,} to {opened.st_size:,} bytes by another program"
        if opened.st_size > self.size:
            return f"another program wrote {opened.st_size - self.size:,} bytes to it"
        if reread and self._appended_checksum() != self._checksum:
            return "it was overwritten by another program"
        return None

    def _appended_checksum(self) -> int:
        checksum, offset = 0, self.size_before
        while data := os.pread(self._fd, _CHUNK_BYTES, offset):
            checksum, offset = zlib.crc32(data, checksum), offset + len(data)
        return checksum

    def state(self) -> tuple[int, int]:
        """The size and the modification time of the open file."""
        state = os.fstat(self._fd)
        return state.st_size, state.st_mtime_ns

    def clear(self) -> None:
        """Empty the file."""
        os.ftruncate(self._fd, 0)
        self.size = self.size_before = self._synced = 0

    def sync(self) -> None:
        """Sync the file to disk."""
        size = self.size
        if size != self._synced:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise StorageError(f"{self.path}: the disk does not keep what is written: {error.strerror}") from error
            self._synced = size

    def close(self) -> None:
        """Sync, unlock and close the file. May be called twice."""
        if self._fd >= 0:
            try:
                self.sync()
            finally:
                close_alone(self._fd)
                self._fd = -1
