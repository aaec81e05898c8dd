"""Several traces as one, on one clock: PyTorch's, ours, and those that were merged before.

Each process of each file stays a process of its own, named by its file. Times become microseconds after the earliest
event of all; both ends of a stretch are rounded down, so stretches that nest stay nested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, StorageError
from velodrome.profiling.traces.trace_events import LARGEST_BYTES, Event, TraceEvents, encodable, is_time, nanos
from velodrome.timing import chrome
from velodrome.timing.chrome import TraceWriter
from velodrome.timing.profiles import shift
from velodrome.timing.report import counted

Json = dict[str, Any]

_FIRST_MADE_UP = 1 << 23  # process and thread ids above every real one
_BATCH = 1000
_FLOWS = ("s", "t", "f", "b", "n", "e")  # phases whose ids join events
_OWN = ("trace start", "trace end")
_STACK = " Python"
_LAST_PLACE = 1 << 31
_TRACK = ("X", "B", "E", "s", "t", "f", "b", "n", "e")


@dataclass(slots=True)
class MergedFile:
    """One file: when its events were (nanoseconds since 1970), and what its processes and tracks are called."""

    trace: TraceEvents
    name: str
    epoch_ns: int
    first: int = 0
    last: int = 0
    events: int = 0
    timeless: int = 0
    lacking: list[str] = field(default_factory=list)
    processes: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    process_order: dict[str, int] = field(default_factory=dict)
    tracks: dict[tuple[str, str], str] = field(default_factory=dict)
    track_order: dict[tuple[str, str], int] = field(default_factory=dict)

    def survey(self) -> None:
        """Read all events once, for what has to stand before them."""
        began = False
        for event in self.trace.events():
            if event.get("ph") == "M":
                self._called(event)
                continue
            if event.get("ph") is None or event.get("name") in _OWN:
                continue
            if not is_time(event.get("ts")):
                self.timeless += 1
                continue
            begin = self.epoch_ns + nanos(event.get("ts"))
            end = begin + max(nanos(event.get("dur")), 0)
            self.first, self.last = (min(self.first, begin), max(self.last, end)) if began else (begin, end)
            began = True
            self.events += 1
            pid = _id(event, "pid")
            self.processes.setdefault(pid, "")
            if event["ph"] in _TRACK:
                self.tracks.setdefault((pid, self.track(event)), "")
        if not began:
            raise InputError(f"{self.trace.path}: no events in it; there is nothing to merge")
        self.lacking = self.trace.lacking("merged")

    def notes(self) -> Iterator[str]:
        """What of it is not in the merged trace."""
        yield from self.lacking
        if self.timeless:
            yield f"{self.trace.path}: {counted(self.timeless, 'event')} without a time left out"

    def track(self, event: Event) -> str:
        """PyTorch's Python functions cross the operators and marks of their thread: they get a track of their own."""
        track = _id(event, "tid")
        return track + _STACK if self.trace.torch and event.get("cat") == "python_function" else track

    def _called(self, event: Event) -> None:
        args = event.get("args")
        if not isinstance(args, dict):
            return
        pid, track, name = _id(event, "pid"), (_id(event, "pid"), _id(event, "tid")), event.get("name")
        order = args.get("sort_index")
        if name == "process_name":
            self.processes[pid] = str(args.get("name") or "")
        elif name == "process_labels":
            self.labels[pid] = str(args.get("labels") or "")
        elif name == "thread_name":
            self.tracks[track] = str(args.get("name") or "")
        elif not isinstance(order, int) or abs(order) > _LAST_PLACE:
            return
        elif name == "process_sort_index":
            self.process_order[pid] = order
        elif name == "thread_sort_index":
            self.track_order[track] = order


def merge(out: Path, paths: Sequence[Path]) -> Json:
    """Write the traces as one, whole or not at all (an earlier file becomes `<name>.1`); which of them do not meet."""
    sources = []
    for path, name in zip(paths, _names(paths), strict=True):
        trace = TraceEvents(path)
        if trace.epoch_ns is None:
            raise InputError(f"{path}: it does not tell the time of day of its clock, so it cannot be merged")
        source = MergedFile(trace, name, trace.epoch_ns)
        source.survey()
        sources.append(source)
    earliest_us = min(source.first for source in sources) // 1000
    latest_us = max(source.last for source in sources) // 1000
    _write(out, sources, earliest_us, latest_us)
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
            for each in sources
        ],
        "notes": [*(note for each in sources for note in each.notes()), *_apart(sources)],
    }


