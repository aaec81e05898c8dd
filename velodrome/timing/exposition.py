"""Counters, gauges and histograms in memory, and Prometheus' text format (0.0.4) for them.

Updating is a dictionary lookup and an addition; whatever takes longer happens when somebody asks. A label never has
more than `MOST_VALUES` values: those that come later are counted under "other", so that a name which somebody made
up cannot fill the memory.
"""

from __future__ import annotations

import math
import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_VALUES = 100
OTHER = "other"
DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
LAGS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_LONGEST_VALUE = 200
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Labels = tuple[str, ...]
Family = dict[str, Any]  # {"name", "type", "help", "samples": [[name, [[label, value], …], "number"], …]}, as JSON


class Metric(Protocol):
    """One family of numbers."""

    def family(self) -> Family:
        """What it is now."""


M = TypeVar("M", bound=Metric)


class _Labelled:
    """The labels of a family, and the bound on their values."""

    kind = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, most: int = MOST_VALUES) -> None:
        for each in (name, *labels):
            if not _NAME.fullmatch(each):
                raise ValueError(f"{each!r} is no name for a metric or a label")
        self.name = name
        self.labels = tuple(labels)
        self._text = text
        self._most = most
        self._values: tuple[set[str], ...] = tuple(set() for _ in labels)

    def admitted(self, given: Labels) -> Labels:
        """Labels as they are kept: a value that is one too many, endless or no text is "other"."""
        if len(given) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {given!r:.200}")
        return tuple(self._admitted(value, known) for value, known in zip(given, self._values, strict=True))

    def _admitted(self, value: str, known: set[str]) -> str:
        if value in known or value == OTHER:
            return value
        if len(known) >= self._most or len(value) > _LONGEST_VALUE or not _encodable(value):
            return OTHER
        known.add(value)
        return value

    def told(self, samples: Iterable[tuple[str, Labels, Sequence[tuple[str, str]], float]]) -> Family:
        """The family as JSON, from each sample's suffix, labels, further labels and value."""
        return {
            "name": self.name,
            "type": self.kind,
            "help": self._text,
            "samples": [
                [self.name + suffix, [*zip(self.labels, labels, strict=True), *more], number(value)]
                for suffix, labels, more, value in samples
            ],
        }


class Counter(_Labelled):
    """A number that only rises."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, most: int = MOST_VALUES) -> None:
        if not name.endswith("_total"):
            raise ValueError(f"{name}: the name of a counter ends in _total")
        super().__init__(name, text, labels, most=most)
        self._counts: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Count."""
        counts = self._counts
        if labels in counts:
            counts[labels] += amount
        else:
            labels = self.admitted(labels)
            counts[labels] = counts.get(labels, 0) + amount

    def rise_to(self, total: float, labels: Labels = ()) -> None:
        """Take over a total that is counted elsewhere."""
        labels = labels if labels in self._counts else self.admitted(labels)
        self._counts[labels] = max(total, self._counts.get(labels, 0))

    def family(self) -> Family:
        """What it is now."""
        return self.told(("", labels, (), value) for labels, value in sorted(self._counts.items()))


class Gauge(_Labelled):
    """A number that rises and falls: set, or asked for with `ask` when somebody looks."""

    kind = "gauge"

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, ask: Callable[[], float] | None = None
    ) -> None:
        super().__init__(name, text, labels)
        self._ask = ask
        self._now: dict[Labels, float] = {}

    def put(self, value: float, labels: Labels = ()) -> None:
        """Replace the number."""
        self._now[labels if labels in self._now else self.admitted(labels)] = value

    def family(self) -> Family:
        """What it is now."""
        if self._ask is not None:
            self.put(self._ask())
        return self.told(("", labels, (), value) for labels, value in sorted(self._now.items()))


class Summary(_Labelled):
    """How many numbers there were, and what they add up to."""

    kind = "summary"

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, most: int = MOST_VALUES) -> None:
        super().__init__(name, text, labels, most=most)
        self._series: dict[Labels, list[float]] = {} if labels else {(): [0, 0.0]}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """One number more."""
        found = self._series.get(labels)
        if found is None:
            found = self._series.setdefault(self.admitted(labels), [0, 0.0])
        found[0] += 1
        found[1] += value

    def family(self) -> Family:
        """What it is now."""
        series = sorted(self._series.items())
        return self.told(
            sample
            for labels, (count, total) in series
            for sample in (("_sum", labels, (), total), ("_count", labels, (), count))
        )


