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


def _pieces(path: Path) -> Iterator[tuple[bytes, int]]:
    """Decompressed bytes, each with the offset behind the last whole frame so far. A torn end is passed over."""
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
            yield piece, whole
            data = rest or stream.read(_CHUNK_BYTES)


def whole_frames(path: Path) -> int:
    """The offset behind the last whole frame."""
    return max((whole for _, whole in _pieces(path)), default=0)


class _Stream(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._pieces = _pieces(path)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece[0])
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


class ZstReader(io.BufferedReader):
    """The decompressed bytes of a file, as one stream."""

    def __init__(self, path: Path) -> None:
        with path.open("rb"):
            pass  # a missing file is said now, not at the first read
        super().__init__(_Stream(path), _CHUNK_BYTES)
