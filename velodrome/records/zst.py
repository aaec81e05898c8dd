"""Zstandard files of many small frames: read as one stream, cut at the last whole frame."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from velodrome.errors import InputError

_CHUNK_BYTES = 64 * 1024
_compressor = zstandard.ZstdCompressor(level=3)


def pack(line: bytes) -> bytes:
    """One line as one frame."""
    data: bytes = _compressor.compress(line)
    return data


def _pieces(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """Decompressed bytes, with the offset behind the last whole frame so far and the offset read up to."""
    whole = position = 0
    frame = zstandard.ZstdDecompressor().decompressobj()
    with path.open("rb") as stream:
        data = stream.read(_CHUNK_BYTES)
        while data:
            try:
                piece = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise InputError(f"{path}: not a zstd file from byte {whole} on: {error}") from error
            rest = frame.unused_data if frame.eof else b""
            position += len(data) - len(rest)
            if frame.eof:
                whole = position
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield piece, whole, position
            data = rest or stream.read(_CHUNK_BYTES)


def whole_frames(path: Path) -> tuple[int, bool]:
    """The offset behind the last whole frame, and whether the text ends a line there."""
    end, last, line_ended = 0, b"\n", True
    for piece, whole, _ in _pieces(path):
        last = piece[-1:] or last
        if whole > end:
            end, line_ended = whole, last == b"\n"
    return end, line_ended


class _Stream(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._pieces = _pieces(path)
        self._left = memoryview(b"")
        self.torn = False

    def readable(self) -> bool:
        return True

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
    """The decompressed bytes of a file, as one stream."""

    def __init__(self, path: Path) -> None:
        with path.open("rb"):
            pass  # a missing file is said now, not at the first read
        self._stream = _Stream(path)
        super().__init__(self._stream, _CHUNK_BYTES)

    @property
    def torn(self) -> bool:
        """Whether what was read last is of a frame that is not whole; at the end, whether the file is cut short."""
        return self._stream.torn