def _names(paths: Sequence[Path]) -> list[str]:
    """The file names, with as many folders before them as it takes to tell them apart."""
    for depth in range(1, 1 + max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise InputError("one file is given twice")


def _apart(sources: Sequence[MergedFile]) -> Iterator[str]:
    """How far apart those are that do not overlap."""
    for one, other in combinations(sorted(sources, key=lambda each: each.first), 2):
        if one.last < other.first:
            gap = _length((other.first - one.last) / 1e9)
            yield f"{one.name} ends {gap} before {other.name} begins: they do not overlap"


def _length(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} hours"
    if seconds >= 120:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _write(out: Path, sources: Sequence[MergedFile], earliest_us: int, latest_us: int) -> None:
    moment = [0.0]
    new = out.with_name(f".new.{out.name}")
    room = 2 * LARGEST_BYTES * (len(sources) + 1)
    writer = TraceWriter(new, max_bytes=room, clock=lambda: moment[0], clock_name="time of day", epoch_us=earliest_us)
    try:
        renamed = Renamed(sources)
        writer.add(renamed.declared())
        for number, source in enumerate(sources):
            batch: list[Event] = []
            for event in renamed.events(number, source, earliest_us * 1000):
                batch.append(event)
                if len(batch) == _BATCH:
                    writer.add(_writable(batch))
                    batch = []
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


class Renamed:
    """Ids that no two files share. A real id is kept where nobody had it before."""

    def __init__(self, sources: Sequence[MergedFile]) -> None:
        self._sources = sources
        self._made_up = count(_FIRST_MADE_UP)
        self._pids: dict[tuple[int, str], int] = {}
        self._tids: dict[tuple[int, str, str], int] = {}
        self._joins: dict[tuple[int, str], int] = {}
        taken: set[int] = set()
        tids: set[int] = {0}  # of what belongs to a whole process
        for number, source in enumerate(sources):
            for pid in source.processes:
                self._pids[number, pid] = self._free(pid, taken)
            for pid, tid in source.tracks:
                self._tids[number, pid, tid] = self._free(tid, tids)

    def _free(self, wanted: str, taken: set[int]) -> int:
        number = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0
        while number <= 0 or number in taken:
            number = next(self._made_up)
        taken.add(number)
        return number

    def declared(self) -> list[Event]:
        """The names of all processes and tracks, files in their order."""
        names: list[Event] = []
        order = count()
        for number, source in enumerate(self._sources):
            known = source.process_order
            for pid in sorted(source.processes, key=lambda pid: known.get(pid, 0)):
                name = source.processes[pid] or pid
                names += chrome.process(self._pids[number, pid], encodable(f"{source.name}: {name}"), next(order))
                if source.labels.get(pid):
                    args = {"labels": encodable(source.labels[pid])}
                    names.append({**names[-1], "name": "process_labels", "args": args})
            named: set[tuple[str, str]] = set()
            for (pid, tid), name in source.tracks.items():
                if (number, pid) not in self._pids:
                    continue
                shown = encodable(name or tid)
                shown = encodable(f"{shown} ({tid})") if (pid, shown) in named else shown
                named.add((pid, shown))
                place = source.track_order.get((pid, tid.removesuffix(_STACK)), 0)
                names += chrome.thread(self._pids[number, pid], self._tids[number, pid, tid], shown, place)
        return names

    def events(self, number: int, source: MergedFile, earliest_ns: int) -> Iterator[Event]:
        """The events of one file on the common clock."""
        offset = source.epoch_ns - earliest_ns
        left = source.events  # a file that is still being written has more by now
        for event in source.trace.events():
            phase = event.get("ph")
            if phase in (None, "M") or event.get("name") in _OWN or not is_time(event.get("ts")):
                continue
            if not left:
                break
            left -= 1
            pid, tid = _id(event, "pid"), source.track(event)
            begin = offset + nanos(event.get("ts"))
            event["ts"] = begin // 1000
            if "dur" in event:
                event["dur"] = (begin + max(nanos(event["dur"]), 0)) // 1000 - begin // 1000
            event["pid"] = self._pids[number, pid]
            event["tid"] = self._tids.get((number, pid, tid), 0)
            event["name"] = str(event.get("name") or "-")
            event["cat"] = str(event.get("cat") or "trace")
            if phase == "i":
                event.setdefault("s", "t")
                event.setdefault("args", {})
            join = event.pop("id", None)
            if phase in _FLOWS and join is not None:
                event["id"] = self._joins.setdefault((number, str(join)), len(self._joins) + 1)
            yield event


def _id(event: Event, key: str) -> str:
    """A process's or a track's, which may be a number or a text."""
    return str(event.get(key, 0))
