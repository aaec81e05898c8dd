"""Zstandard files of many small frames: read as one stream, cut at the last whole frame.

Where bytes are damaged, a reader that is told to goes on at the next frame that decodes, and keeps where the gap is.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from velodrome.errors import InputError

MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 64 * 1024
_MOST_TRIED_BYTES = 256 * 1024 * 1024  # in frames that turn out to be none: a file can be made of such
_compressor = zstandard.ZstdCompressor(
    level=3, write_checksum=True
)  # without one a bad byte may decode to another text


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of a file that were passed over. The text goes on at `at`; `cut`: the line that ends there is not whole."""

    start: int
    size: int
    at: int = 0
    cut: bool = False


def pack(line: bytes) -> bytes:
    """One line as one frame."""
    data: bytes = _compressor.compress(line)
    return data


def next_frame(read: Callable[[int, int], bytes], start: int) -> int | None:
    """Where from `start` on a frame begins that decodes to its end; `read` is given an offset and a size."""
    left = _MOST_TRIED_BYTES
    while left > 0 and (data := read(start, _CHUNK_BYTES)):
        found = data.find(MAGIC)
        if found < 0:
            start += max(len(data) - len(MAGIC) + 1, 1)
            continue
        whole, tried = _decodes(read, start + found)
        if whole:
            return start + found
        left -= tried
        start += found + 1
    return None


def _decodes(read: Callable[[int, int], bytes], start: int) -> tuple[bool, int]:
    """Whether a whole frame begins here, and how many bytes were looked at."""
    frame, at = zstandard.ZstdDecompressor().decompressobj(), start
    while not frame.eof:
        data = read(at, _CHUNK_BYTES)
        at += len(data)
        try:
            frame.decompress(data)
        except zstandard.ZstdError:
            return False, at - start
        if not data:
            break
    return frame.eof, at - start


def _unpacked(stream: IO[bytes], start: int) -> Iterator[tuple[bytes, int, int]]:
    """Decompressed bytes, with the offset behind the last whole frame so far and the offset read up to."""
    whole = position = start
    held = b""  # the last byte waits for the end of its frame: a line is not whole before its checksum
    frame = zstandard.ZstdDecompressor().decompressobj()
    stream.seek(start)
    data = stream.read(_CHUNK_BYTES)
    while data:
        piece = held + frame.decompress(data)
        piece, held = (piece, b"") if frame.eof else (piece[:-1], piece[-1:])
        rest = frame.unused_data if frame.eof else b""
        position += len(data) - len(rest)
        if frame.eof:
            whole = position
            frame = zstandard.ZstdDecompressor().decompressobj()
        yield piece, whole, position
        data = rest or stream.read(_CHUNK_BYTES)


def _pieces(path: Path, stream: IO[bytes], gaps: list[Gap] | None = None) -> Iterator[tuple[bytes, int, int]]:
    """As `_unpacked`. With `gaps` damage is passed over and told there; a line it cuts gets its end."""
    start = given = 0
    last = b"\n"
    with stream:

        def read(at: int, size: int) -> bytes:
            stream.seek(at)
            return stream.read(size)

        while True:
            whole = position = start
            problem: Exception | None = None
            try:
                for piece, whole, position in _unpacked(stream, start):
                    last, given = piece[-1:] or last, given + len(piece)
                    yield piece, whole, position
            except zstandard.ZstdError as error:
                problem = error
            if problem is None and (gaps is None or whole == position):
                return
            resume = None if gaps is None else next_frame(read, whole + 1)
            if resume is None and problem is None:
                return  # torn, and not damaged
            if gaps is None or (resume is None and not whole):
                raise InputError(f"{path}: not a zstd file from byte {whole} on: {problem}") from problem
            start = stream.seek(0, io.SEEK_END) if resume is None else resume
            cut = last != b"\n"
            gaps.append(Gap(whole, start - whole, given + cut, cut))
            if cut:
                last, given = b"\n", given + 1
                yield b"\n", start, start


def whole_frames(path: Path) -> tuple[int, bool]:
    """The offset behind the last whole frame, and whether the text ends a line there; damage is passed over."""
    end, last, line_ended = 0, b"\n", True
    for piece, whole, _ in _pieces(path, path.open("rb"), []):
        last = piece[-1:] or last
        if whole > end:
            end, line_ended = whole, last == b"\n"
    return end, line_ended


class _Stream(io.RawIOBase):
    def __init__(self, pieces: Iterator[tuple[bytes, int, int]], source: IO[bytes]) -> None:
        self._pieces = pieces
        self._source = source
        self._left = memoryview(b"")
        self.torn = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            text, whole, position = piece
            self._left, self.torn = memoryview(text), whole < position
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


class ZstReader(io.BufferedReader):
    """The decompressed bytes of a file, as one stream. With `damaged` it passes over what is; `gaps` say where."""

    def __init__(self, path: Path, *, damaged: bool = False, stream: IO[bytes] | None = None) -> None:
        self.gaps: list[Gap] = []
        source = stream or path.open("rb")
        self._stream = _Stream(_pieces(path, source, self.gaps if damaged else None), source)
        super().__init__(self._stream, _CHUNK_BYTES)

    @property
    def torn(self) -> bool:
        """Whether what was read last is of a frame that is not whole; at the end, whether the file is cut short."""
        return self._stream.torn
