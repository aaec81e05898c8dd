"""CPU and throughput of a process that appends lines to a file, between its warm-up and its tail.

The floor and the product are metered by this same code: a thread looks at the clock, the process's CPU and the size of
the file fifty times a second, and afterwards the lines between two of those looks are counted. A thread, because one
turn of a loop with a thousand calls in flight takes longer than that. The CPU of other processes that do a part of the
work is added.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from benchmarks.servers import cpu_s

_EVERY_S = 0.02


class Look(NamedTuple):
    """One look at the process."""

    wall_s: float
    cpu_s: float
    others_cpu_s: float
    size: int


class Meter:
    """`with Meter(path) as meter:` around the work; then `meter.result`."""

    def __init__(self, path: Path, others: Collection[int] = ()) -> None:
        self._path = path
        self._others = others
        self._looks: list[Look] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            size = self._path.stat().st_size if self._path.exists() else 0
            self._looks.append(Look(time.perf_counter(), time.process_time(), cpu_s(self._others), size))

    def result(self, *, parallel: int) -> dict[str, float]:
        """Figures over the time in which `parallel` rollouts were in flight and every connection was warm."""
        data = self._path.read_bytes()
        rollouts = data.count(b"\n")
        warm = max(0.1, 1.5 * parallel / rollouts) * len(data)
        tail = (1 - parallel / rollouts) * len(data)
        steady = [look for look in self._looks if warm <= look.size <= tail]
        if len(steady) < 10:
            raise SystemExit(f"only {len(steady)} looks at a steady state: too few rollouts ({rollouts})")
        first, last = steady[0], steady[-1]
        counted = data.count(b"\n", first.size, last.size)
        own_s, others_s = last.cpu_s - first.cpu_s, last.others_cpu_s - first.others_cpu_s
        return {
            "rollouts": counted,
            "seconds": last.wall_s - first.wall_s,
            "cpu_ms": 1e3 * (own_s + others_s) / counted,
            "own_cpu_ms": 1e3 * own_s / counted,
            "per_s": counted / (last.wall_s - first.wall_s),
            "line_bytes": len(data) / rollouts,
        }


def allow_files() -> None:
    """A thousand connections want more than the usual thousand files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536) if most > 0 else 65536, most))
