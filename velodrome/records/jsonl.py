"""JSON lines that are whole or absent, plain or `.zst`.

Reading streams and never holds more than one line. Appending is one `write(2)` a line under a lock on the file
itself; a write the disk refuses is taken back, so that what is in the file is always whole lines. In a `.zst` file
each line is a compressed frame of its own, which any zstd tool reads as one stream.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from velodrome.errors import InputError, StorageError, VelodromeError
from velodrome.records.lenient import loads

if TYPE_CHECKING:
    from velodrome.records.zst import Gap

Lost = Callable[[int, str, bool], None]  # told of a line: its number, why, and whether it is only not whole yet
Passed = Callable[[int, int, int], None]  # told of damaged bytes: the number they count as, where they begin, how many

MAX_LINE_BYTES = 32 * 1024 * 1024
DAMAGED = "cannot be decompressed"
_CHUNK_BYTES = 1024 * 1024


class LongLineError(InputError):
    """A line beyond `MAX_LINE_BYTES`; a parser fed with it would take many times its size in memory."""


def read_lines(
    path: Path,
    *,
    start: int = 0,
    end: int | None = None,
    lost: Lost | None = None,
    passed: Passed | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, with its number from 1. `start` and `end` are byte offsets of a plain file.

    A `.zst` file that is cut short is an `InputError`, and so is a line that is too long. With `lost` such lines are
    passed over and told. So are damaged bytes of a `.zst` file, to `passed` where it is given; however many lines
    stood there, they count as one.
    """
    try:
        with open_bytes(path, damaged=lost is not None) as stream:
            if start:
                stream.seek(start)
            position, number = start, 0
            gaps: list[Gap] = getattr(stream, "gaps", [])
            while end is None or position < end:
                line = stream.readline(MAX_LINE_BYTES + 1)
                if gaps and lost is not None:
                    number, cut = _tell_gaps(gaps, position, position + len(line), number, lost, passed)
                    if cut:
                        position += len(line)
                        continue
                if line[-1:] != b"\n" and len(line) <= MAX_LINE_BYTES and getattr(stream, "torn", False):
                    if lost is not None:
                        lost(number + 1, "cut short", True)
                        return
                    raise InputError(f"{path}: cut short after line {number}; the rest of the file is missing")
                if not line:
                    return
                number += 1
                position += len(line)
                if len(line) > MAX_LINE_BYTES:
                    if lost is None:
                        raise LongLineError(f"{path}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB")
                    position += _pass_over(stream, line)
                    lost(number, f"longer than {MAX_LINE_BYTES // 2**20} MiB", False)
                    continue
                if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                    line = line[3:]
                if not line.isspace():
                    yield number, line
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _tell_gaps(
    gaps: list[Gap], start: int, end: int, number: int, lost: Lost, passed: Passed | None
) -> tuple[int, bool]:
    """Tell of the gaps before the line that is between two offsets. The number they count up to, and if one cuts it."""
    cut = False
    while gaps and (gaps[0].at <= start or (gaps[0].cut and gaps[0].at == end)):
        gap = gaps.pop(0)
        number += 1
        cut = gap.at > start
        if passed is not None:
            passed(number, gap.start, gap.size)
        else:
            lost(number, f"{gap.size:,} bytes from byte {gap.start:,} on {DAMAGED}", False)
    return number, cut


def _pass_over(stream: IO[bytes], line: bytes) -> int:
    """Read to the end of a line of which this is the start; so many bytes."""
    passed = 0
    while line and line[-1:] != b"\n":
        line = stream.readline(_CHUNK_BYTES)
        passed += len(line)
    return passed


def open_bytes(path: Path, *, damaged: bool = False) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in `.zst`; with `damaged` as far as they can be."""
    if path.suffix != ".zst":
        return path.open("rb", buffering=_CHUNK_BYTES)
    from velodrome.records.zst import ZstReader

    return ZstReader(path, damaged=damaged)


class Appender:
    """The one writer of a JSONL file: locked, mended, then appended to.

    `notes` says what was mended. Another process that holds the file is an `InputError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise InputError(
                f"{path}: another collection is writing to it; wait for it, or give another output file"
            ) from error
        self._pack = None
        if path.suffix == ".zst":
            from velodrome.records.zst import pack

            self._pack = pack
        try:
            self.size = self._mend()
        except VelodromeError:
            os.close(self._fd)
            raise
        self._synced = self.size

    def _mend(self) -> int:
        self.size_found = size = os.fstat(self._fd).st_size
        if size == 0:
            return 0
        whole = self._whole_lines(size) if self._pack is None else self._whole_frames(self._pack)
        if whole < size:
            self._truncate(whole)
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
        self._truncate(whole)
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
        """Add one line (with its line end), or none of it."""
        data = line if self._pack is None else self._pack(line)
        self._write(data, self.size)
        self.size += len(data)

    def _write(self, data: bytes, before: int) -> None:
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            self._truncate(before)
            raise StorageError(
                f"{self.path}: {error.strerror or error}; everything finished before is in the file, "
                "and the same command goes on from there"
            ) from error

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def clear(self) -> None:
        """Empty the file."""
        self._truncate(0)
        self.size = self._synced = 0

    def sync(self) -> None:
        """Ask the disk to keep what was written, against a power cut."""
        size = self.size
        if size != self._synced:
            os.fsync(self._fd)
            self._synced = size

    def close(self) -> None:
        """Sync and let go of the lock. Closing twice is fine."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1
