"""A `.jsonl.zst` file as lines: each knows the frame it begins in and its place in that frame's text.

The collector writes one frame per line, so any line can be read on its own. A file compressed again, in one frame or
a few, is read as well; a line deep in a long frame then costs the way to it. A torn last frame waits. Damaged bytes are
passed over up to the next frame that decodes, and count as one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zstandard

from velodrome.errors import InputError
from velodrome.index.followed_file import CHUNK_BYTES, FollowedFile, Place, is_object
from velodrome.index.parsed_lines import Line
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.zst import MAGIC, next_frame

_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte of 0x50 to 0x5f
_LONGEST_HEADER = 18
_WINDOW_BYTES = 256 * 1024
_PIECE_BYTES = 1024 * 1024
_MOST_AT_ONCE = 64 * 1024 * 1024  # of text, from a frame that says how long it is
_MOST_TORN = (
    64 * 1024 * 1024
)  # of a frame without an end that is searched for others: it may be the length that is wrong
_RLE, _RESERVED = 1, 3

# Of damaged bytes the place is how many there are, as a negative number.
Text = tuple[int, int, bytes, int | None]  # its frame, its place in there, itself, where the frame ends if it ends here


class ZstLines(FollowedFile):
    """A `.jsonl.zst` file."""

    _window: tuple[int, bytes] = (0, b"")

    def lines(self, place: Place, *, chunk: int = CHUNK_BYTES) -> Iterator[tuple[list[Line], Place]]:
        """The whole lines from `place` on, some at a time, each time with the place behind them."""
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
            yield lines, end  # lines before a damaged frame count
        if damage:
            raise damage

    def line_at(self, offset: int, within: int, size: int) -> bytes:
        """One line, by where it was."""
        data = b""
        for frame, at, text, _ in self._texts(offset):
            data += text[max(0, within - at) :] if frame == offset else text
            if len(data) >= size:
                break
        return data[:size]

    def _walk(self, place: Place) -> Iterator[tuple[Line, Place]]:
        """Every whole line with the place behind it."""
        left, start, too_long = b"", (place.offset, place.within), False  # a line begun, and where
        skip, number, opened = place.within, place.line, place.open
        end: int | None = None
        for frame, at, text, end in self._texts(place.offset):
            if at < 0 and end is not None:
                number += 1
                yield (number, frame, at, None), Place(end, 0, number)
                left, too_long, skip, opened = b"", False, 0, False
                continue
            gone = min(skip, len(text))
            text, at, skip = text[gone:], at + gone, skip - gone
            position = 0
            if opened and text:
                position, opened = (1 if text[:1] == b"\n" else 0), False
            while (feed := text.find(b"\n", position) + 1) > 0:
                number += 1
                line = left + text[position:feed]
                if not left and not too_long:
                    start = (frame, at + position)
                behind = (end, 0) if end is not None and feed == len(text) else (frame, at + feed)
                too_long = too_long or len(line) > MAX_LINE_BYTES
                yield (number, *start, None if too_long else line), Place(*behind, number)
                left, too_long, position = b"", False, feed
            if position < len(text):
                if not left and not too_long:
                    start = (frame, at + position)
                left += text[position:]
                if len(left) > MAX_LINE_BYTES:
                    left, too_long = b"", True
        if left and end is not None and is_object(left):
            yield (number + 1, *start, left), Place(end, 0, number + 1, open=True)

    def _texts(self, offset: int) -> Iterator[Text]:
        """The text of each frame from `offset` on. Of a torn one, all but its last byte, which may not be the last."""
        unpacker = zstandard.ZstdDecompressor()
        while offset < self.size:
            end: int | None = None
            problem: InputError | None = None
            try:
                end, text_bytes = self._frame(offset)
                if end is not None and 0 <= text_bytes <= _MOST_AT_ONCE:
                    text = unpacker.decompress(self.bytes_at(offset, end - offset)) if text_bytes else b""
                    yield offset, 0, text, end
                else:
                    yield from self._long_frame(unpacker, offset, end)
            except zstandard.ZstdError as error:
                problem = InputError(f"{self.path}: not zstd from byte {offset} on: {error}")
            except InputError as error:
                problem = error
            if problem is not None or end is None:
                end = next_frame(self.bytes_at, offset + 1) if problem or self.size - offset < _MOST_TORN else None
                if end is not None:
                    yield offset, offset - end, b"", end
                elif problem is not None:
                    raise problem
                else:
                    return
            offset = end

    def _long_frame(self, unpacker: Any, offset: int, end: int | None) -> Iterator[Text]:
        stretch = _Stretch(self, offset, self.size if end is None else end)
        at, held = 0, b""  # the last byte is held back until it is known what follows
        with unpacker.stream_reader(stretch) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield offset, at, held + piece[:-1], None
                at += len(held) + len(piece) - 1
                held = piece[-1:]
        if end is not None:
            yield offset, at, held, end

    def _frame(self, offset: int) -> tuple[int | None, int]:
        """Where a frame ends, None if it is torn, and how long its text is, -1 if it does not say."""
        head = self._peek(offset, _LONGEST_HEADER)
        if head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50:
            end = offset + 8 + int.from_bytes(head[4:8], "little")
            return (end if len(head) >= 8 and end <= self.size else None), 0
        if not MAGIC.startswith(head[:4]):
            raise InputError(f"{self.path}: not zstd from byte {offset} on")
        try:
            at = offset + zstandard.frame_header_size(head)
            parameters = zstandard.get_frame_parameters(head)
        except zstandard.ZstdError:
            return None, -1
        last = False
        while not last:
            block = self._peek(at, 3)
            if len(block) < 3:
                return None, -1
            value = int.from_bytes(block, "little")
            last, kind = bool(value & 1), (value >> 1) & 3
            if kind == _RESERVED:
                raise InputError(f"{self.path}: not zstd from byte {offset} on")
            at += 3 + (1 if kind == _RLE else value >> 3)
        end = at + (4 if parameters.has_checksum else 0)
        known = parameters.content_size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
        return (end if end <= self.size else None), (parameters.content_size if known else -1)

    def _peek(self, offset: int, size: int) -> bytes:
        start, window = self._window
        if not start <= offset or offset + size > start + len(window):
            start, window = offset, self.bytes_at(offset, _WINDOW_BYTES)
            self._window = (start, window)
        return window[offset - start : offset - start + size]


class _Stretch:
    """Part of a file, to be read once from its start to its end."""

    def __init__(self, source: FollowedFile, start: int, end: int) -> None:
        self._source, self._at, self._end = source, start, end

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._at
        data = self._source.bytes_at(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data
