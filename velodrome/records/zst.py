"""Zstandard files of many small frames: read as one stream, cut at the last whole frame.

A reader that takes damaged files continues at the next frame that decodes, and reports the gap.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from velodrome.errors import InputError

MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 64 * 1024
PIECE_BYTES = 1024  # decompressed at once: however a frame was made, no more than 32 MB come out
_MOST_TRIED_BYTES = 256 * 1024 * 1024  # in frames that turn out to be none: a file can be made of such
_compressor = zstandard.ZstdCompressor(
    level=3, write_checksum=True
)  # without one a bad byte may decode to another text


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of a file that cannot be decompressed and are passed over."""

    start: int
    size: int


def pack(line: bytes) -> bytes:
    """One line as one frame."""
    data: bytes = _compressor.compress(line)
    return data


def next_frame(read: Callable[[int, int], bytes], start: int) -> int | None:
    """Where from `start` on a frame begins that decodes to its end; `read` is given an offset and a size."""
    left = _MOST_TRIED_BYTES
    while left > 0 and (data := read(start, _CHUNK_BYTES)):
        at = data.find(MAGIC)
        if at < 0:
            start += max(len(data) - len(MAGIC) + 1, 1)
            continue
        whole, tried = _decodes(read, start + at)
        if whole:
            return start + at
        left -= tried
        start += at + 1
    return None


def _decodes(read: Callable[[int, int], bytes], start: int) -> tuple[bool, int]:
    """Whether a whole frame begins here, and how many bytes were looked at."""
    frame, at = zstandard.ZstdDecompressor().decompressobj(), start
    while not frame.eof and (data := read(at, PIECE_BYTES)):
        at += len(data)
        try:
            frame.decompress(data)
        except zstandard.ZstdError:
            return False, at - start
    return frame.eof, at - start


def _unpacked(stream: IO[bytes], start: int) -> Iterator[tuple[bytes, int, int]]:
    """Decompressed bytes, with the offset behind the last whole frame so far and the offset read up to."""
    whole = position = start
    held = b""  # the last byte waits for the end of its frame: a line is not whole before its checksum
    frame = zstandard.ZstdDecompressor().decompressobj()
    stream.seek(start)
    while chunk := stream.read(_CHUNK_BYTES):
        at = 0
        while data := chunk[at : at + PIECE_BYTES]:
            piece = held + frame.decompress(data)
            piece, held = (piece, b"") if frame.eof else (piece[:-1], piece[-1:])
            used = len(data) - len(frame.unused_data)
            at, position = at + used, position + used
            if frame.eof:
                whole = position
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield piece, whole, position


def _pieces(path: Path, stream: IO[bytes], *, damaged: bool) -> Iterator[tuple[bytes, int, int] | Gap]:
    """As `_unpacked`, with a gap where bytes are damaged; unless those are `damaged`, that is an `InputError`."""

    def read(at: int, size: int) -> bytes:
        stream.seek(at)
        return stream.read(size)

    start = 0
    while True:
        whole = position = start
        problem: Exception | None = None
        try:
            for piece, whole, position in _unpacked(stream, start):
                yield piece, whole, position
        except zstandard.ZstdError as error:
            problem = error
        if problem is None and (not damaged or whole == position):
            return
        resume = next_frame(read, whole + 1) if damaged else None
        if resume is None and problem is None:
            return  # torn, and not damaged
        if not damaged or (resume is None and not whole):
            raise InputError(f"{path}: not a zstd file from byte {whole} on: {problem}") from problem
        start = stream.seek(0, io.SEEK_END) if resume is None else resume
        yield Gap(whole, start - whole)


def zst_lines(path: Path, stream: IO[bytes], *, most: int, damaged: bool) -> Iterator[bytes | Gap | None]:
    """Every line with its end; None at last if the file is cut short. With `damaged` gaps are passed over.

    Of a line longer than `most` no more than that and a piece is held. A line that a gap cuts is part of the gap.
    """
    line = bytearray()
    torn = False
    for piece in _pieces(path, stream, damaged=damaged):
        if isinstance(piece, Gap):
            line.clear()
            yield piece
            continue
        text, whole, position = piece
        torn = whole < position
        first, *rest = text.split(b"\n")
        line += first if len(line) <= most else b""
        for part in rest:
            yield bytes(line) + b"\n"
            line = bytearray(part)
    if torn and len(line) <= most:
        yield None
    elif line:
        yield bytes(line)


def whole_frames(path: Path) -> tuple[int, bool]:
    """The offset behind the last whole frame, and whether the text ends a line there; damage is passed over."""
    end, last, line_ended = 0, b"\n", True
    with path.open("rb") as stream:
        for piece in _pieces(path, stream, damaged=True):
            if isinstance(piece, Gap):
                if last != b"\n":  # the line that it cuts ends with it
                    end, last, line_ended = piece.start + piece.size, b"\n", True
                continue
            text, whole, _ = piece
            last = text[-1:] or last
            if whole > end:
                end, line_ended = whole, last == b"\n"
    return end, line_ended
