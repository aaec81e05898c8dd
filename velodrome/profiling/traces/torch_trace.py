"""What a trace of PyTorch's profiler says: our parts inside the epochs, and the operators by their own CPU time.

The time of an operator is its own where no operator that it called was running, on the same thread.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.profiling.traces.trace_events import TraceEvents, encodable, is_time, nanos

Json = dict[str, Any]

_PART = "user_annotation"
_CALLS = ("cpu_op", "cuda_runtime", "cuda_driver", _PART)
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_PROFILER_STEP = "ProfilerStep#"
_NUMBER = re.compile(r" \d+$")
_MOST_PARTS = 1000
_DEEPEST = 50  # part in a part


@dataclass(slots=True)
class ThreadCalls:
    """Stretches of one thread, in columns: a large trace has millions."""

    start: array[int] = field(default_factory=lambda: array("q"))
    took: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("l"))

    def append(self, start: int, took: int, name: int) -> None:
        """Add one."""
        self.start.append(start)
        self.took.append(took)
        self.name.append(name)

    def nested(self, names: Set[int] | None = None) -> Iterator[tuple[int, Sequence[int]]]:
        """Each one (of these names), outer ones first, with those around it that it lies in."""
        start, took = self.start, self.took
        some = [index for index, name in enumerate(self.name) if names is None or name in names]
        order = sorted(some, key=took.__getitem__, reverse=True)
        order.sort(key=start.__getitem__)
        around: list[int] = []
        for index in order:
            while around and start[around[-1]] + took[around[-1]] <= start[index]:
                around.pop()
            yield index, around
            around.append(index)


@dataclass(slots=True)
class OperatorTime:
    """How often, and for how long."""

    count: int = 0
    total_ns: int = 0
    self_ns: int = 0

    def add(self, took: int) -> None:
        self.count += 1
        self.total_ns += took
        self.self_ns += took

    def as_json(self, whole_ns: int, share_ns: int) -> Json:
        """Milliseconds."""
        total_ms = self.total_ns / 1e6
        return {
            "count": self.count,
            "total_ms": total_ms,
            "mean_ms": total_ms / self.count if self.count else 0.0,
            "self_ms": self.self_ns / 1e6,
            "share": share_ns / whole_ns if whole_ns else 0.0,
        }


def read_torch_trace(path: Path) -> Json:
    """Epochs and parts, operators, kernels of a device; the largest first."""
    trace = TraceEvents(path)
    if not trace.torch:
        whose = (
            "of a collection: give its rollouts file, or --merge" if trace.start else "no trace of PyTorch's profiler"
        )
        raise InputError(f"{path}: {whose}")
    names: dict[str, int] = {}
    threads: defaultdict[str, ThreadCalls] = defaultdict(ThreadCalls)
    device: defaultdict[str, OperatorTime] = defaultdict(OperatorTime)
    parts: set[int] = set()  # and below: of names
    operators: set[int] = set()
    events, first, last = 0, None, 0
    for event in trace.events():
        events += 1
        cat = event.get("cat")
        if event.get("ph") != "X" or not (cat in _CALLS or cat in _DEVICE) or not is_time(event.get("ts")):
            continue
        begin, took, name = nanos(event.get("ts")), max(nanos(event.get("dur")), 0), encodable(event.get("name"))
        first, last = begin if first is None else min(first, begin), max(last, begin + took)
        if cat in _DEVICE:
            device[name].add(took)
            continue
        number = names.setdefault(name, len(names))
        threads[str((event.get("pid"), event.get("tid")))].append(begin, took, number)
        if cat != _PART:
            operators.add(number)
        elif not name.startswith(_PROFILER_STEP):
            parts.add(number)
    if first is None:
        raise InputError(f"{path}: nothing was recorded in it; trainer.profiler.active_steps says for how many epochs")
    known = list(names)
    by_operator = _operators(threads.values())
    return {
        "kind": "torch_trace",
        "file": str(path),
        "began_at": None if trace.epoch_ns is None else (trace.epoch_ns + first) / 1e9,
        "seconds": (last - first) / 1e9,
        "events": events,
        "threads": len(threads),
        "parts": _parts(threads.values(), known, parts),
        "operators": _ranked({known[each]: time for each, time in by_operator.items() if each in operators}),
        "kernels": _ranked(device),
        "notes": trace.lacking("read"),
    }


def _operators(threads: Iterable[ThreadCalls]) -> dict[int, OperatorTime]:
    sums: defaultdict[int, OperatorTime] = defaultdict(OperatorTime)
    for calls in threads:
        for index, around in calls.nested():
            outer = calls.name[around[-1]] if around else None
            if outer == calls.name[index]:
                continue  # an operator that dispatches to itself: one call, as in PyTorch's own tables
            sums[calls.name[index]].add(calls.took[index])
            if outer is not None:
                sums[outer].self_ns -= calls.took[index]
    return sums


def _ranked(sums: Mapping[str, OperatorTime]) -> list[Json]:
    """By their own time; the share is of all of them together."""
    whole = sum(time.self_ns for time in sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1].self_ns, item[0]))
    return [{"name": name, **time.as_json(whole, time.self_ns)} for name, time in ranked]


def _parts(threads: Iterable[ThreadCalls], known: list[str], parts: set[int]) -> list[Json]:
    """Epochs and what is in them, as a tree in the order of a walk; the share is of what lies in nothing else."""
    short = [_NUMBER.sub("", name) for name in known]
    sums: dict[tuple[str, ...], OperatorTime] = {}
    for calls in threads:
        for index, around in calls.nested(parts):
            if len(around) >= _DEEPEST:
                continue
            above = tuple([short[calls.name[outer]] for outer in around])
            way = (*above, short[calls.name[index]])
            if way not in sums and len(sums) >= _MOST_PARTS:
                continue
            sums.setdefault(way, OperatorTime()).add(calls.took[index])
            if above in sums:
                sums[above].self_ns -= calls.took[index]
    whole = sum(time.total_ns for way, time in sums.items() if len(way) == 1)

    def below(above: tuple[str, ...]) -> Iterator[Json]:
        ways = [way for way in sums if way[:-1] == above]
        for way in sorted(ways, key=lambda way: -sums[way].total_ns):
            yield {"name": way[-1], "depth": len(above), **sums[way].as_json(whole, sums[way].total_ns)}
            yield from below(way)

    return list(below(()))
