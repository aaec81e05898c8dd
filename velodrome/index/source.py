"""A file of lines that somebody may still be writing to, cutting or replacing.

Reading goes on from a `Place`, always behind a whole line; a torn last line waits. A `Mark` says what the file was
when it was read up to there; `change` compares it with the file as it is now and says in words why what was read
cannot be trusted any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from velodrome.errors import InputError
from velodrome.index.batch import Line
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.lenient import loads

CHUNK_BYTES = 4 * 1024 * 1024
_HEAD_BYTES = 64 * 1024
_TAIL_BYTES = 4096
_SAMPLE_BYTES = 16 * 1024
_SHORT_LINE_BYTES = 128
_SETTLED_S = 2.0  # a file touched later than this may be in the middle of a write
_BOM = b"\xef\xbb\xbf"
GONE = "the file is gone"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next line begins: a byte offset, in a `.zst` file of a frame and then `within` its text.

    `line` lines stand before it. `open`: the last of them had no line end yet.
    """

    offset: int = 0
    within: int = 0
    line: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A file as it was: which one, how long, and hashes of its start and of what stands before a place."""

    device: int = 0
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    head_bytes: int = 0
    head: str = ""
    tail: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """Whole lines: `size` bytes from `place`. `long`: one line beyond what is taken, to be passed over."""

    place: Place
    size: int
    long: bool = False


class Source:
    """A file opened for reading. One that is missing is empty. `fd`: take this open file and not the path."""

    def __init__(self, path: Path, fd: int | None = None) -> None:
        self.path = path
        self._heads: dict[int, str] = {}
        self._buffer = bytearray()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if fd is None else fd
        except FileNotFoundError:
            self._fd = -1
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            self.status = os.fstat(self._fd) if self._fd >= 0 else None
            if self._fd >= 0:
                os.pread(self._fd, 1, 0)  # a directory opens, but does not read
        except OSError as error:
            self.close()
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Let go of the file. Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def fd(self) -> int:
        """The open file, for a process that shall read the same one; -1 if there is none."""
        return self._fd

    @property
    def size(self) -> int:
        """How long the file was when it was opened."""
        return self.status.st_size if self.status else 0

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        parts = []
        while size > 0 and self._fd >= 0:
            part = os.pread(self._fd, size, offset)
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _filled(self, offset: int, size: int) -> tuple[bytearray, int]:
        """A buffer with these bytes, and how many they are. It is used again: a long file needs no new memory."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view, filled = memoryview(self._buffer), 0
        while filled < size and self._fd >= 0:
            more = _read_into(self._fd, view[filled:size], offset + filled)
            if not more:
                break
            filled += more
        return self._buffer, filled

    def mark(self, place: Place) -> Mark:
        """What to remember of the file, read up to `place`."""
        if self.status is None:
            return Mark()
        status, head_bytes = self.status, min(_HEAD_BYTES, place.offset)
        head, tail = self._head(head_bytes), self._tail(place)
        return Mark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, head_bytes, head, tail)

    def _head(self, size: int) -> str:
        if size not in self._heads:
            self._heads[size] = _hash(self.bytes_at(0, size))
        return self._heads[size]

    def _tail(self, place: Place) -> str:
        start = max(0, place.offset - _TAIL_BYTES)
        return _hash(self.bytes_at(start, place.offset - start))

    def change(self, mark: Mark, place: Place, *, now: float) -> str | None:
        """Why what was read before `place` is not what stands there now, or None if nothing speaks against it."""
        if mark == Mark():
            return None
        if self.status is None:
            return GONE
        status = self.status
        if status.st_size < place.offset:
            return f"the file was cut from {mark.size} to {status.st_size} bytes"
        same = (status.st_dev, status.st_ino) == (mark.device, mark.inode)
        untouched = (status.st_size, status.st_mtime_ns) == (mark.size, mark.mtime_ns)
        if not same and not untouched:
            return "the file was replaced by another"
        if self._head(mark.head_bytes) != mark.head:
            return "the start of the file is another"
        if self._tail(place) != mark.tail:
            return "the file was written over"
        settled = now - status.st_mtime > _SETTLED_S
        if status.st_size == mark.size and status.st_mtime_ns != mark.mtime_ns and settled:
            return "the file was changed without growing"
        return None


