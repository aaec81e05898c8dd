"""Chrome's Trace Event format, written as it happens: what was flushed can be read, also when the writer was killed.

One clock: timestamps are whole microseconds of `time.perf_counter`, which all processes of a machine share, and the
first event says what to add for the time of day. Rounding both ends of a stretch down keeps stretches that nest
nested. The array form is used because a viewer takes it without its closing bracket. A disk that refuses a write and
a trace that has reached its size end the writing, never the program; `notes` says so once it is closed.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.timing.spans import Clock

Event = dict[str, Any]

SUFFIXES = (".json", ".json.gz")
MAX_BYTES = 256_000_000
MADE_BY = "velodrome"

_BUFFER_BYTES = 64 * 1024
_RESERVE_BYTES = 2048  # for the last two events, which say what is missing
_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 4  # of 9: beyond it a trace gets a few percent smaller and takes twice the time


def micros(seconds: float) -> int:
    """Whole microseconds, rounded towards zero."""
    return int(seconds * 1e6)


def process(pid: int, name: str, order: int) -> list[Event]:
    """Names a process, and gives it its place among the others."""
    return [
        {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}},
        {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": order}},
    ]


def thread(pid: int, tid: int, name: str, order: int) -> list[Event]:
    """Names a track of a process, and gives it its place among the others."""
    return [
        {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}},
        {"name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid, "args": {"sort_index": order}},
    ]


def complete(pid: int, tid: int, name: str, cat: str, start: int, end: int, args: Event | None = None) -> Event:
    """A stretch of time on a track."""
    event = {"name": name, "cat": cat, "ph": "X", "ts": start, "dur": end - start, "pid": pid, "tid": tid}
    if args:
        event["args"] = args
    return event


def counter(pid: int, name: str, unit: str, at: int, value: float) -> Event:
    """One value of a counter that belongs to a process."""
    return {"name": name, "cat": "counter", "ph": "C", "ts": at, "pid": pid, "tid": 0, "args": {unit: value}}


def flow(number: int, name: str, source: tuple[int, int, int], target: tuple[int, int, int]) -> tuple[Event, Event]:
    """An arrow between the stretches that begin at a moment on a track, each given as (pid, tid, start).

    Its start must follow its own stretch in the file at once: viewers bind it to the one that was begun last.
    """
    ends = {"name": name, "cat": "flow", "id": number}
    return (
        {**ends, "ph": "s", "ts": source[2], "pid": source[0], "tid": source[1]},
        {**ends, "ph": "f", "bp": "e", "ts": target[2], "pid": target[0], "tid": target[1]},
    )


def instant(pid: int, name: str, at: int, args: Event) -> Event:
    """A mark across the whole trace."""
    return {"name": name, "cat": "trace", "ph": "i", "s": "g", "ts": at, "pid": pid, "tid": 0, "args": args}


class TraceWriter:
    """One trace file. What is added together is in the file together, or not at all."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = MAX_BYTES,
        clock: Clock = time.perf_counter,
        clock_name: str = "time.perf_counter",
        epoch_us: int | None = None,
    ) -> None:
        checked(path)
        self.path = path
        self.max_bytes = max_bytes
        self.pid = os.getpid()
        self.bytes = 0  # before compression
        self.events = 0
        self.dropped: dict[str, int] = {}
        self.notes: list[str] = []
        self.open = True
        self._ended: str | None = None
        self._closed = False
        self._clock = clock
        self._clock_name = clock_name
        self._epoch_us = epoch_us  # None: found out now
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._pack = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP) if path.name.endswith(".gz") else None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        self._put(b"[\n" + orjson.dumps(self._first()))
        self.flush()

    def _first(self) -> Event:
        now = self._clock()
        epoch_us = micros(time.time()) - micros(now) if self._epoch_us is None else self._epoch_us
        clock = {"clock": self._clock_name, "epoch_us": epoch_us}
        return instant(self.pid, "trace start", micros(now), {"made_by": MADE_BY, **clock})

    def add(self, events: Sequence[Event], what: str = "events") -> bool:
        """Write these; false if they are dropped, which is counted under `what`."""
        if not self.open:
            return self.drop(what)
        try:
            data = orjson.dumps(events, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        except TypeError:
            return self.drop(what)
        if not data:
            return True
        if self.bytes + len(data) + 2 > self.max_bytes - _RESERVE_BYTES:
            self._end(f"full at {self.max_bytes / 1e6:g} MB")
            return self.drop(what)
        self._put(b",\n" + data)
        self.events += len(events)
        if self._waiting_bytes > _BUFFER_BYTES:
            self.flush()
        return True

    def drop(self, what: str) -> bool:
        """Count something that is not written."""
        self.dropped[what] = self.dropped.get(what, 0) + 1
        return False

    def flush(self) -> None:
        """Hand everything so far to the system: a process that is killed after this loses none of it."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._pack is not None:
            data = self._pack.compress(data) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        self._write(data)

    def close(self) -> None:
        """Say what was dropped, and end the file. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        if not self._file.closed:
            self._finish()
        if self.dropped or self._ended:
            why = self._ended or "what cannot be written as JSON is left out"
            self.notes.append(f"{self.path}: {why}; not in the trace: {_listed(self.dropped) or 'its end'}")

    def _finish(self) -> None:
        self.open = False
        self._put(b",\n" + b",\n".join(map(orjson.dumps, self._last())) + b"\n]\n")
        self.flush()
        if self._pack is not None:
            self._write(self._pack.flush(zlib.Z_FINISH))
        try:
            self._file.close()
        except OSError as error:
            self._end(error.strerror or str(error))

    def _is_changed(self, size: int) -> bool:
        """Whether the path no longer leads to what was written here."""
        try:
            there = os.stat(self.path)
        except OSError:
            return True
        return there.st_size != size or not os.path.samestat(there, os.fstat(self._file.fileno()))

    def _end(self, why: str) -> None:
        self.open = False
        self._ended = self._ended or why

    def _last(self) -> list[Event]:
        labels = []
        if self.dropped:
            args: Event = {"labels": f"not in this trace: {_listed(self.dropped)}"}
            labels = [{"name": "process_labels", "ph": "M", "pid": self.pid, "tid": 0, "args": args}]
        args = {"events": self.events, "dropped": self.dropped}
        return [*labels, instant(self.pid, "trace end", micros(self._clock()), args)]

    def _put(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.bytes += len(data)

    def _write(self, data: bytes) -> None:
        if self._file.closed:
            return
        whole = self._file.tell()
        if self._is_changed(whole):
            self._end("another program removed or changed it during the run")
            self._file.close()
            return
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            self._end(error.strerror or str(error))
            with suppress(OSError):
                self._file.truncate(whole)
            with suppress(OSError):
                self._file.close()


def _listed(counts: dict[str, int]) -> str:
    """Counts by name, as a phrase."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def checked(path: Path) -> Path:
    """A name that viewers open."""
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"{path}: a trace is called …{' or …'.join(SUFFIXES)}")
    return path


def ours(path: Path) -> bool:
    """Whether a file was begun by a `TraceWriter`."""
    with path.open("rb") as file:
        data = file.read(4096)
    if data[:2] == _MAGIC:
        try:
            data = zlib.decompressobj(_GZIP).decompress(data)
        except zlib.error:
            return False
    begin = data.find(b"{")
    first, _, _ = data[max(begin, 0) :].partition(b"\n")
    return data[:begin].strip() == b"[" and f'"made_by":"{MADE_BY}"'.encode() in first
