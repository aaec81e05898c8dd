"""A file of lines that somebody may still be writing to, cutting or replacing.

Reading continues from a `Place`, always after a whole line; a torn last line waits. A `FileMark` says what the file was
when it was read up to there; `change` compares it with the file as it is now and says in words why what was read
cannot be trusted any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO

from velodrome.errors import InputError
from velodrome.index.lines.parsed_lines import Line
from velodrome.records.jsonl import MAX_LINE_BYTES, READ, loads

CHUNK_BYTES = 4 * 1024 * 1024
_BUFFER_BYTES = 256 * 1024
_HEAD_BYTES = 64 * 1024
_TAIL_BYTES = 4096
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
class FileMark:
    """A file as it was: which one, how long, and hashes of its start and of what stands before a place."""

    device: int = 0
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    head_bytes: int = 0
    head: str = ""
    tail: str = ""


class FollowedFile:
    """A file opened for reading. One that is missing is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._heads: dict[int, str] = {}
        try:
            self._fd = os.open(path, READ)  # which waits for nobody at the other end of a pipe
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

    def mark(self, place: Place) -> FileMark:
        """What to remember of the file, read up to `place`."""
        if self.status is None:
            return FileMark()
        status, head_bytes = self.status, min(_HEAD_BYTES, place.offset)
        head, tail = self._head(head_bytes), self._tail(place)
        return FileMark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, head_bytes, head, tail)

    def _head(self, size: int) -> str:
        if size not in self._heads:
            self._heads[size] = _hash(self.bytes_at(0, size))
        return self._heads[size]

    def _tail(self, place: Place) -> str:
        start = max(0, place.offset - _TAIL_BYTES)
        return _hash(self.bytes_at(start, place.offset - start))

    def change(self, mark: FileMark, place: Place, *, now: float) -> str | None:
        """Why what was read before `place` is not what stands there now, or None if nothing speaks against it."""
        if mark == FileMark():
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


class PlainLines(FollowedFile):
    """A plain JSONL file."""

    def lines(self, place: Place, *, chunk: int = CHUNK_BYTES) -> Iterator[tuple[list[Line], Place]]:
        """The whole lines from `place` on, some at a time, each time with the place behind them."""
        if self._fd < 0:
            return
        offset, number, is_open = place.offset, place.line, False
        if place.open and self.bytes_at(offset, 1) == b"\n":
            offset += 1
        lines: list[Line] = []
        start = offset
        with os.fdopen(os.dup(self._fd), "rb", buffering=_BUFFER_BYTES) as stream:
            stream.seek(offset)
            while not is_open:
                text, length = _whole_line(stream, self.size - offset)
                if not length:
                    break
                number += 1
                is_open = text is not None and not text.endswith(b"\n")
                bom = len(_BOM) if text and not offset and text.startswith(_BOM) else 0
                lines.append((number, offset + bom, 0, text and text[bom:]))
                offset += length
                if offset - start >= chunk:
                    yield lines, Place(offset, 0, number, open=is_open)
                    lines, start = [], offset
        if lines:
            yield lines, Place(offset, 0, number, open=is_open)

    def line_at(self, offset: int, within: int, size: int) -> bytes:
        """One line, by where it was."""
        return self.bytes_at(offset, size)


def _whole_line(stream: IO[bytes], left: int) -> tuple[bytes | None, int]:
    """The next line and its length; None in place of a line that is too long; 0 if there is no whole one yet."""
    text = stream.readline(MAX_LINE_BYTES + 1)[: max(left, 0)]
    if len(text) <= MAX_LINE_BYTES:
        return (text, len(text)) if text.endswith(b"\n") or is_object(text) else (b"", 0)
    length = len(text)
    while not text.endswith(b"\n"):
        text = stream.readline(CHUNK_BYTES)
        length += len(text)
        if not text:
            return b"", 0
    return None, length


def same_file(path: Path, mark: FileMark) -> bool:
    """Whether nobody touched the file since it was marked; one that was missing, and is, is the same."""
    try:
        status = os.stat(path)
    except OSError:
        return mark == FileMark()
    seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return seen == (mark.device, mark.inode, mark.size, mark.mtime_ns)


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def is_object(text: bytes) -> bool:
    """Whether this is a whole JSON object; a part of one never is."""
    try:
        value = loads(text)
    except ValueError:
        return False
    return isinstance(value, dict)
