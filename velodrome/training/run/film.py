"""The pictures that an environment draws of itself, kept as PNG in `data:` addresses, in bounds.

A PNG of plain pixels is a header and zlib's output, which numpy and zlib make in a few lines; a library for images
would be a dependency for no more than that.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]

LONGEST_SIDE = 320  # pixels; larger pictures are made smaller
MOST_BYTES = 1_500_000  # of all pictures of an episode, as text
FILMED = 32  # episodes of a file that have pictures


class Film:
    """The pictures of one episode: of every step or, where those would be too many, of every second, fourth …"""

    def __init__(self, most: int) -> None:
        self._most = most
        self._every = 1
        self._images: list[str] = []

    def wants(self, step: int) -> bool:
        """Whether to draw a picture of this step."""
        return self._most > 0 and step % self._every == 0

    def show(self, picture: NDArray[np.uint8] | None) -> None:
        """Add the picture of a step that was wanted; None ends the film, as there are no pictures."""
        if picture is None:
            self._most, self._images = 0, []
            return
        self._images.append(f"data:image/png;base64,{b64encode(png(smaller(picture))).decode()}")
        while len(self._images) > self._most or (len(self._images) > 1 and sum(map(len, self._images)) > MOST_BYTES):
            self._images, self._every = self._images[::2], 2 * self._every

    def as_json(self) -> Json | None:
        """The k-th image is of step k times `every`, counted from 0."""
        if not self._images or sum(map(len, self._images)) > MOST_BYTES:
            return None
        return {"every": self._every, "images": self._images}


def smaller(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture no longer than `LONGEST_SIDE`: each pixel is the mean of a square."""
    every = -(-max(picture.shape[:2]) // LONGEST_SIDE)
    if every <= 1:
        return picture
    height, width = (max(side // every, 1) for side in picture.shape[:2])
    squares = picture[: height * every, : width * every].reshape(height, -1, width, min(every, picture.shape[1]), 3)
    result: NDArray[np.uint8] = squares.mean((1, 3)).astype(np.uint8)
    return result


def png(picture: NDArray[np.uint8]) -> bytes:
    """Height x width x RGB as a PNG. A row is stored as what it adds to the row above, which compresses well."""
    height, width, _ = picture.shape
    rows = picture.reshape(height, 3 * width)
    lines = np.full((height, 1 + 3 * width), 2, np.uint8)  # 2: "up", the filter of each row
    lines[:, 1:] = np.diff(rows, axis=0, prepend=np.zeros((1, 3 * width), np.uint8))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
