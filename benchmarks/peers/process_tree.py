"""CPU, memory and answered calls of a process and all that it starts, looked at from outside while it runs.

Every peer writes another kind of file, so progress is counted where all are alike: at the model server. A rollout is
two calls.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

from benchmarks.summary import Json

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.05
_MEMORY_EVERY_S = 0.5
CALLS = 2  # in a rollout


class Look(NamedTuple):
    """One look at the processes."""

    wall_s: float
    cpu_s: float
    calls: int


def tree(root: int) -> dict[int, float]:
    """The processes below `root` and itself, each with its CPU seconds and those of its children that have ended."""
    children: dict[int, list[int]] = defaultdict(list)
    used_s: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        children[int(fields[1])].append(pid)
        used_s[pid] = sum(map(int, fields[11:15])) * _TICK_S
    below, found = [root], {}
    while below:
        pid = below.pop()
        found[pid] = used_s.get(pid, 0.0)
        below += children[pid]
    return found


def memory_mb(pids: dict[int, float]) -> float:
    """What these processes hold; a page that several share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total * 1024 / 1e6


def watch(process: Popen[Any], calls: Callable[[], int], deadline_s: float) -> tuple[list[Look], float]:
    """Look until the process has ended: the looks, and the most memory seen. TimeoutError past the deadline."""
    looks: list[Look] = []
    start, peak_mb, measured_s = time.perf_counter(), 0.0, 0.0
    while process.poll() is None:
        pids, now = tree(process.pid), time.perf_counter()
        looks.append(Look(now - start, sum(pids.values()), calls()))
        if now - measured_s > _MEMORY_EVERY_S:
            peak_mb, measured_s = max(peak_mb, memory_mb(pids)), now
        if now - start > deadline_s:
            raise TimeoutError
        time.sleep(_EVERY_S)
    return looks, peak_mb


def figures(looks: list[Look], rollouts: int, parallel: int) -> Json:
    """Start-up until the first call, and the time in which all were in flight: after one wave, before the last."""
    first = next(look for look in looks if look.calls)
    warm, tail = max(parallel, rollouts // 10), rollouts - parallel
    steady = [look for look in looks if CALLS * warm <= look.calls <= CALLS * tail]
    if len(steady) < 5:
        raise ValueError(f"only {len(steady)} looks at a steady state: too few rollouts ({rollouts})")
    begin, end = steady[0], steady[-1]
    done = (end.calls - begin.calls) / CALLS
    return {
        "rollouts": done,
        "cpu_ms": 1e3 * (end.cpu_s - begin.cpu_s) / done,
        "per_s": done / (end.wall_s - begin.wall_s),
        "start_s": first.wall_s,
        "start_cpu_s": first.cpu_s,
    }
