"""The summary of a run from the files that a collection or a training wrote beside it, without opening the run.

Their numbers are used only if they were written after the rollouts and agree with the record of the run. Otherwise
there are none until the run is opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import orjson

from velodrome.records.bounds import is_count
from velodrome.records.jsonl import open_regular
from velodrome.records.rollout import beside
from velodrome.viewer.measurements import stamp
from velodrome.viewer.runs.folder import METRICS, FoundRun

Json = dict[str, Any]

LIVE_S = 5.0
_LONGEST_EPOCH_S = 3600.0  # between two lines of metrics
_TAIL_BYTES = 256 * 1024  # of the metrics of a training
_MOST_BYTES = 4 * 1024 * 1024  # of a file beside a run


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The numbers of a run in a list. None: not known."""

    reward: float | None = None
    pass_1: float | None = None
    kept: int | None = None
    failed: int | None = None
    size: int = 0
    at: float = 0.0  # when it was last written to
    live: bool = False
    steps: int | None = None  # of a training run, agent steps
    note: str = ""


class RunSummaries:
    """The summaries of many runs, each recomputed when one of its files has changed."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._cache: dict[Path, tuple[list[tuple[int, int, int]], RunSummary, bool]] = {}

    def of(self, run: FoundRun) -> RunSummary:
        """The current summary of a run."""
        training = run.kind == "training"
        kinds = ("failures.jsonl", "metrics.json", "run.json", "progress.json")
        files = [run.path / METRICS] if training else [run.path, *(beside(run.path, kind) for kind in kinds)]
        stamps = [stamp(path) for path in files]
        cached = self._cache.get(run.path)
        if cached is None or cached[0] != stamps:
            result = (_of_training(run.path), False) if training else _of_rollouts(run.path)
            cached = self._cache[run.path] = (stamps, *result)
        _, summary, is_over = cached
        age_s = self._clock() - max(stamps[0][2], stamps[-1][2]) / 1e9
        is_training = training and age_s < _LONGEST_EPOCH_S and held(run.path / ".lock")
        live = not is_over and (age_s < LIVE_S or is_training)
        return replace(summary, at=stamps[0][2] / 1e9, size=stamps[0][1], live=live)


def _of_rollouts(path: Path) -> tuple[RunSummary, bool]:
    """The saved summary beside the rollouts, and whether the last collection ended with nothing written after it."""
    rows, failures = stamp(path)[2], stamp(beside(path, "failures.jsonl"))[2]
    last = ({}, *read_runs(path))[-1]
    ended = _number(last.get("finished_at"))
    is_over = ended is not None and rows > 0 and ended >= rows / 1e9 - 1
    is_newer = stamp(beside(path, "metrics.json"))[2] >= max(rows, failures)
    metrics = read_object(beside(path, "metrics.json")) if is_newer else {}
    kept, failed = last.get("kept"), last.get("failed")
    if "finished_at" not in last or (kept, failed) != (metrics.get("rollouts/kept"), metrics.get("rollouts/failed")):
        return RunSummary(), is_over
    kept, failed = (each if is_count(each) else None for each in (kept, failed))
    return RunSummary(_number(metrics.get("reward")), _number(metrics.get("pass@1")), kept, failed), is_over


def read_runs(path: Path) -> list[Json]:
    """The runs recorded in `run.json`; none if there is no such file."""
    runs = read_object(beside(path, "run.json")).get("runs")
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []


def _of_training(folder: Path) -> RunSummary:
    """The last return of the student: evaluated, or else in rollouts."""
    reward = steps = None
    note = ""
    for line in reversed(_tail_lines(folder / METRICS)):
        evaluation = line.get("evaluation")
        if steps is None and isinstance(line.get("step"), int):
            steps = line["step"]
        if isinstance(evaluation, dict) and (value := _number(evaluation.get("mean_return"))) is not None:
            reward, note = value, f"evaluated, {'greedy' if evaluation.get('greedy') else 'sampled'}"
            break
        if reward is None and (value := _number(line.get("rollout_return"))) is not None:
            reward, note = value, "in rollouts, sampled"
    return RunSummary(reward, steps=steps, note=note)


def _tail_lines(path: Path) -> list[Json]:
    """The last whole lines of a file of metrics."""
    try:
        with open_regular(path) as file:
            start = max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0)
            file.seek(start)
            lines = file.read(_TAIL_BYTES).split(b"\n")
    except OSError:
        return []
    return [line for text in lines[1 if start else 0 : -1] if (line := parsed_object(text))]


def parsed_object(text: bytes) -> Json:
    """A JSON object; an empty one if it is something else."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def held(lock: Path) -> bool:
    """Whether a process holds the lock of a training run. The lock is not taken, because that could stop a run."""
    try:
        status = os.stat(lock)
        locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any("FLOCK" in line and place in line.split() for line in locks.splitlines())


def read_object(path: Path) -> Json:
    """The JSON object in a file; an empty one if there is none."""
    try:
        with open_regular(path) as file:
            return parsed_object(file.read(_MOST_BYTES))
    except OSError:
        return {}


def _number(value: Any) -> float | None:
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return value if is_valid else None
