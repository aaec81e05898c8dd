"""Several traces as one, on one clock: PyTorch's, ours, and those that were merged before.

Each process of each file stays a process of its own, named by its file. Times become microseconds after the earliest
event of all; both ends of a stretch are rounded down, so stretches that nest stay nested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, StorageError
from velodrome.profiling.traces.trace_events import LARGEST_BYTES, Event, TraceEvents, encodable, is_time, nanos
from velodrome.timing import chrome
from velodrome.timing.chrome import TraceWriter
from velodrome.timing.profiles import shift
from velodrome.timing.report import counted, duration

Json = dict[str, Any]

_BATCH = 1000
_FLOWS = ("s", "t", "f", "b", "n", "e")  # phases whose ids join events
_ON_TRACK = ("X", "B", "E", *_FLOWS)
_OWN = ("trace start", "trace end")
_STACK = " Python"
_LAST_PLACE = 1 << 31


class Numbers:
    """Ids that no two things share, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def of(self, *what: object) -> int:
        return self._numbers.setdefault(what, len(self._numbers) + 1)


class MergedFile:
    """One file: when its events were (nanoseconds since 1970), and what its processes and tracks are called.

    Reads all events once, for what has to stand before them. A file that is still being written is merged as it was.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.trace, self.name = TraceEvents(path), name
        if self.trace.epoch_ns is None:
            raise InputError(f"{path}: it does not tell the time of day of its clock, so it cannot be merged")
        self.epoch_ns = self.trace.epoch_ns
        self.events = self.timeless = 0
        self.first, self.last = 0, -1
        self._told: dict[tuple[str, str, str], Any] = {}  # what metadata says of a process and a track
        self._tracks: dict[str, dict[str, None]] = {}  # of each process
        for event in self.trace.events():
            self._survey(event)
        if not self.events:
            raise InputError(f"{path}: no events in it; there is nothing to merge")
        self.lacking = self.trace.lacking("merged")

    def _survey(self, event: Event) -> None:
        pid, args, name = _id(event, "pid"), event.get("args"), event.get("name")
        if event.get("ph") == "M":
            if isinstance(args, dict) and isinstance(name, str):
                of_process = name.startswith("process_")
                self._told[name, pid, "" if of_process else _id(event, "tid")] = next(iter(args.values()), None)
        elif _is_moment(event):
            begin = self.epoch_ns + nanos(event.get("ts"))
            end = begin + max(nanos(event.get("dur")), 0)
            self.first, self.last = (min(self.first, begin), max(self.last, end)) if self.events else (begin, end)
            self.events += 1
            tracks = self._tracks.setdefault(pid, {})
            if event["ph"] in _ON_TRACK:
                tracks.setdefault(self._track(event))
        elif event.get("ph") is not None and name not in _OWN:
            self.timeless += 1

    def _track(self, event: Event) -> str:
        """PyTorch's Python functions cross the operators and marks of their thread: they get a track of their own."""
        track = _id(event, "tid")
        return track + _STACK if self.trace.torch and event.get("cat") == "python_function" else track

    def _order(self, what: str, pid: str, tid: str = "") -> int:
        place = self._told.get((f"{what}_sort_index", pid, tid))
        return place if isinstance(place, int) and abs(place) <= _LAST_PLACE else 0

    def declared(self, numbers: Numbers) -> Iterator[Event]:
        """The names of all processes and tracks."""
        for pid in sorted(self._tracks, key=lambda pid: self._order("process", pid)):
            number = numbers.of(self, pid)
            name = encodable(f"{self.name}: {self._told.get(('process_name', pid, '')) or pid}")
            yield from chrome.process(number, name, number)
            if labels := self._told.get(("process_labels", pid, "")):
                args = {"labels": encodable(labels)}
                yield {"name": "process_labels", "ph": "M", "pid": number, "tid": 0, "args": args}
            names: set[str] = set()
            for tid in self._tracks[pid]:
                shown = encodable(self._told.get(("thread_name", pid, tid)) or tid)
                shown = encodable(f"{shown} ({tid})") if shown in names else shown
                names.add(shown)
                order = self._order("thread", pid, tid.removesuffix(_STACK))
                yield from chrome.thread(number, numbers.of(self, pid, tid), shown, order)

    def moved(self, numbers: Numbers, earliest_ns: int) -> Iterator[Event]:
        """The events on the common clock."""
        offset = self.epoch_ns - earliest_ns
        for event in islice(filter(_is_moment, self.trace.events()), self.events):
            phase, pid = event["ph"], _id(event, "pid")
            begin = offset + nanos(event.get("ts"))
            event["ts"] = begin // 1000
            if "dur" in event:
                event["dur"] = (begin + max(nanos(event["dur"]), 0)) // 1000 - begin // 1000
            event["pid"] = numbers.of(self, pid)
            event["tid"] = numbers.of(self, pid, self._track(event)) if phase in _ON_TRACK else 0
            event["name"] = str(event.get("name") or "-")
            event["cat"] = str(event.get("cat") or "trace")
            if phase == "i":
                event.setdefault("s", "t")
                event.setdefault("args", {})
            join = event.pop("id", None)
            if phase in _FLOWS and join is not None:
                event["id"] = numbers.of(self, "join", "", str(join))
            yield event

    def notes(self) -> Iterator[str]:
        """What of it is not in the merged trace."""
        yield from self.lacking
        if self.timeless:
            yield f"{self.trace.path}: {counted(self.timeless, 'event')} without a time left out"


