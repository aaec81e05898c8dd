"""Zstandard files of many small frames: read piece by piece, cut at the last whole frame.

The collector writes one frame per line. A file that was compressed again, in one frame or a few, is read as well.
Damaged bytes are passed over up to the next frame that decodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from velodrome.errors import InputError, needs_extra

with needs_extra("a .zst file", "zst"):
    import zstandard as zstandard

MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 256 * 1024
_PIECE_BYTES = 1024  # decompressed at once: however a frame was made, no more than 32 MB come out
_compressor = zstandard.ZstdCompressor(
    level=3, write_checksum=True
)  # without one a bad byte may decode to another text

Read = Callable[[int, int], bytes]  # from an offset, up to so many bytes


class Piece(NamedTuple):
    """A part of a frame's text, or damaged bytes."""

    frame: int  # where the frame, or the damage, begins in the file
    at: int  # where the part begins in the frame's text
    text: bytes
    end: int | None  # where the frame ends, of its last part
    damaged: int = 0  # how many bytes cannot be decompressed


def pack(line: bytes) -> bytes:
    """One line as one frame."""
    data: bytes = _compressor.compress(line)
    return data


def pieces(path: Path, read: Read, size: int, *, start: int = 0, strict: bool = False) -> Iterator[Piece]:
    """The text of every frame from `start` on. Damage is a piece, or with `strict` an `InputError`.

    A torn last frame has no piece with an `end`. A file that is no zstd at all is an `InputError`.
    """
    window = _ReadAhead(read)
    while start < size:
        end, problem = None, None
        try:
            for piece in _frame(window, start):
                end = piece.end
                yield piece
        except zstandard.ZstdError as error:
            problem = InputError(f"{path}: not a zstd file from byte {start} on: {error}")
        if end is None:
            if strict and problem is not None:
                raise problem
            end = None if strict else _next_frame(window, read, start + 1)
            if end is None and problem is None:
                return  # torn
            if end is None and not start and problem is not None:
                raise problem
            end = end or size
            yield Piece(start, 0, b"", end, end - start)
        start = end


class _ReadAhead:
    """The bytes of a file from an offset on, a few at a time, read in larger chunks."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start, self._data = 0, b""

    def __call__(self, offset: int) -> bytes:
        if not self._start <= offset < self._start + len(self._data):
            self._start, self._data = offset, self._read(offset, _CHUNK_BYTES)
        return self._data[offset - self._start : offset - self._start + _PIECE_BYTES]


def _frame(window: _ReadAhead, start: int) -> Iterator[Piece]:
    """One frame. Its last byte is held back until the checksum is right: a line is not whole before that."""
    frame, place, at, held = zstandard.ZstdDecompressor().decompressobj(), start, 0, b""
    while not frame.eof and (data := window(place)):
        text = held + frame.decompress(data)
        place += len(data) - len(frame.unused_data)
        if frame.eof:
            yield Piece(start, at, text, place)
        else:
            yield Piece(start, at, text[:-1], None)
            at, held = at + len(text[:-1]), text[-1:]


def _next_frame(window: _ReadAhead, read: Read, start: int) -> int | None:
    """Where from `start` on a frame begins that decodes to its end."""
    while data := read(start, _CHUNK_BYTES):
        at = data.find(MAGIC)
        if at < 0:
            start += max(len(data) - len(MAGIC) + 1, 1)
            continue
        start += at
        with suppress(zstandard.ZstdError):
            if any(piece.end is not None for piece in _frame(window, start)):
                return start
        start += 1
    return None


def _pieces_of(path: Path, stream: IO[bytes], *, strict: bool) -> Iterator[Piece]:
    def read(at: int, size: int) -> bytes:
        return os.pread(stream.fileno(), size, at)

    return pieces(path, read, os.fstat(stream.fileno()).st_size, strict=strict)


def zst_lines(path: Path, stream: IO[bytes], *, most: int, damaged: bool) -> Iterator[bytes | Piece | None]:
    """Every line with its end; None at last if the file is cut short. With `damaged` damage is passed over.

    Of a line longer than `most` no more than that and a piece is held. A line that is cut by damage is part of it.
    """
    line = bytearray()
    end: int | None = 0
    for piece in _pieces_of(path, stream, strict=not damaged):
        if piece.damaged:
            line.clear()
            yield piece
            continue
        end = piece.end
        first, *rest = piece.text.split(b"\n")
        line += first if len(line) <= most else b""
        for part in rest:
            yield bytes(line) + b"\n"
            line = bytearray(part)
    if end is None and len(line) <= most:
        yield None
    elif line:
        yield bytes(line)


def whole_frames(path: Path) -> tuple[int, bool]:
    """The offset behind the last whole frame, and whether the text ends a line there; damage is passed over."""
    end, last, line_ended = 0, b"\n", True
    with path.open("rb") as stream:
        for piece in _pieces_of(path, stream, strict=False):
            if piece.damaged:
                if last != b"\n":  # the line that it cuts ends with it
                    end, last, line_ended = piece.frame + piece.damaged, b"\n", True
                continue
            last = piece.text[-1:] or last
            if piece.end is not None:
                end, line_ended = piece.end, last == b"\n"
    return end, line_ended
