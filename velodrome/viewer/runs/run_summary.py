"""One line about a run, without opening it: from the files that a collection or a training wrote beside it.

Their numbers are taken only if they were written after the rollouts, and count what the record of the run counts.
Otherwise there are none until the run is opened.
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

from velodrome.records.jsonl import open_regular
from velodrome.records.rollout import beside
from velodrome.viewer.runs.folder import METRICS, SETTINGS, FoundRun

Json = dict[str, Any]

LIVE_S = 5.0
_LONGEST_EPOCH_S = 3600.0  # between two lines of metrics
_TAIL_BYTES = 256 * 1024  # of the metrics of a training
_MOST_BYTES = 4 * 1024 * 1024  # of a file beside a run
_KINDS = ("failures.jsonl", "metrics.json", "run.json", "progress.json")

Stamp = tuple[int, int] | None  # when a file was changed, and how long it is


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a list says of a run. None: not known."""

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
    """The lines about many runs, each made again when a file of its has changed."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._files: dict[Path, list[str]] = {}
        self._known: dict[Path, tuple[list[Stamp], RunSummary, bool]] = {}

    def of(self, run: FoundRun) -> RunSummary:
        """The line about a run as its files are now."""
        training = run.kind == "training"
        if run.path not in self._files:
            others = [beside(run.path, kind) for kind in _KINDS]
            files = [run.path / METRICS, run.path / SETTINGS] if training else [run.path, *others]
            self._files[run.path] = [str(path) for path in files]
        stamps = [_stamp(path) for path in self._files[run.path]]
        known = self._known.get(run.path)
        if known is None or known[0] != stamps:
            made = _of_training(run.path) if training else (_of_rollouts(run.path, stamps), _over(run.path, stamps))
            known = self._known[run.path] = (stamps, *made)
        _, summary, over = known
        written = [stamp[0] for stamp in (stamps[0], None if training else stamps[4]) if stamp is not None]
        at = max(written, default=0) / 1e9
        age_s = self._clock() - at
        live = not over and (age_s < LIVE_S or (training and age_s < _LONGEST_EPOCH_S and held(run.path / ".lock")))
        return replace(summary, at=(stamps[0] or (0, 0))[0] / 1e9, size=(stamps[0] or (0, 0))[1], live=live)


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _of_rollouts(path: Path, stamps: list[Stamp]) -> RunSummary:
    rows, failures, saved, recorded, _ = stamps
    last = _last_run(path) if recorded else {}
    counts = last.get("kept"), last.get("failed")
    newest = max((stamp[0] for stamp in (rows, failures) if stamp), default=0)
    metrics = _json(beside(path, "metrics.json")) if saved and saved[0] >= newest else {}
    if "finished_at" not in last or counts != (metrics.get("rollouts/kept"), metrics.get("rollouts/failed")):
        return RunSummary()
    reward, pass_1 = (_number(metrics.get(name)) for name in ("reward", "pass@1"))
    kept, failed = (each if isinstance(each, int) else None for each in counts)
    return RunSummary(reward, pass_1, kept, failed)


def _over(path: Path, stamps: list[Stamp]) -> bool:
    """Whether the last collection is on record as ended, and nothing was written after it."""
    ended = _number(_last_run(path).get("finished_at")) if stamps[3] else None
    return ended is not None and stamps[0] is not None and ended >= stamps[0][0] / 1e9 - 1


def _last_run(path: Path) -> Json:
    runs = _json(beside(path, "run.json")).get("runs")
    return runs[-1] if isinstance(runs, list) and runs and isinstance(runs[-1], dict) else {}


def _of_training(folder: Path) -> tuple[RunSummary, bool]:
    """The last return of the student: evaluated, or else in rollouts."""
    reward = steps = None
    note = ""
    for line in reversed(tail_lines(folder / METRICS)):
        evaluation = line.get("evaluation")
        if steps is None and isinstance(line.get("step"), int):
            steps = line["step"]
        if isinstance(evaluation, dict) and (value := _number(evaluation.get("mean_return"))) is not None:
            reward, note = value, f"evaluated, {'greedy' if evaluation.get('greedy') else 'sampled'}"
            break
        if reward is None and (value := _number(line.get("rollout_return"))) is not None:
            reward, note = value, "in rollouts, sampled"
    return RunSummary(reward, steps=steps, note=note), False


def tail_lines(path: Path) -> list[Json]:
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
    """Whether a process holds the lock of a training run. It is looked up, never taken: taking it could stop a run."""
    try:
        status = os.stat(lock)
        locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any("FLOCK" in line and place in line.split() for line in locks.splitlines())


def _json(path: Path) -> Json:
    try:
        with open_regular(path) as file:
            return parsed_object(file.read(_MOST_BYTES))
    except OSError:
        return {}


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return value if known else None