class Lines(Source):
    """A plain JSONL file."""

    def lines(self, place: Place, *, chunk: int = CHUNK_BYTES) -> Iterator[tuple[list[Line], Place]]:
        """The whole lines from `place` on, some at a time, each time with the place behind them.

        They are good until the next ones are asked for.
        """
        for part in self.slices(place, chunk=chunk):
            yield self.lines_of(part)

    def slices(self, place: Place, *, chunk: int = CHUNK_BYTES) -> Iterator[Slice]:
        """The whole lines from `place` on, some megabytes at a time."""
        if place.open and self.bytes_at(place.offset, 1) == b"\n":
            place = Place(place.offset + 1, 0, place.line)
        while place.offset < self.size:
            size, lines = self._extent(place.offset, chunk)
            if size <= 0:
                yield from self._last(place)
                return
            yield Slice(place, size, long=lines == 1 and size > MAX_LINE_BYTES)
            place = Place(place.offset + size, 0, place.line + lines)

    def _extent(self, offset: int, step: int) -> tuple[int, int]:
        """How many bytes from here are whole lines, and how many lines; (0, 0) if there is not one."""
        taken = 0
        while offset + taken < self.size:
            chunk, size = self._filled(offset + taken, min(step, self.size - offset - taken))
            if not size:
                break
            end = chunk.find(b"\n", 0, size) if taken else chunk.rfind(b"\n", 0, size)
            if end >= 0:
                return taken + end + 1, 1 if taken else _line_ends(chunk, size)
            taken += size
        return 0, 0

    def _last(self, place: Place) -> Iterator[Slice]:
        """The last line, if it is whole but for its line end."""
        size = self.size - place.offset
        if size <= MAX_LINE_BYTES and is_object(self.bytes_at(place.offset, size)):
            yield Slice(place, size)

    def lines_of(self, part: Slice) -> tuple[list[Line], Place]:
        """The lines of a slice, and the place behind them. A file that shrank meanwhile gives fewer."""
        if part.long:
            number = part.place.line + 1
            return [(number, part.place.offset, 0, None)], Place(part.place.offset + part.size, 0, number)
        text, size = self._filled(part.place.offset, part.size)
        found: list[Line] = []
        view, line, start = memoryview(text), part.place.line, 0
        while (end := text.find(b"\n", start, size) + 1) > 0:
            line += 1
            found.append((line, part.place.offset + start, 0, view[start:end]))
            start = end
        opened = part.size == size > start and is_object(bytes(view[start:size]))
        if opened:
            line += 1
            found.append((line, part.place.offset + start, 0, view[start:size]))
            start = size
        if part.place.offset == 0 and found and text.startswith(_BOM):
            found[0] = (1, len(_BOM), 0, (found[0][3] or b"")[len(_BOM) :])
        return found, Place(part.place.offset + start, 0, line, open=opened)

    def line_at(self, offset: int, within: int, size: int) -> bytes:
        """One line, by where it was."""
        return self.bytes_at(offset, size)


def same_file(path: Path, mark: Mark) -> bool:
    """Whether nobody touched the file since it was marked; one that was missing, and is, is the same."""
    try:
        status = os.stat(path)
    except OSError:
        return mark == Mark()
    told = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return told == (mark.device, mark.inode, mark.size, mark.mtime_ns)


def _line_ends(text: bytearray, size: int) -> int:
    """How many lines end here. Going from one to the next is far quicker than `count`, unless they are very short."""
    if text.count(b"\n", 0, min(size, _SAMPLE_BYTES)) > _SAMPLE_BYTES // _SHORT_LINE_BYTES:
        return text.count(b"\n", 0, size)
    found = at = 0
    while (at := text.find(b"\n", at, size) + 1) > 0:
        found += 1
    return found


def _read_into(fd: int, room: memoryview, offset: int) -> int:
    """The bytes at an offset; the file may be open in other processes too, so its own position is left alone."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [room], offset)
    data = os.pread(fd, len(room), offset)
    room[: len(data)] = data
    return len(data)


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def is_object(text: bytes) -> bool:
    """Whether this is a whole JSON object; a part of one never is."""
    try:
        value = loads(text)
    except ValueError:
        return False
    return isinstance(value, dict)
