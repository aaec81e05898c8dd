"""The one writer of a JSONL file, plain or `.zst`: locked, mended, appended to, and compared with its path.

Appending is one `write(2)` per line under a lock on the file itself; a write the disk refuses is taken back, so that
the file holds whole lines. What other programs do to the file meanwhile is noticed by `difference`.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from velodrome.errors import ChangedError, InputError, StorageError, VelodromeError
from velodrome.records.jsonl import loads, read_lines

_CHUNK_BYTES = 1024 * 1024
_RECENT_BYTES = 4 * 1024 * 1024


class Appender:
    """One open file. `notes` says what was mended. Another process that holds it is waited for, or an `InputError`.

    `recent` are the last lines appended, so that those survive a program that cuts the file. `touched` says that
    somebody else wrote to the file or changed its time; whether lines are damaged shows only when they are read again.
    """

    def __init__(self, path: Path, *, new: bool = False, wait: bool = False) -> None:
        self.path = path
        self.notes: list[str] = []
        self.recent: deque[bytes] = deque()
        self._recent_bytes = 0
        self.appended = 0
        self._checksum = 0  # of the bytes appended here
        self.touched = False
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if new else 0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        self._pack = None
        if path.suffix == ".zst":
            from velodrome.records.zst import pack

            self._pack = pack
        self._broken: str | None = None
        try:
            self._lock(wait)
            self.size = self._mend()
        except VelodromeError:
            os.close(self._fd)
            raise
        self.size_before = self._synced = self.size
        self._note_times()

    def _lock(self, wait: bool) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise InputError(
                f"{self.path}: another collection is writing to it; wait for it, or give another output file"
            ) from error
        self.size = os.fstat(self._fd).st_size
        problem = self.difference()  # it may have been replaced between the opening and the lock
        if problem is not None:
            raise InputError(f"{self.path}: {problem} while it was opened; run the command again")

    def _mend(self) -> int:
        self.size_found = size = os.fstat(self._fd).st_size
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
        """Where the last whole frame ends. If that is not the end of a line, one is added."""
        from velodrome.records.zst import whole_frames

        whole, line_ended = whole_frames(self.path)
        if line_ended:
            return whole
        os.ftruncate(self._fd, whole)
        end = pack(b"\n")
        self._write(end, whole)
        return whole + len(end)

    def _whole_lines(self, size: int) -> int:
        """Where the last whole line ends. A last line that is JSON but for its line end gets one."""
        tail = b""
        start = size
        while start > 0 and b"\n" not in tail:
            step = min(_CHUNK_BYTES, start)
            start -= step
            tail = os.pread(self._fd, step, start) + tail
        cut = tail.rfind(b"\n") + 1
        last = tail[cut:]
        if not last:
            return size
        try:
            loads(last)
        except ValueError:
            return start + cut
        self._write(b"\n", size)
        return size + 1

    def append(self, line: bytes) -> None:
        """Add one line (with its line end), or none of it. A file that others changed is a `ChangedError`."""
        before = os.fstat(self._fd)
        self._refuse(self._resized(before.st_size))
        self.touched = self.touched or before.st_mtime_ns != self.written_at
        data = line if self._pack is None else self._pack(line)
        self._write(data, self.size)
        self.size += len(data)
        self.appended += 1
        self._checksum = zlib.crc32(data, self._checksum)
        self._note_times()
        self.recent.append(line)
        self._recent_bytes += len(line)
        while self._recent_bytes > _RECENT_BYTES and len(self.recent) > 1:
            self._recent_bytes -= len(self.recent.popleft())

    def _note_times(self) -> None:
        state = os.fstat(self._fd)
        self.written_at, self.changed_at = state.st_mtime_ns, state.st_ctime_ns

    def _write(self, data: bytes, before: int) -> None:
        if self._broken is not None:
            raise StorageError(self._broken)
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            problem = f"{self.path}: {error.strerror or error}; everything finished before is in the file, "
            problem += "and the same command continues from there"
            try:
                os.ftruncate(self._fd, before)
            except OSError:
                self._broken = problem  # half a line is the last one: another behind it would be damaged too
            raise StorageError(problem) from error

    def difference(self) -> str | None:
        """What others did to the file, as far as its path and its size show; None if nothing."""
        held = os.fstat(self._fd)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return "it was removed or renamed"
        except OSError as error:
            return f"it cannot be reached ({error.strerror or error})"
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            return "it was replaced by another file"
        return self._resized(held.st_size)

    def _resized(self, size: int) -> str | None:
        if size < self.size:
            return f"it was cut from {self.size:,} to {size:,} bytes by another program"
        if size > self.size:
            return f"another program wrote {size - self.size:,} bytes to it"
        return None

    def refuse_changed(self) -> None:
        """A file that others changed is a `ChangedError`."""
        self._refuse(self.difference() or self.damage())

    def _refuse(self, problem: str | None) -> None:
        if problem is not None:
            raise ChangedError(f"{self.path}: {problem}")

    def whole_lines(self) -> Iterator[bytes]:
        """Every line of the open file that is a whole JSON object."""
        for _, line in read_lines(self.path, fd=self._fd, lost=lambda *_: None):
            try:
                whole = line.endswith(b"\n") and type(loads(line)) is dict
            except ValueError:
                continue
            if whole:
                yield line

    def damage(self) -> str | None:
        """What others did to the lines appended here. They are read only if somebody touched the file."""
        self.touched = self.touched or os.fstat(self._fd).st_mtime_ns != self.written_at
        if not self.touched:
            return None
        checksum, place = 0, self.size_before
        while data := os.pread(self._fd, _CHUNK_BYTES, place):
            checksum, place = zlib.crc32(data, checksum), place + len(data)
        return None if checksum == self._checksum else "it was overwritten by another program"

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
        self.size = self.size_before = self._synced = 0
        self._note_times()

    def sync(self) -> None:
        """Ask the disk to keep what was written, against a power cut."""
        size = self.size
        if size != self._synced:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise StorageError(f"{self.path}: the disk does not keep what is written: {error.strerror}") from error
            self._synced = size

    def close(self) -> None:
        """Sync and let go of the lock. Closing twice is fine."""
        if self._fd >= 0:
            try:
                self.sync()
            finally:
                os.close(self._fd)
                self._fd = -1
