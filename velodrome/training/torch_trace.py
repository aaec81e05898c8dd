"""Reads a trace of PyTorch's profiler: our parts inside the epochs, and the operators by their own CPU time.

The time of an operator is its own where no operator that it called was running, on the same thread.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.timing.figures import counted, duration
from velodrome.timing.report import sections, table

Json = dict[str, Any]
Stretch = tuple[int, int, str]  # start and length in nanoseconds, name

LARGEST_BYTES = 200_000_000  # unpacked; events take ten times that in memory

_PART = "user_annotation"
_CALLS = ("cpu_op", "cuda_runtime", "cuda_driver", _PART)
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_PROFILER_STEP = "ProfilerStep#"
_NUMBER = re.compile(r" \d+$")
_WRONG = (
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


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

    def as_json(self, share_ns: int, whole_ns: int) -> Json:
        total_ms = self.total_ns / 1e6
        return {
            "count": self.count,
            "total_ms": total_ms,
            "mean_ms": total_ms / self.count,
            "self_ms": self.self_ns / 1e6,
            "share": share_ns / whole_ns if whole_ns else 0.0,
        }


def read_torch_trace(path: Path) -> Json:
    """Epochs and parts, operators, kernels of a device; the largest first."""
    data = _loaded(path)
    if not isinstance(data, dict) or "deviceProperties" not in data:
        raise InputError(f"{path}: no trace of PyTorch's profiler")
    threads: defaultdict[str, list[Stretch]] = defaultdict(list)
    device: defaultdict[str, OperatorTime] = defaultdict(OperatorTime)
    parts: set[str] = set()
    try:
        base_ns, first, last = data.get("baseTimeNanoseconds"), 10**30, 0
        for event in data["traceEvents"]:
            cat = event.get("cat")
            if event.get("ph") != "X" or not (cat in _CALLS or cat in _DEVICE):
                continue
            start, took = round(event["ts"] * 1000), round(event["dur"] * 1000)
            name = str(event["name"]).encode("utf-8", "replace").decode()  # JSON may have halves of characters
            first, last = min(first, start), max(last, start + took)
            if cat in _DEVICE:
                device[name].add(took)
                continue
            threads[f"{event['pid']} {event['tid']}"].append((start, took, name))
            if cat == _PART:
                parts.add(name)
        began_at = None if base_ns is None else (base_ns + first) / 1e9
    except _WRONG as error:
        raise InputError(f"{path}: not a trace ({type(error).__name__} in its events)") from error
    if not last:
        raise InputError(f"{path}: nothing was recorded in it; trainer.profiler.active_steps says for how many epochs")
    return {
        "kind": "torch_trace",
        "file": str(path),
        "began_at": began_at,
        "seconds": (last - first) / 1e9,
        "events": len(data["traceEvents"]),
        "threads": len(threads),
        "parts": _part_tree(threads.values(), {name for name in parts if not name.startswith(_PROFILER_STEP)}),
        "operators": _ranked({k: time for k, time in _operators(threads.values()).items() if k not in parts}),
        "kernels": _ranked(device),
    }


def _loaded(path: Path) -> Any:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(LARGEST_BYTES + 1)
        if len(text) > LARGEST_BYTES:
            limit = f"{LARGEST_BYTES / 1e6:,.0f} MB"
            raise InputError(f"{path}: larger than {limit} unpacked; trace fewer steps, or open it in Perfetto")
        return json.loads(text.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: not a trace, or not a whole one ({error!s:.80})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _nested(stretches: Iterable[Stretch]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Each stretch of a thread, outer ones first: the names around it and its own, and its length."""
    around: list[tuple[int, str]] = []  # end, name
    for start, took, name in sorted(stretches, key=lambda each: (each[0], -each[1])):
        while around and around[-1][0] <= start:
            around.pop()
        around.append((start + took, name))
        yield tuple(inside for _, inside in around), took


def _operators(threads: Iterable[list[Stretch]]) -> Mapping[str, OperatorTime]:
    sums: defaultdict[str, OperatorTime] = defaultdict(OperatorTime)
    for stretches in threads:
        for (*outer, name), took in _nested(stretches):
            if outer[-1:] == [name]:
                continue  # an operator that dispatches to itself: one call, as in PyTorch's own tables
            sums[name].add(took)
            if outer:
                sums[outer[-1]].self_ns -= took
    return sums


def _ranked(sums: Mapping[str, OperatorTime]) -> list[Json]:
    """By their own time; the share is of all of them together."""
    whole = sum(time.self_ns for time in sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1].self_ns, item[0]))
    return [{"name": name, **time.as_json(time.self_ns, whole)} for name, time in ranked]


def _part_tree(threads: Iterable[list[Stretch]], parts: set[str]) -> list[Json]:
    """Epochs and what is in them, each followed by its parts; the share is of the outermost ones."""
    sums: defaultdict[tuple[str, ...], OperatorTime] = defaultdict(OperatorTime)
    for stretches in threads:
        for names, took in _nested((start, took, name) for start, took, name in stretches if name in parts):
            way = tuple(_NUMBER.sub("", name) for name in names)
            sums[way].add(took)
            if way[:-1]:
                sums[way[:-1]].self_ns -= took
    whole = sum(time.total_ns for way, time in sums.items() if len(way) == 1)

    def below(above: tuple[str, ...]) -> Iterator[Json]:
        inside = [way for way in sums if way[:-1] == above]
        for way in sorted(inside, key=lambda way: -sums[way].total_ns):
            yield {"name": way[-1], "depth": len(above), **sums[way].as_json(sums[way].total_ns, whole)}
            yield from below(way)

    return list(below(()))


def torch_report(trace: Json, *, top: int = 10) -> str:
    """Epochs with their parts, operators, kernels."""
    began = trace["began_at"]
    from_when = "" if began is None else f" from {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:%S} UTC"
    title = f"PyTorch trace ({counted(trace['events'], 'event')}, {duration(trace['seconds'] * 1e3)}{from_when})"
    return sections(
        [
            ("", [title]),
            ("Epochs and parts", [_parts_table(trace["parts"])] if trace["parts"] else []),
            ("Operators by their own CPU time", _ranking(trace["operators"], "operator", top)),
            ("Work of the device", _ranking(trace["kernels"], "kernel", top)),
        ]
    )


def _parts_table(parts: Sequence[Json]) -> str:
    rows = [(f"{'  ' * each['depth']}{each['name']}", *_numbers(each)) for each in parts]
    return table(("part", "count", "total", "mean", "not in inner parts", "share"), rows)


def _ranking(ranked: Sequence[Json], what: str, top: int) -> list[str]:
    if not ranked:
        return []
    rows = [(each["name"], *_numbers(each)) for each in ranked[:top]]
    more = len(ranked) - len(rows)
    shown = table((what, "count", "total", "mean", "own", "share of own"), rows)
    return [shown, f"and {more} more"] if more > 0 else [shown]


def _numbers(each: Json) -> tuple[str, ...]:
    times = (duration(each[name]) for name in ("total_ms", "mean_ms", "self_ms"))
    return f"{each['count']:,}", *times, f"{each['share']:.1%}"
