"""Rollouts as a Chrome trace, drawn from their rows: a track for each slot in flight, others for each server.

Rollouts on one slot follow one another. Tool calls that ran side by side get lanes of their own below it. A span is
cut to the span around it, so stretches on a track nest even if the clocks of two machines differ. Timestamps are
microseconds since 1970. The counters come from `rollouts.samples.jsonl`.
"""

from __future__ import annotations

import gzip
from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.mending import HOSTILE
from velodrome.records.outfile import OutFile
from velodrome.records.rollout import beside
from velodrome.records.rows import Unread, read_attempts

Json = dict[str, Any]
Event = dict[str, Any]
Node = list[Any]  # [name, start in µs, length in µs, counts, children]

SUFFIXES = (".json", ".json.gz")
MAX_BYTES = 256_000_000
_HEAD = b'{"otherData": {"made_by": "velodrome"}, "displayTimeUnit": "ms", "traceEvents": [\n'
_COLLECTOR = 1  # the process id of the collector: rows do not name it
_FIRST_MADE_UP_PID = 1 << 23  # above every real one
_FIRST_LANE = 1_000_001  # thread ids of lanes; those of slots are below
_LANES = 1000  # places in the order of tracks that a slot has for its lanes
_ROUNDING_US = 2  # by which spans that followed each other may overlap


def process(pid: int, name: str, order: int) -> list[Event]:
    """Names a process, and gives it its place among the others."""
    return _named("process", pid, 0, name, order)


def thread(pid: int, tid: int, name: str, order: int) -> list[Event]:
    """Names a track of a process, and gives it its place among the others."""
    return _named("thread", pid, tid, name, order)


def _named(kind: str, pid: int, tid: int, name: str, order: int) -> list[Event]:
    about = {"ph": "M", "pid": pid, "tid": tid}
    return [
        {"name": f"{kind}_name", **about, "args": {"name": name}},
        {"name": f"{kind}_sort_index", **about, "args": {"sort_index": order}},
    ]


def complete(pid: int, tid: int, name: str, cat: str, start: int, end: int, args: Event | None = None) -> Event:
    """A stretch of time on a track."""
    event = {"name": name, "cat": cat, "ph": "X", "ts": start, "dur": end - start, "pid": pid, "tid": tid}
    if args:
        event["args"] = args
    return event


class _Lane:
    """One track. `end` is when the last stretch on it ended."""

    __slots__ = ("end", "pid", "tid")

    def __init__(self, pid: int, tid: int) -> None:
        self.pid = pid
        self.tid = tid
        self.end = 0


