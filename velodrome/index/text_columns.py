"""Texts of rollouts as columns: which tools were called, which model answered, every text at the top level of a row.

A chunk holds the different texts of some thousand rows once, and for each row which of them it has. A text is looked
for in the bytes of all of them at once, so a filter costs about as much as reading the chunk, however many texts
differ. A row may have several values, such as the names of its tools; each is between two edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velodrome.index.answer_types import ANY

LONGEST_TEXT = 200  # characters of a value that are stored
_EDGE, _END = "\x1f", "\x1e"  # around each value, and between the texts of a chunk
_SPACES = str.maketrans(_EDGE + _END, "  ")
_HEAD = 4  # bytes: how many rows


def stored_text(value: str) -> str:
    """What a column holds of a value: its start, without the characters that stand between values."""
    start = value[:LONGEST_TEXT]
    return start if start.isprintable() else start.translate(_SPACES)


def stored_texts(values: Iterable[str]) -> str:
    """What a column holds of a row with several values."""
    return _EDGE.join(map(stored_text, values))


def values_of(text: str) -> list[str]:
    """The values that are in a stored text."""
    return text.split(_EDGE) if text else []


def pack(texts: Iterable[str]) -> bytes:
    """A chunk of stored texts, one for each row; an empty one is no text."""
    places = {"": 0}
    codes = np.array([places.setdefault(text, len(places)) for text in texts], np.int32)
    joined = _END.join([f"{_EDGE}{text}{_EDGE}" if text else "" for text in places])
    return len(codes).to_bytes(_HEAD, "little") + codes.tobytes() + joined.encode("utf-8", "replace")


class TextChunk:
    """The texts of some rows, as they were packed. `codes` is the place of each row's text; 0: it has none."""

    def __init__(self, data: bytes) -> None:
        count = int.from_bytes(data[:_HEAD], "little")
        self.codes: NDArray[np.int32] = np.frombuffer(data, np.int32, count, _HEAD)
        self._bytes = data[_HEAD + self.codes.nbytes :]

    @property
    def texts(self) -> list[str]:
        """The different texts, by place."""
        return [text[1:-1] for text in self._bytes.decode().split(_END)]

    def unpacked(self) -> list[str]:
        """The text of each row."""
        texts = self.texts
        return [texts[code] for code in self.codes.tolist()]

    def having(self, op: str, value: str) -> NDArray[np.bool_]:
        """The rows one of whose values is this, or contains it; then the case of ASCII letters is ignored."""
        if op == ANY or not value:
            return self.codes == 0 if op == "=" else self.codes > 0
        part, texts = stored_text(value).encode("utf-8", "replace"), self._bytes
        if op == "=":
            part = _EDGE.encode() + part + _EDGE.encode()
        else:
            part, texts = part.lower(), texts.lower()
        if part not in texts:
            return np.zeros(len(self.codes), bool)
        letters = np.frombuffer(texts, np.uint8)
        ends = np.flatnonzero(letters == ord(_END))
        chosen = np.zeros(len(ends) + 1, bool)
        chosen[np.searchsorted(ends, _places(letters, part))] = True
        mask: NDArray[np.bool_] = chosen[self.codes]
        return mask


def _places(letters: NDArray[np.uint8], part: bytes) -> NDArray[Any]:
    """Where a part begins in a text: the letters that fit, after one letter, two, and so on."""
    places = np.flatnonzero(letters[: len(letters) - len(part) + 1] == part[0])
    for at, letter in enumerate(part[1:], 1):
        places = places[letters[places + at] == letter]
    return places


def merged(chunks: Sequence[tuple[slice, TextChunk]], rows: int, most: int) -> tuple[list[str], NDArray[Any]] | None:
    """The different texts of a column, and which of them each row has (-1: none); None if more than `most` differ."""
    places: dict[str, int] = {}
    codes = np.full(rows, -1, np.int64)
    for span, chunk in chunks:
        texts = chunk.texts
        if len(texts) - 1 > most:
            return None
        own = np.array([-1, *(places.setdefault(text, len(places)) for text in texts[1:])], np.int64)
        codes[span] = own[chunk.codes]
        if len(places) > most:
            return None
    return list(places), codes
