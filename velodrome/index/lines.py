"""A file of lines, plain or compressed, that may still be written to, cut or replaced.

Reading continues from a `Place`, always after a whole line; an incomplete last line is read later. A file with the same
size and time is unchanged. A longer file with the same start was appended to. Anything else is another file.

The collector writes one zstd frame per line, so any line can be read by itself. A file compressed into a few frames is
read too; a line deep in a long frame is then slow to reach. Damaged bytes are skipped up to the next frame that
decodes, and count as one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING

from velodrome.errors import InputError
from velodrome.records.jsonl import MAX_LINE_BYTES, READ, loads

if TYPE_CHECKING:
    from velodrome.records.zst import Piece

CHUNK_BYTES = 4 * 1024 * 1024
GONE = "the file is gone"
CHANGED = "the file was cut, changed or replaced"
_BUFFER_BYTES = 256 * 1024
_HEAD_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"

# Number from 1, byte offset, place within the text of its zstd frame, the bytes. The bytes are None for a line that is
# too long, and for damage; for damage the place is the number of damaged bytes, as a negative number.
Line = tuple[int, int, int, bytes | None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next line begins: a byte offset, in a `.zst` file of a frame and then `within` its text.

    `line` is the number of lines before it. `open`: the last of them had no line end yet.
    """

    offset: int = 0
    within: int = 0
    line: int = 0
    open: bool = False


@dataclass(frozen=True, slots=True)
class FileMark:
    """An earlier state of a file: its inode, size, time, and a hash of its start."""

    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    head_bytes: int = 0
    head: str = ""


class FollowedFile:
    """A file opened for reading. A missing file is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, READ)  # does not block on a pipe
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
        """Close the file. Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def size(self) -> int:
        """The size of the file when it was opened."""
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
        """The mark of the file, read up to `place`."""
        if self.status is None:
            return FileMark()
        head_bytes = min(_HEAD_BYTES, place.offset)
        return FileMark(self.status.st_ino, self.size, self.status.st_mtime_ns, head_bytes, self._head(head_bytes))

    def change(self, mark: FileMark, place: Place) -> str | None:
        """How the file differs from the one that was read up to `place`; None if it is the same, or only longer."""
        if mark == FileMark():
            return None
        if self.status is None:
            return GONE
        status = self.status
        if (status.st_size, status.st_mtime_ns) == (mark.size, mark.mtime_ns):
            return None
        grew = status.st_size >= place.offset and status.st_size != mark.size
        same = grew and status.st_ino == mark.inode and self._head(mark.head_bytes) == mark.head
        return None if same else CHANGED

    def _head(self, size: int) -> str:
        return blake2b(self.bytes_at(0, size), digest_size=16).hexdigest()


class PlainLines(FollowedFile):
    """A plain JSONL file."""

    def lines(self, place: Place, *, chunk: int = CHUNK_BYTES) -> Iterator[tuple[list[Line], Place]]:
        """The whole lines from `place` on, some at a time, each time with the place after them."""
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


def _whole_line(stream: IO[bytes], available: int) -> tuple[bytes | None, int]:
    """The next line and its length. The line is None if it is too long; the length is 0 if it is incomplete."""
    text = stream.readline(MAX_LINE_BYTES + 1)[: max(available, 0)]
    if len(text) <= MAX_LINE_BYTES:
        return (text, len(text)) if text.endswith(b"\n") or is_object(text) else (b"", 0)
    length = len(text)
    while not text.endswith(b"\n"):
        text = stream.readline(CHUNK_BYTES)
        length += len(text)
        if not text:
            return b"", 0
    return None, length


def is_object(text: bytes) -> bool:
    """Whether this is a whole JSON object. A part of an object never is."""
    try:
        value = loads(text)
    except ValueError:
        return False
    return isinstance(value, dict)


class ZstLines(FollowedFile):
    """A `.jsonl.zst` file."""

    def lines(self, place: Place, *, chunk: int = CHUNK_BYTES) -> Iterator[tuple[list[Line], Place]]:
        """The whole lines from `place` on, some at a time, each time with the place after them."""
        lines: list[Line] = []
        size, end = 0, place
        damage: InputError | None = None
        try:
            for line, end in self._walk(place):
                lines.append(line)
                size += len(line[3] or b"")
                if size >= chunk:
                    yield lines, end
                    lines, size = [], 0
        except InputError as error:
            damage = error
        if lines:
            yield lines, end  # the lines before a damaged frame
        if damage:
            raise damage

    def line_at(self, offset: int, within: int, size: int) -> bytes:
        """One line, by where it was."""
        data = b""
        for piece in self._pieces(offset):
            data += piece.text[max(0, within - piece.at) :] if piece.frame == offset else piece.text
            if len(data) >= size:
                break
        return data[:size]

    def _walk(self, place: Place) -> Iterator[tuple[Line, Place]]:
        """Every whole line with the place after it."""
        # the start of a line that continues in the next piece, and its place
        unfinished, start, too_long = b"", (place.offset, place.within), False
        skip, number, opened = place.within, place.line, place.open
        end: int | None = None
        for frame, at, text, end, damaged in self._pieces(place.offset):
            if damaged and end is not None:
                number += 1
                yield (number, frame, -damaged, None), Place(end, 0, number)
                unfinished, too_long, skip, opened = b"", False, 0, False
                continue
            skipped = min(skip, len(text))
            text, at, skip = text[skipped:], at + skipped, skip - skipped
            position = 0
            if opened and text:
                position, opened = (1 if text[:1] == b"\n" else 0), False
            while (line_end := text.find(b"\n", position) + 1) > 0:
                number += 1
                line = unfinished + text[position:line_end]
                if not unfinished and not too_long:
                    start = (frame, at + position)
                after = (end, 0) if end is not None and line_end == len(text) else (frame, at + line_end)
                too_long = too_long or len(line) > MAX_LINE_BYTES
                yield (number, *start, None if too_long else line), Place(*after, number)
                unfinished, too_long, position = b"", False, line_end
            if position < len(text):
                if not unfinished and not too_long:
                    start = (frame, at + position)
                unfinished += text[position:]
                if len(unfinished) > MAX_LINE_BYTES:
                    unfinished, too_long = b"", True
        if unfinished and end is not None and is_object(unfinished):
            yield (number + 1, *start, unfinished), Place(end, 0, number + 1, open=True)

    def _pieces(self, offset: int) -> Iterator[Piece]:
        from velodrome.records.zst import pieces

        return pieces(self.path, self.bytes_at, self.size, start=offset)


def open_lines(path: Path) -> PlainLines | ZstLines:
    """A file of lines, plain or compressed."""
    return ZstLines(path) if path.suffix == ".zst" else PlainLines(path)
