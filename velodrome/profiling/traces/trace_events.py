"""The events of a Chrome trace one after another, PyTorch's and ours, with the clock that the file declares.

A file is read in pieces and never held whole. One that cannot be read to its end gives what it has up to there, and
`TraceEvents.lacking` says so afterwards.
"""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
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
_LIST = re.compile(r'\s*(\[|\{.*?(?<!\\)"traceEvents"\s*:\s*\[)', re.DOTALL)  # up to the first event
_BETWEEN = re.compile(r"[\s,]*")
_LATEST_US = 9e15  # in 2255; its nanoseconds still fit into 64 bits
_FIRST_EPOCH_US = 1e15  # in 2001: a timestamp above it is the time of day already
_DECODER = json.JSONDecoder(
    strict=False, parse_constant=lambda _: None
)  # some writers leave NaN and control characters


class TraceEvents:
    """A trace file. `cut` is known once all events were read."""

    def __init__(self, path: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
        self.path = path
        self.cut = False
        self._largest = largest_bytes
        self.head: Event = {}  # what an object says before its events
        first = next(self.events(), {})
        self.torch = "baseTimeNanoseconds" in self.head or "deviceProperties" in self.head
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
        self.cut = False
        pieces = self._pieces()
        text, place = self._begun(pieces), 0
        while True:
            between = _BETWEEN.match(text, place)
            place = between.end() if between else place
            if text[place : place + 1] == "]":
                return
            try:
                event, place = _DECODER.raw_decode(text, place)
            except json.JSONDecodeError:  # it is not whole yet, or never will be
                text, place = text[place:], 0
                more = next(pieces, "") if len(text) < _LONGEST_EVENT else ""
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
        return [f"{self.path}: it cannot be read to its end; what stands before that was {done}"] if self.cut else []

    def _begun(self, pieces: Iterator[str]) -> str:
        """The text from the first event on, and the head."""
        text = ""
        for piece in pieces:
            text += piece
            begin = _LIST.match(text)
            if begin is not None:
                self._read_head(begin[1])
                return text[begin.end() :]
            if text.lstrip()[:1] not in ("", "{") or len(text) > _LONGEST_HEAD:
                break
        raise self._wrong("expected a list of trace events")

    def _read_head(self, text: str) -> None:
        if text != "[":
            try:
                self.head = json.loads(f"{text}]}}")
            except (ValueError, RecursionError):
                raise self._wrong("its beginning is no JSON") from None

    def _pieces(self) -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        size = 0
        try:
            with self.path.open("rb") as raw:
                packed = raw.read(2) == _MAGIC
                raw.seek(0)
                file = gzip.GzipFile(fileobj=raw) if packed else raw
                while data := file.read1(_PIECE):
                    size += len(data)
                    if size > self._largest:
                        limit = f"{self._largest / 1e6:,.0f} MB"
                        raise InputError(
                            f"{self.path}: larger than {limit} unpacked; trace fewer steps, or open it in Perfetto"
                        )
                    yield decode(data)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self.path}: not a trace ({what})")


def is_trace(path: Path) -> bool:
    """Whether a file looks like a trace, by its name and how it begins."""
    if not path.name.endswith(NAMES) or not os.path.isfile(path):  # not Path's, which raises if the name is too long
        return False
    try:
        with path.open("rb") as file:
            data = file.read(64 * 1024)
    except OSError:
        return False
    return data[:2] == _MAGIC or _LIST.match(data.decode(errors="replace")) is not None


def is_time(micros: Any) -> bool:
    """Whether a clock could show it."""
    return isinstance(micros, int | float) and -_LATEST_US < micros < _LATEST_US


def nanos(micros: Any) -> int:
    """A time of an event, to the nanosecond: sums of them are exact, so stretches that nest stay nested."""
    return round(micros * 1000) if is_time(micros) else 0


def encodable(value: Any) -> str:
    """As a text that can be written: JSON may have halves of characters."""
    return str(value).encode("utf-8", "replace").decode()
