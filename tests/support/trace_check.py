"""A strict reading of the Trace Event format: what a viewer would forgive is a fault here."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]

NEEDED = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
    "C": {"name", "cat", "ph", "ts", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"},
    "i": {"name", "cat", "ph", "ts", "pid", "tid", "s", "args"},
}


def check_file(path: Path) -> list[Event]:
    """The events of a whole trace file without a fault."""
    data = path.read_bytes()
    trace = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    assert trace["otherData"] == {"made_by": "velodrome"}
    events: list[Event] = trace["traceEvents"]
    assert faults(events) == []
    return events


def faults(events: list[Event]) -> list[str]:
    """Everything that is wrong with a trace."""
    wrong = [fault for event in events for fault in _shape(event)]
    if wrong:
        return wrong
    return [*_clock(events), *_undeclared(events), *_overlaps(events), *_flows(events), *_counters(events)]


def _shape(event: Event) -> list[str]:
    needed = NEEDED.get(str(event.get("ph")))
    if needed is None:
        return [f"unknown phase: {event}"]
    wrong = [f"lacks {sorted(needed - set(event))}: {event}"] if needed - set(event) else []
    wrong += [
        f"{name} is not a whole number: {event}"
        for name in ("pid", "tid", "ts", "dur", "id")
        if name in event and type(event[name]) is not int
    ]
    if not wrong and (event.get("dur", 0) < 0 or event["pid"] <= 0 or event["tid"] < 0 or not event["name"]):
        wrong.append(f"out of range: {event}")
    return wrong


def _clock(events: list[Event]) -> list[str]:
    """Counters do not go back in time."""
    wrong = []
    latest: dict[Any, int] = {}
    for event in events:
        if event["ph"] == "C":
            key = (event["pid"], event["name"])
            if event["ts"] < latest.get(key, 0):
                wrong.append(f"a counter goes back in time: {event}")
            latest[key] = event["ts"]
    return wrong


def _undeclared(events: list[Event]) -> list[str]:
    """Names come before use, once, and no two tracks of a process are called the same."""
    wrong = []
    declared: dict[Any, str] = {}
    used: set[Any] = set()
    for event in events:
        if event["name"] in ("process_name", "thread_name"):
            key = (event["pid"],) if event["name"] == "process_name" else (event["pid"], event["tid"])
            if key in declared or key in used:
                wrong.append(f"named late, or twice: {event}")
            declared[key] = event["args"]["name"]
        elif event["ph"] in "Xsf":
            used |= {(event["pid"],), (event["pid"], event["tid"])}
        elif event["ph"] == "C":
            used.add((event["pid"],))
    names = [(key[0], name) for key, name in declared.items() if len(key) == 2]
    wrong += [f"two tracks called {name}" for name in set(names) if names.count(name) > 1]
    tids = [key[1] for key in declared if len(key) == 2]
    wrong += [f"two tracks with tid {tid}" for tid in set(tids) if tids.count(tid) > 1]
    return wrong + [f"no name for {key}" for key in sorted(used - set(declared))]


def tracks(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """The stretches of each track, outer ones first."""
    result = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            result[event["pid"], event["tid"]].append(event)
    return {key: sorted(each, key=lambda event: (event["ts"], -event["dur"])) for key, each in result.items()}


def _overlaps(events: list[Event]) -> list[str]:
    wrong = []
    for stretches in tracks(events).values():
        above: list[Event] = []
        for event in stretches:
            while above and above[-1]["ts"] + above[-1]["dur"] <= event["ts"]:
                above.pop()
            if above and event["ts"] + event["dur"] > above[-1]["ts"] + above[-1]["dur"]:
                wrong.append(f"{event} sticks out of {above[-1]}")
            above.append(event)
    return wrong


def _flows(events: list[Event]) -> list[str]:
    wrong = []
    ends: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            ends[event["cat"], event["name"], event["id"]].append(event)
    there = tracks(events)
    for key, pair in ends.items():
        if [event["ph"] for event in pair] != ["s", "f"] or pair[0]["ts"] > pair[1]["ts"]:
            wrong.append(f"not one start and one end after it: {key} {pair}")
        for event in pair:
            stretches = there.get((event["pid"], event["tid"]), [])
            if not any(each["ts"] <= event["ts"] <= each["ts"] + each["dur"] for each in stretches):
                wrong.append(f"hangs in the air: {event}")
    return wrong


def _counters(events: list[Event]) -> list[str]:
    return [
        f"not a number: {event}"
        for event in events
        if event["ph"] == "C"
        and not (
            event["args"]
            and all(type(value) in (int, float) and math.isfinite(value) for value in event["args"].values())
        )
    ]
