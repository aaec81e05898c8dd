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
from velodrome.index.lines.followed_file import CHUNK_BYTES, FollowedFile, Place, is_object
from velodrome.index.lines.parsed_lines import Line
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.zst import PIECE_BYTES, next_frame

_WINDOW_BYTES = 256 * 1024
_MOST_TORN = 64 * 1024 * 1024  # of a frame without an end that is searched for others: its length may be what is wrong

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
        """The text of each frame from `offset` on; damaged bytes are passed over."""
        unpacker = zstandard.ZstdDecompressor()
        while offset < self.size:
            end: int | None = None
            problem: InputError | None = None
            try:
                for piece in self._frame(unpacker.decompressobj(), offset):
                    end = piece[3]
                    yield piece
            except zstandard.ZstdError:
                problem = InputError(f"{self.path}: not zstd from byte {offset} on")
            if end is None:
                end = next_frame(self.bytes_at, offset + 1) if problem or self.size - offset < _MOST_TORN else None
                if end is not None:
                    yield offset, offset - end, b"", end
                elif problem is not None:
                    raise problem
                else:
                    return
            offset = end

    def _frame(self, frame: Any, offset: int) -> Iterator[Text]:
        """The text of one frame, piece by piece.

        The last byte is held back until the checksum behind it is right: a line is not whole before that. So a torn
        frame gives all but its last byte.
        """
        place, at, held = offset, 0, b""
        while not frame.eof and (data := self._peek(place)):
            text = held + frame.decompress(data)
            place += len(data) - len(frame.unused_data)
            if frame.eof:
                yield offset, at, text, place
            elif text:
                yield offset, at, text[:-1], None
                at, held = at + len(text) - 1, text[-1:]

    def _peek(self, offset: int) -> bytes:
        """The next bytes of the file, a few at a time."""
        start, window = self._window
        if not start <= offset < start + len(window):
            start, window = self._window = offset, self.bytes_at(offset, _WINDOW_BYTES)
        return window[offset - start : offset - start + PIECE_BYTES]
