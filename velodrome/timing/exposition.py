"""Counters and gauges in the text format that Prometheus reads. Labels are bounded where samples are added."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Literal, NamedTuple

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]  # names and values


class Metric(NamedTuple):
    """One name with its samples. The name of a counter ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    samples: dict[Labels, float]


class Metrics:
    """The counters and gauges of a process."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, about: str) -> Metric:
        """A number that only grows."""
        return self._metrics.setdefault(name, Metric(name, "counter", about, {}))

    def gauge(self, name: str, about: str) -> Metric:
        """A number that can rise and fall."""
        return self._metrics.setdefault(name, Metric(name, "gauge", about, {}))

    def all(self) -> list[Metric]:
        """All metrics, including those of the process."""
        return [*self._metrics.values(), *process_metrics()]


def add(metric: Metric, labels: Labels = (), amount: float = 1.0) -> None:
    """Increase a sample."""
    metric.samples[labels] = metric.samples.get(labels, 0.0) + amount


def process_metrics() -> list[Metric]:
    """The CPU time of this process and, if the system has /proc, its memory, open files and start time."""
    result = [Metric("process_cpu_seconds_total", "counter", "CPU time in seconds.", {(): time.process_time()})]
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        memory = float(int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
        started = int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        files = float(len(os.listdir("/proc/self/fd")))
        result += [
            Metric("process_resident_memory_bytes", "gauge", "Memory in RAM.", {(): memory}),
            Metric("process_start_time_seconds", "gauge", "When the process began, since 1970.", {(): started}),
            Metric("process_open_fds", "gauge", "Open file descriptors.", {(): files}),
        ]
    return result


def merged(groups: Iterable[tuple[Mapping[str, str], Iterable[Metric]]]) -> list[Metric]:
    """The metrics of several processes as one, each sample with the labels of its group."""
    result: dict[str, Metric] = {}
    for group_labels, group in groups:
        for name, kind, about, samples in group:
            metric = result.setdefault(name, Metric(name, kind, about, {}))
            metric.samples.update({(*group_labels.items(), *labels): value for labels, value in samples.items()})
    return list(result.values())


def render(metrics: Iterable[Metric]) -> bytes:
    """The metrics as text."""
    lines = []
    for name, kind, about, samples in metrics:
        lines += [f"# HELP {name} {about.translate(_ESCAPES)}", f"# TYPE {name} {kind}"]
        for labels, value in samples.items():
            inside = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
            lines.append(f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _number(value: float) -> str:
    return repr(float(value)) if isfinite(value) else "NaN"
