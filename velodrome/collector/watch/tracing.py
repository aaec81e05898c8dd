"""A collection as a Chrome trace: a track for each slot in flight, and one for what each server did for it.

Rollouts of one slot follow one another, so a track of a slot never has two at once; what runs side by side inside one
rollout (the tool calls of a turn) gets lanes of its own below. A span is cut to the one it belongs to, so stretches on
a track always nest, whatever another machine's clock said.
"""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from velodrome.collector.watch.watch import Done, Sample
from velodrome.errors import InputError
from velodrome.records.rollout import beside
from velodrome.timing import chrome
from velodrome.timing.chrome import MAX_BYTES, Event, TraceWriter, micros
from velodrome.timing.profiles import shift
from velodrome.timing.spans import Clock, Span

_SIDE_FILES = ("run.json", "metrics.json", "profile.json")
_FIRST_MADE_UP_PID = 1 << 23  # above every real one
_FIRST_LANE = 1_000_001  # thread ids of lanes; those of slots are below
_SHORTEST_S = 0.1  # of a stretch that throughput is told for: a run's last sample may follow the one before at once
_ROUNDING_US = 2  # by which spans that followed each other may overlap once a server has told them
_LANES = 1000  # places in the order of tracks that a slot has for its lanes


class Lane:
    """One track. `end` is when the last stretch put on it from outside ended."""

    __slots__ = ("end", "pid", "tid")

    def __init__(self, pid: int, tid: int) -> None:
        self.pid = pid
        self.tid = tid
        self.end = 0