class Histogram(_Labelled):
    """How many numbers there were up to each bound, and what they add up to."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = DURATIONS_S,
        *,
        most: int = MOST_VALUES,
    ) -> None:
        if list(bounds) != sorted(set(bounds)) or not all(map(math.isfinite, bounds)):
            raise ValueError(f"{name}: the bounds of a histogram are finite and rise")
        super().__init__(name, text, labels, most=most)
        self._bounds = list(bounds)
        self._series: dict[Labels, list[float]] = {} if labels else {(): self._new()}

    def _new(self) -> list[float]:
        return [0] * (len(self._bounds) + 1) + [0.0]  # a count a bucket, then the sum

    def observe(self, value: float, labels: Labels = ()) -> None:
        """One number more."""
        found = self._series.get(labels)
        if found is None:
            found = self._series.setdefault(self.admitted(labels), self._new())
        found[bisect_left(self._bounds, value)] += 1
        found[-1] += value

    def family(self) -> Family:
        """What it is now."""
        samples: list[tuple[str, Labels, Sequence[tuple[str, str]], float]] = []
        for labels, series in sorted(self._series.items()):
            *counts, total = list(series)  # a copy: another thread may be counting
            below = 0.0
            for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
                below += count
                samples.append(("_bucket", labels, (("le", number(bound)),), below))
            samples += [("_sum", labels, (), total), ("_count", labels, (), below)]
        return self.told(samples)


class Registry:
    """Metrics that are told together, in the order they were made."""

    def __init__(self) -> None:
        self._metrics: list[Metric] = []

    def add(self, metric: M) -> M:
        """Tell this one too."""
        self._metrics.append(metric)
        return metric

    def families(self) -> list[Family]:
        """All of them as JSON, those of the process at the end."""
        return [*(metric.family() for metric in self._metrics), *process_families()]


def with_label(families: Iterable[Family], label: str, value: str) -> list[Family]:
    """The same families, each sample with one more label, in front."""
    return [
        {**each, "samples": [[name, [[label, value], *labels], text] for name, labels, text in each["samples"]]}
        for each in families
    ]


def merged(groups: Iterable[Iterable[Family]]) -> list[Family]:
    """Families of one name become one: the format wants them together."""
    found: dict[str, Family] = {}
    for group in groups:
        for family in group:
            first = found.setdefault(family["name"], {**family, "samples": []})
            first["samples"] += family["samples"]
    return list(found.values())


def render(families: Iterable[Family]) -> bytes:
    """The text that Prometheus reads."""
    lines: list[str] = []
    for family in families:
        text = family["help"].replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {family['name']} {text}", f"# TYPE {family['name']} {family['type']}"]
        for name, labels, value in family["samples"]:
            told = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels)
            lines.append(f"{name}{{{told}}} {value}" if told else f"{name} {value}")
    return ("\n".join(lines) + "\n").encode()


def number(value: float) -> str:
    """A number as Prometheus writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def process_families(proc: Path = Path("/proc")) -> list[Family]:
    """The standard metrics of this process: all of them where there is a /proc, CPU alone elsewhere."""
    cpu = Counter("process_cpu_seconds_total", "CPU time of this process, user and system, in seconds.")
    cpu.add(amount=time.process_time())
    found: list[Metric] = [cpu]
    try:
        own = proc / "self"
        resident = int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        ticks = int((own / "stat").read_text().rpartition(")")[2].split()[19])  # the name before it may hold spaces
        booted = next(line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime "))
        began = int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
        descriptors = len(os.listdir(own / "fd"))
    except (OSError, ValueError, IndexError, StopIteration):
        return [metric.family() for metric in found]
    for name, text, value in (
        ("process_resident_memory_bytes", "Memory of this process that is in RAM, in bytes.", float(resident)),
        ("process_start_time_seconds", "When this process began, in seconds since 1970.", began),
        ("process_open_fds", "Open file descriptors.", float(descriptors)),
    ):
        gauge = Gauge(name, text)
        gauge.put(value)
        found.append(gauge)
    return [metric.family() for metric in found]