class Drawing:
    """The events of rollouts, which come in the order they finished in, and of samples."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []  # slots: when the last rollout on each ended, and its number
        self._lanes: dict[tuple[int, int], list[_Lane]] = {}
        self._pids = {("collector", 0): _COLLECTOR}
        self._tids = count(_FIRST_LANE)
        self._arrows = count(1)
        self._names: list[Event] = process(_COLLECTOR, "collector", 0)  # of processes and tracks, not returned yet
        self._before: tuple[float, int] | None = None  # the last sample: when, and how many rollouts were finished

    def rollout(self, facts: RowFacts) -> list[Event]:
        """One rollout or failed attempt; nothing if it has no times."""
        times, finished_at = facts.times, facts.finished_at
        if times is None or not finished_at or finished_at <= times.total_s:
            return []
        start, end = round((finished_at - times.total_s) * 1e6), round(finished_at * 1e6)
        slot = self._slot(start, end)
        lane = self._lane(_COLLECTOR, slot, start)
        name = "failed rollout" if facts.failed else "rollout"
        events = [complete(lane.pid, lane.tid, name, "rollout", start, end, _about(facts))]
        lane.end = end
        try:
            self._draw(times.tree, start, lane, slot, start, end, events)
        except HOSTILE:  # a row that was not written by a collection
            del events[1:]
        names, self._names = self._names, []
        return names + events

    def sample(self, sample: Json) -> list[Event]:
        """The counters of one sample, and a mark for each decision on the limit; nothing of what is not a sample."""
        try:
            at, finished = float(sample["at"]), sample["kept"] + sample["failed"]
            values = [
                ("in flight", "rollouts", float(sample["in_flight"])),
                ("limit", "rollouts", float(sample["limit"])),
                ("loop lag", "ms", round(sample["lag_s"] * 1e3, 3)),
                ("CPU", "cores", round(sample["cpu"], 3)),
            ]
            marks = [
                {"name": f"limit {before} to {after}", "ts": round(when * 1e6), "args": {"why": str(why)}}
                for when, before, after, why in sample.get("pace", ())
            ]
        except HOSTILE:
            return []
        if self._before is not None and finished >= self._before[1] and at > self._before[0]:
            per_s = (finished - self._before[1]) / (at - self._before[0])
            values.append(("throughput", "rollouts/s", round(per_s, 3)))
        self._before = at, finished
        of_all: Event = {"pid": _COLLECTOR, "tid": 0}
        names, self._names = self._names, []
        counters = [
            {"name": name, "cat": "counter", "ph": "C", "ts": round(at * 1e6), **of_all, "args": {unit: value}}
            for name, unit, value in values
        ]
        return [*names, *counters, *({**each, "cat": "trace", "ph": "i", "s": "g", **of_all} for each in marks)]

    def _slot(self, start: int, end: int) -> int:
        """The slot that was used last before the rollout began; a new one if none was free."""
        place = bisect_right(self._free, (start + _ROUNDING_US, _FIRST_LANE))
        slot = self._free.pop(place - 1)[1] if place else len(self._free)
        insort(self._free, (end, slot))
        return slot

    def _draw(
        self, nodes: list[Node], origin: int, lane: _Lane, slot: int, start: int, end: int, events: list[Event]
    ) -> None:
        """The spans below one that is drawn on a lane from start to end."""
        low = cursor = start
        first = len(events)
        if len(nodes) > 1:
            nodes = sorted(nodes, key=lambda node: float(node[1]))
            if end > start and any(node[0][:1] == "@" for node in nodes):
                low = cursor = start + 1  # an arrow begins with its stretch; what else does would be taken for it
        for name, offset, length, counts, below in nodes:
            begin = min(max(low, round(origin + offset)), end)
            until = min(max(begin, round(origin + offset + length)), end)
            if name[:1] == "@":
                there = self._server(name[1:], counts, slot, begin)
                events.append(complete(there.pid, there.tid, name[1:], "server", begin, until, counts))
                events[first:first], arrives = self._arrow((lane, start), (there, begin))
                events.append(arrives)
                there.end = until
            elif begin >= cursor - _ROUNDING_US:
                there, begin = lane, max(begin, cursor)
                cursor = until = max(begin, until)
                events.append(complete(there.pid, there.tid, name, "span", begin, until, counts))
            else:
                there = self._lane(lane.pid, slot, begin, aside=True)
                events.append(complete(there.pid, there.tid, name, "span", begin, until, counts))
                there.end = until
            if below:
                self._draw(below, origin, there, slot, begin, until, events)

    def _arrow(self, source: tuple[_Lane, int], target: tuple[_Lane, int]) -> tuple[list[Event], Event]:
        """An arrow between the stretches that begin at a moment on a lane.

        Its start must follow its own stretch in the file at once: viewers bind it to the one that was begun last.
        """
        ends = [
            {"name": "call", "cat": "flow", "id": 0, "ph": "s", "ts": at, "pid": lane.pid, "tid": lane.tid}
            for lane, at in (source, target)
        ]
        ends[0]["id"] = ends[1]["id"] = next(self._arrows)
        return [ends[0]], {**ends[1], "ph": "f", "bp": "e"}

    def _server(self, name: str, counts: Json | None, slot: int, begin: int) -> _Lane:
        """A track in the process that a span was in."""
        own_pid = int(counts.get("pid", 0)) if counts else 0
        pid = self._pids.get((name, own_pid))
        if pid is None:
            used = set(self._pids.values())
            pid = own_pid if own_pid > 0 and own_pid not in used else _FIRST_MADE_UP_PID + len(used)
            self._pids[name, own_pid] = pid
            self._names += process(pid, name, len(used))
        return self._lane(pid, slot, begin)

    def _lane(self, pid: int, slot: int, begin: int, *, aside: bool = False) -> _Lane:
        """The first track of a slot in a process that is free from this moment on, made if there is none."""
        lanes = self._lanes.setdefault((pid, slot), [])
        for lane in lanes[1:] if aside else lanes:
            if lane.end <= begin + _ROUNDING_US * (pid == _COLLECTOR and lane is lanes[0]):
                return lane
        number = len(lanes)
        tid = slot + 1 if pid == _COLLECTOR and number == 0 else next(self._tids)
        name = f"slot {slot}" if number == 0 else f"slot {slot}, side by side {number}"
        self._names += thread(pid, tid, name, slot * _LANES + number)
        lane = _Lane(pid, tid)
        lanes.append(lane)
        return lane


def _about(facts: RowFacts) -> Event:
    """What the stretch of a rollout says of it."""
    about: Event = {"key": facts.key, "agent": facts.agent, "reward": facts.reward}
    trace = facts.meta.get("trace")
    about["trace_id"] = trace.split("-")[1] if isinstance(trace, str) and trace.count("-") == 3 else None
    about["error"] = facts.error if facts.failed else None
    return {name: value for name, value in about.items() if value is not None}


def write_trace(rollouts: Path, target: Path, *, since: float = 0.0, max_bytes: int = MAX_BYTES) -> list[str]:
    """Draw what finished from `since` on (seconds since 1970); notes on what is not in the trace."""
    unread, drawing, is_packed = Unread(rollouts), Drawing(), target.suffix == ".gz"
    size = left_out = 0
    with OutFile(target) as out:
        packed = gzip.GzipFile(fileobj=out.stream, mode="wb", compresslevel=4, mtime=0) if is_packed else None
        write = out.write if packed is None else packed.write
        write(_HEAD)
        for events in _all_events(drawing, rollouts, since, unread):
            data = _encoded(events)
            if data is None or left_out or size + len(data) > max_bytes:
                left_out += 1
            elif data:
                write(b",\n" + data if size else data)
                size += len(data)
        write(b"\n]}\n")
        if packed is not None:
            packed.close()
        out.commit()
    full = f"{target}: full at {max_bytes / 1e6:g} MB (trace_max_mb); {left_out:,} rollouts and samples are not in it"
    return [*unread.notes, full] if left_out else unread.notes


def _encoded(events: list[Event]) -> bytes | None:
    """The events as JSON, without brackets; None if a name in them is not text."""
    try:
        return orjson.dumps(events)[1:-1]
    except TypeError:
        return None


def _all_events(drawing: Drawing, rollouts: Path, since: float, unread: Unread) -> Iterator[list[Event]]:
    for sample in read_samples(rollouts, since):
        yield drawing.sample(sample)
    for facts in read_attempts(rollouts, unread):
        if (facts.finished_at or 0.0) >= since:
            yield drawing.rollout(facts)


def read_samples(rollouts: Path, since: float = 0.0) -> Iterator[Json]:
    """The samples beside a rollouts file; a line that is not one, such as a torn one, is left out."""
    path = beside(rollouts, "samples.jsonl")
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                sample = orjson.loads(line)
            except ValueError:
                continue
            if isinstance(sample, dict) and isinstance(at := sample.get("at"), float) and at >= since:
                yield sample


def check_target(path: Path, output: Path | None = None) -> None:
    """Refuse a path that a trace cannot be written to, before anything runs. An earlier trace is replaced."""
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"{path}: a trace is called …{' or …'.join(SUFFIXES)}")
    own = [] if output is None else [beside(output, kind) for kind in ("run.json", "metrics.json", "profile.json")]
    if path.resolve() in [each.resolve() for each in own]:
        raise InputError(f"{path}: a collection into {output} writes this file itself; give the trace another name")
    try:
        if path.exists() and not (path.is_file() and _is_trace(path)):
            raise InputError(f"{path}: it is there and is not an earlier trace; give the trace another name")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _is_trace(path: Path) -> bool:
    """Whether a file is empty, or a trace of ours."""
    if not path.stat().st_size:
        return True
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(len(_HEAD)) == _HEAD
    except (OSError, EOFError):
        return False