class Tracing:
    """The watcher that writes a trace. `notes` says, once it is closed, what the trace lacks."""

    def __init__(
        self,
        path: Path,
        *,
        output: Path | None = None,
        max_bytes: int = MAX_BYTES,
        clock: Clock = time.perf_counter,
    ) -> None:
        check_room(path, output)
        self._open = partial(TraceWriter, path, max_bytes=max_bytes, clock=clock)
        self._opened: TraceWriter | None = None
        self.path = path
        self.pid = os.getpid()
        self._lanes: dict[tuple[int, int], list[Lane]] = {}
        self._pids: dict[tuple[str, int], int] = {("collector", self.pid): self.pid}
        self._tids = count(_FIRST_LANE)
        self._flows = count(1)
        self._since: tuple[float, int] | None = None  # when throughput was last told, and how many were done then
        self._names: list[Event] = []  # of processes and tracks, not written yet

    @property
    def notes(self) -> list[str]:
        """What the trace lacks, once it is closed."""
        return [] if self._opened is None else self._opened.notes

    @property
    def _writer(self) -> TraceWriter:
        """The file, opened when there is something to write: a command that is refused leaves the earlier trace."""
        if self._opened is None:
            make_room(self.path)
            self._opened = self._open()
            self._opened.add(chrome.process(self.pid, "collector", 0))
        return self._opened

    def finished(self, done: Done) -> None:
        """Draw one attempt."""
        if not self._writer.open:
            self._writer.drop("rollouts")
            return
        spans = done.spans
        if self._since is None:
            self._since = spans.start, 0
        start = micros(spans.start)
        events: list[Event] = []
        slot = done.slot
        lane = self._lane(self.pid, slot, start)
        end = max(start, micros(spans.start + spans.seconds))
        name = "rollout" if done.kept else "failed rollout"
        events.append(chrome.complete(lane.pid, lane.tid, name, "rollout", start, end, about(done)))
        lane.end = end
        self._draw(spans, lane, slot, start, end, events)
        if done.written is not None:
            start = max(end, micros(done.written[0]))
            lane.end = max(start, micros(done.written[1]))
            events.append(chrome.complete(lane.pid, lane.tid, "write", "rollout", start, lane.end))
        if self._writer.add(self._names + events, "rollouts"):
            self._names = []

    def sampled(self, sample: Sample) -> None:
        """Draw the counters, and hand what there is to the system."""
        at, pid = micros(sample.at), self.pid
        values: list[tuple[str, str, float]] = [
            ("in flight", "rollouts", sample.in_flight),
            ("limit", "rollouts", sample.limit),
        ]
        values += [("loop lag", "ms", round(sample.lag_s * 1e3, 3)), ("CPU", "cores", round(sample.cpu, 3))]
        if self._since is not None:
            since, before = self._since
            seconds, done = sample.at - since, sample.kept + sample.failed
            if seconds >= _SHORTEST_S or (seconds > 0 and not before):
                values.append(("throughput", "rollouts/s", round((done - before) / seconds, 3)))
                self._since = sample.at, done
        events = [chrome.counter(pid, name, unit, at, value) for name, unit, value in values]
        for when, before, after, why in sample.decisions:
            events.append(chrome.instant(pid, f"limit {before} to {after}", micros(when), {"why": why}))
        self._writer.add(events, "samples")
        self._writer.flush()

    def close(self) -> None:
        """End the file."""
        if self._opened is not None:
            self._opened.close()

    def _draw(self, above: Span, lane: Lane, slot: int, start: int, end: int, events: list[Event]) -> None:
        """The spans below one that is drawn on a lane from start to end."""
        low = cursor = start
        first = len(events)
        children = above.children
        if len(children) > 1:
            children = sorted(children, key=_start)
            if end > start and any(span.name[:1] == "@" for span in children):
                low = cursor = start + 1  # an arrow begins with its stretch; what else does would be taken for it
        for span in children:
            begin = min(max(low, micros(span.start)), end)
            until = end if span.end is None else min(max(begin, micros(span.end)), end)
            name, args = span.name, span.counts
            if name[:1] == "@":
                there = self._server(span, slot, begin)
                name, cat = name[1:], "server"
                events.append(chrome.complete(there.pid, there.tid, name, cat, begin, until, args))
                call = (lane.pid, lane.tid, start), (there.pid, there.tid, begin)
                going, coming = chrome.flow(next(self._flows), "call", *call)
                events.append(coming)
                events.insert(first, going)
                there.end = until
            elif begin >= cursor - _ROUNDING_US:
                there, begin = lane, max(begin, cursor)
                cursor = until = max(begin, until)
                events.append(chrome.complete(lane.pid, lane.tid, name, "span", begin, until, args))
            else:
                there = self._lane(lane.pid, slot, begin, aside=True)
                events.append(chrome.complete(there.pid, there.tid, name, "span", begin, until, args))
                there.end = until
            if span.children:
                self._draw(span, there, slot, begin, until, events)

    def _server(self, span: Span, slot: int, begin: int) -> Lane:
        """A track in the process that the span was in."""
        name = span.name[1:]
        own_pid = int(span.counts.get("pid", 0)) if span.counts else 0
        pid = self._pids.get((name, own_pid))
        if pid is None:
            taken = set(self._pids.values())
            pid = own_pid if own_pid > 0 and own_pid not in taken else _FIRST_MADE_UP_PID + len(taken)
            self._pids[name, own_pid] = pid
            self._names += chrome.process(pid, name, len(taken))
        return self._lane(pid, slot, begin)

    def _lane(self, pid: int, slot: int, begin: int, *, aside: bool = False) -> Lane:
        """The first track of a slot in a process that is free from this moment on, made if there is none."""
        lanes = self._lanes.setdefault((pid, slot), [])
        for lane in lanes[1:] if aside else lanes:
            if lane.end <= begin:
                return lane
        number = len(lanes)
        tid = slot + 1 if pid == self.pid and number == 0 else next(self._tids)
        name = f"slot {slot}" if number == 0 else f"slot {slot}, side by side {number}"
        self._names += chrome.thread(pid, tid, name, slot * _LANES + number)
        lane = Lane(pid, tid)
        lanes.append(lane)
        return lane


def _start(span: Span) -> float:
    return span.start


def about(done: Done) -> dict[str, Any]:
    """What a rollout's stretch says of it."""
    result: dict[str, Any] = {"key": done.key, "agent": done.agent}
    if done.reward is not None:
        result["reward"] = done.reward
    if done.error is not None:
        result["error"] = done.error
    result["trace_id"] = done.trace.split("-")[1] if done.trace.count("-") == 3 else done.trace
    return result


def _written(output: Path) -> list[Path]:
    return [output, *(beside(output, kind) for kind in _SIDE_FILES)]


def check_room(path: Path, output: Path | None = None) -> None:
    """Refuse a path that a trace cannot be written to, before anything runs."""
    chrome.checked(path)
    if output is not None and path.resolve() in _written(output.resolve()):
        raise InputError(f"{path}: a collection into {output} writes this file itself; give the trace another name")
    try:
        there = path.exists() and not (path.is_file() and path.stat().st_size == 0)
        if there and not (path.is_file() and chrome.ours(path)):
            raise InputError(f"{path}: it is there and is not an earlier trace; give the trace another name")
        folder = next(each for each in path.absolute().parents if each.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise InputError(f"{path}: cannot be written: no folder can be made or written to there")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def make_room(path: Path) -> None:
    """Keep an earlier trace as `<name>.1`, the one before it as `.2`."""
    try:
        if path.exists() and path.stat().st_size:
            shift(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
