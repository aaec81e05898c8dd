"""Zstandard files of many small frames: reads them in pieces, and finds the last whole frame.

The collector writes one frame per line. A file that was compressed again with fewer frames can be read, too. Damaged
bytes are skipped up to the next frame that can be decoded.
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
_MOST_TRIED_BYTES = 256 * 1024 * 1024  # in false frames: a file can be made of them
_PIECE_BYTES = 1024  # compressed bytes per step: they expand to at most 32 MB
_compressor = zstandard.ZstdCompressor(
    level=3, write_checksum=True
)  # without a checksum a damaged byte may decode to another text

Read = Callable[[int, int], bytes]  # (offset, size)


class Piece(NamedTuple):
    """A part of the text of a frame, or damaged bytes."""

    frame: int  # where the frame, or the damage, begins in the file
    at: int  # the offset of the part in the frame's text
    text: bytes
    end: int | None  # where the frame ends; None if more parts follow
    damaged: int = 0  # how many bytes cannot be decompressed


def pack(line: bytes) -> bytes:
    """One line as one frame."""
    data: bytes = _compressor.compress(line)
    return data


def pieces(path: Path, read: Read, size: int, *, start: int = 0, strict: bool = False) -> Iterator[Piece]:
    """The text of every frame from `start` on. Damage is a piece, or with `strict` an `InputError`.

    A torn last frame has no piece with an `end`. A file that is not zstd at all is an `InputError`.
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
    """Returns small steps of a file and reads it in larger chunks."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start, self._data = 0, b""

    def __call__(self, offset: int) -> bytes:
        if not self._start <= offset < self._start + len(self._data):
            self._start, self._data = offset, self._read(offset, _CHUNK_BYTES)
        return self._data[offset - self._start : offset - self._start + _PIECE_BYTES]


def _frame(window: _ReadAhead, start: int) -> Iterator[Piece]:
    """The pieces of one frame. Its last byte comes after the checksum matches: until then a line is not whole."""
    frame, offset, text_offset, last_byte = zstandard.ZstdDecompressor().decompressobj(), start, 0, b""
    while not frame.eof and (data := window(offset)):
        text = last_byte + frame.decompress(data)
        offset += len(data) - len(frame.unused_data)
        if frame.eof:
            yield Piece(start, text_offset, text, offset)
        else:
            yield Piece(start, text_offset, text[:-1], None)
            text_offset, last_byte = text_offset + len(text[:-1]), text[-1:]


def _next_frame(window: _ReadAhead, read: Read, start: int) -> int | None:
    """The start of the next frame, from `start` on, that decodes completely. Gives up after many false starts."""
    tried = 0
    while tried < _MOST_TRIED_BYTES and (data := read(start, _CHUNK_BYTES)):
        index = data.find(MAGIC)
        if index < 0:
            start += max(len(data) - len(MAGIC) + 1, 1)
            continue
        start += index
        with suppress(zstandard.ZstdError):
            for piece in _frame(window, start):
                tried += len(piece.text) + _PIECE_BYTES
                if piece.end is not None:
                    return start
        tried += _PIECE_BYTES
        start += 1
    return None


def _pieces_of(path: Path, stream: IO[bytes], *, strict: bool) -> Iterator[Piece]:
    def read(at: int, size: int) -> bytes:
        return os.pread(stream.fileno(), size, at)

    return pieces(path, read, os.fstat(stream.fileno()).st_size, strict=strict)


def zst_lines(path: Path, stream: IO[bytes], *, most: int, damaged: bool) -> Iterator[bytes | Piece | None]:
    """Every line with its end; a final None if the file is cut short. With `damaged`, yield damage instead of raising.

    At most `most` bytes and one piece of a long line are held. A line that damage cuts counts as damaged.
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
    """The end of the last whole frame, and whether a line ends there. Damage is skipped."""
    end, last, line_ended = 0, b"\n", True
    with path.open("rb") as stream:
        for piece in _pieces_of(path, stream, strict=False):
            if piece.damaged:
                if last != b"\n":  # the damage ends the line that it cuts
                    end, last, line_ended = piece.frame + piece.damaged, b"\n", True
                continue
            last = piece.text[-1:] or last
            if piece.end is not None:
                end, line_ended = piece.end, last == b"\n"
    return end, line_ended