def merge(out: Path, paths: Sequence[Path]) -> Json:
    """Write the traces as one, whole or not at all (an earlier file becomes `<name>.1`); which of them do not meet."""
    files = [MergedFile(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    earliest_us = min(each.first for each in files) // 1000
    _write(out, files, earliest_us, max(each.last for each in files) // 1000)
    return {
        "kind": "merged_trace",
        "file": str(out),
        "began_at": earliest_us / 1e6,
        "files": [
            {
                "name": each.name,
                "file": str(each.trace.path),
                "events": each.events,
                "from_s": each.first / 1e9 - earliest_us / 1e6,
                "seconds": (each.last - each.first) / 1e9,
            }
            for each in files
        ],
        "notes": [*(note for each in files for note in each.notes()), *_apart(files)],
    }


def _names(paths: Sequence[Path]) -> list[str]:
    """The file names, with as many folders before them as it takes to tell them apart."""
    for depth in range(1, 1 + max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise InputError("one file is given twice")


def _apart(files: Sequence[MergedFile]) -> Iterator[str]:
    """How far apart those are that do not overlap."""
    for one, other in combinations(sorted(files, key=lambda each: each.first), 2):
        if one.last < other.first:
            gap = duration((other.first - one.last) / 1e6)
            yield f"{one.name} ends {gap} before {other.name} begins: they do not overlap"


def _write(out: Path, files: Sequence[MergedFile], earliest_us: int, latest_us: int) -> None:
    moment = [0.0]
    new = out.with_name(f".new.{out.name}")
    room = 2 * LARGEST_BYTES * (len(files) + 1)
    writer = TraceWriter(new, max_bytes=room, clock=lambda: moment[0], clock_name="time of day", epoch_us=earliest_us)
    numbers = Numbers()
    try:
        writer.add([event for each in files for event in each.declared(numbers)])
        for each in files:
            events = each.moved(numbers, earliest_us * 1000)
            while batch := list(islice(events, _BATCH)):
                writer.add(_writable(batch))
        moment[0] = (latest_us - earliest_us + 0.5) / 1e6
        writer.close()
        if writer.notes:
            raise StorageError(f"{out}: {writer.notes[0].partition(': ')[2]}")
        shift(out)
        new.replace(out)
    except OSError as error:
        raise StorageError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        writer.close()
        new.unlink(missing_ok=True)


def _writable(batch: list[Event]) -> list[Event]:
    """The events as JSON that every reader takes.

    A number of 30 digits becomes a float, half a character a `?`, and details that are nested too deeply are left out.
    """
    if _fits(batch):
        return batch
    clean = orjson.loads(json.dumps(batch, ensure_ascii=False).encode("utf-8", "replace"))
    return [event if _fits(event) else {**event, "args": {}} for event in clean]


def _fits(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _is_moment(event: Event) -> bool:
    """Whether something happened at a time, which is not that the file begins or ends."""
    return event.get("ph") not in (None, "M") and event.get("name") not in _OWN and is_time(event.get("ts"))


def _id(event: Event, key: str) -> str:
    """A process's or a track's, which may be a number or a text."""
    return str(event.get(key, 0))
