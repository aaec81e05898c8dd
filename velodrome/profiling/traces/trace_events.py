"""The events of a Chrome trace one after another, PyTorch's and ours, with the clock that the file declares.

A file is read in pieces and never held whole. One that lacks its end, or has an event that is no JSON, gives what it
has up to there; `TraceEvents.lacking` says so afterwards.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from velodrome.errors import InputError

Event = dict[str, Any]

LARGEST_BYTES = 500_000_000  # unpacked
NAMES = (".json", ".json.gz")

_PIECE = 1 << 20
_LONGEST_EVENT = 16 << 20
_LONGEST_HEAD = 4 << 20  # PyTorch lists the devices before the events
_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_KEY = '"traceEvents"'
_LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_LOOKED_AT = 64 * 1024
_NEXT = re.compile(r"[^ \t\r\n,]|\Z")
_LONGEST_TOKEN = 12  # of JSON outside of texts and numbers; \u1234\u5678 is one
_LATEST_US = 9e15  # in 2255; its nanoseconds still fit into 64 bits
_FIRST_EPOCH_US = 1e15  # in 2001: a timestamp above it is the time of day already


class TraceEvents:
    """A trace file. `cut` and `broken` are known once all events were read."""

    def __init__(self, path: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
        self.path = path
        self.cut = False
        self.broken = False
        self._largest = largest_bytes
        self._decoder = json.JSONDecoder(
            strict=False, parse_constant=lambda _: None
        )  # some writers leave NaN and control characters
        self.head = self._head()
        self.torch = "baseTimeNanoseconds" in self.head or "deviceProperties" in self.head
        first = next(self.events(), {})
        args = first.get("args")
        self.start = args if first.get("name") == "trace start" and isinstance(args, dict) else {}  # of a trace of ours
        self.epoch_ns = self._epoch_ns(first)

    def _epoch_ns(self, first: Event) -> int | None:
        """What to add to a timestamp for the time of day; None if the file does not tell."""
        base, ours, at = self.head.get("baseTimeNanoseconds"), self.start.get("epoch_us"), first.get("ts")
        if isinstance(base, int) and 0 <= base < _LATEST_US * 1000:
            return base
        if isinstance(ours, int) and 0 <= ours < _LATEST_US:
            return ours * 1000
        return 0 if isinstance(at, int | float) and _FIRST_EPOCH_US < at < _LATEST_US else None

    def events(self) -> Iterator[Event]:
        """All of them, in the order of the file; each call reads it anew."""
        self.cut = self.broken = False
        pieces = self._pieces()
        text, place = self._begun(pieces)
        while True:
            there = _NEXT.search(text, place)
            place = there.start() if there else len(text)
            if text[place : place + 1] == "]":
                return
            try:
                event, place = self._decoder.raw_decode(text, place)
            except json.JSONDecodeError as error:
                if _within(error, text):
                    self.broken = True
                    return
                text, place = text[place:], 0
                if len(text) > _LONGEST_EVENT:
                    raise self._wrong("an event in it has no end") from None
                more = "".join(islice(pieces, 1 + len(text) // _PIECE))
                if not more:
                    self.cut = True
                    return
                text += more
                continue
            except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
                raise self._wrong("an event in it cannot be read") from None
            if not isinstance(event, dict):
                raise self._wrong("expected a list of trace events")
            yield event

    def lacking(self, done: str) -> list[str]:
        """A note if not all of the file could be read; `done` is what was done with the rest."""
        if self.broken:
            return [f"{self.path}: an event in it is no JSON; what stands before it was {done}"]
        return [f"{self.path}: its end is missing; what is there was {done}"] if self.cut else []

    def _begun(self, pieces: Iterator[str]) -> tuple[str, int]:
        """The text so far, and where in it the first event may be."""
        text = ""
        for piece in pieces:
            text += piece
            lead = text.lstrip()[:1]
            if lead == "[":
                return text, text.index("[") + 1
            key = text.find(_KEY)
            place = text.find("[", key) if key >= 0 else -1
            if place >= 0:
                return text, place + 1
            if lead not in ("", "{") or len(text) > _LONGEST_HEAD:
                break
        raise self._wrong("expected a list of trace events")

    def _head(self) -> Event:
        """What an object says before its events."""
        text, place = self._begun(self._pieces())
        if text.lstrip()[:1] == "[":
            return {}
        try:
            found = json.loads(f"{text[:place]}]}}")
        except (ValueError, RecursionError):
            raise self._wrong("its beginning is no JSON") from None
        return found if isinstance(found, dict) else {}

    def _pieces(self) -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        size = 0
        for data in self._bytes():
            size += len(data)
            if size > self._largest:
                limit = f"{self._largest / 1e6:,.0f} MB"
                raise InputError(
                    f"{self.path}: larger than {limit} unpacked; trace fewer steps, or open it in Perfetto"
                )
            yield decode(data)

    def _bytes(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                data = file.read(_PIECE)
                packed = zlib.decompressobj(_GZIP) if data[:2] == _MAGIC else None
                while data:
                    if packed is None:
                        yield data
                    while packed and data:
                        yield packed.decompress(data, _PIECE)
                        data = packed.unconsumed_tail
                        if packed.eof:  # gzip files may stand one behind another
                            data, packed = packed.unused_data, zlib.decompressobj(_GZIP)
                    data = file.read(_PIECE)
        except zlib.error:
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self.path}: not a trace ({what})")


def _within(error: json.JSONDecodeError, text: str) -> bool:
    """Whether it is what the text says that is wrong, and not that it ends."""
    return not error.msg.startswith("Unterminated") and error.pos + _LONGEST_TOKEN < len(text)


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace, by its name and how it begins."""
    if not path.name.endswith(NAMES) or not os.path.isfile(path):  # not Path's, which raises if the name is too long
        return False
    try:
        with path.open("rb") as file:
            data = file.read(_LOOKED_AT)
    except OSError:
        return False
    if data[:2] == _MAGIC:
        return True
    return data.lstrip()[:1] == b"[" or (data.lstrip()[:1] == b"{" and _LIST.search(data) is not None)


def is_time(micros: Any) -> bool:
    """Whether a clock could show it."""
    return isinstance(micros, int | float) and -_LATEST_US < micros < _LATEST_US


def nanos(micros: Any) -> int:
    """A time of an event, to the nanosecond: sums of them are exact, so stretches that nest stay nested."""
    return round(micros * 1000) if is_time(micros) else 0


def encodable(value: Any) -> str:
    """As a text that can be written: JSON may have halves of characters."""
    return str(value).encode("utf-8", "replace").decode()
