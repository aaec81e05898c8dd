"""What a training run's folder says: speed by phase, where the time went, how losses and returns moved.

It reads the files alone; torch is not needed. `metrics.jsonl` has the times of rollouts, updates and evaluations, and
of the parts inside them; operators are in PyTorch's trace, if the run made one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.profiling.traces.torch_trace import read_torch_trace
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

METRICS = "metrics.jsonl"
POINTS = 60  # of a series

_NO_SERIES = {"step", "epoch", "phase", "episodes", "rollout_ms", "update_ms"}
_TIMED = ("rollout", "update")
_LAST_STEP = 2**53
_LONGEST_MS = 1e15
_MOST_BYTES = 2**63
_MOST_SERIES = 40
_MOST_PHASES = 20
_MOST_PARTS = 100  # of a phase
_DEEPEST = 8
_MOST_NOTES = 5


class _Phase:
    def __init__(self) -> None:
        self.agent_steps = 0
        self.rollout_ms = 0.0
        self.update_ms = 0.0
        self.sps = array("d")
        self.parts: dict[tuple[str, ...], Quantiles] = {}  # by path, of the epochs that tell them

    def add_parts(self, rollout_ms: float, update_ms: float, told: Json) -> None:
        """The times of one epoch, and of what is inside them."""
        times: Json = {"rollout": rollout_ms, "update": update_ms, **{name: told[name] for name in told if "/" in name}}
        for name, value in times.items():
            path, spent_ms = tuple(name.split("/")), _number(value, _LONGEST_MS)
            if path[0] not in _TIMED or len(path) > _DEEPEST or spent_ms is None:
                continue
            if path in self.parts or len(self.parts) < _MOST_PARTS:
                self.parts.setdefault(path, Quantiles()).add(spent_ms / 1e3)

    def parts_json(self, name: str) -> Json:
        """Parts below what they are parts of. Shares are of rollouts and updates; means are over all epochs told."""
        epochs = self.parts["rollout",].count
        whole_s = sum(self.parts[each,].sum for each in _TIMED)
        return {
            "phase": name,
            "epochs": epochs,
            "parts": [
                {
                    "part": "/".join(path),
                    "depth": len(path) - 1,
                    "share": spent.sum / whole_s if whole_s else 0.0,
                    "mean_ms": spent.sum / epochs * 1e3,
                    "p50_ms": spent.quantile(0.5) * 1e3,
                    "p95_ms": spent.quantile(0.95) * 1e3,
                }
                for path, spent in _nested(self.parts)
            ],
        }

    def as_json(self, name: str) -> Json:
        spent_s = (self.rollout_ms + self.update_ms) / 1e3
        return {
            "phase": name,
            "epochs": len(self.sps),
            "agent_steps": self.agent_steps,
            "rollout_s": self.rollout_ms / 1e3,
            "update_s": self.update_ms / 1e3,
            "sps": self.agent_steps / spent_s if spent_s else None,
            "sps_median": median(self.sps) if self.sps else None,
            "sps_slowest": min(self.sps, default=None),
        }


class _Run:
    """What the lines of a metrics file add up to."""

    def __init__(self) -> None:
        self.step = 0
        self.epochs = 0
        self.evaluations = 0
        self.evaluation_s = 0.0
        self.last: Json | None = None
        self.phases: dict[str, _Phase] = {}
        self.series: dict[str, tuple[array[float], array[float]]] = {}  # at which step, and how much

    def add(self, line: Json) -> bool:
        """One line; false if it is none of a run's."""
        if "evaluation" in line and isinstance(line["evaluation"], dict):
            self.evaluations += 1
            self.evaluation_s += _number(line.get("evaluation_s"), _LONGEST_MS / 1e3) or 0.0
            step = _number(line.get("step"), _LAST_STEP)
            told = {name: each for name, each in line["evaluation"].items() if not isinstance(each, dict | list)}
            self.last = {"step": step, **told}
            value = _number(told.get("mean_return"))
            if value is not None:
                self._point("evaluation/mean_return", step or self.step, value)
            return True
        step = _number(line.get("step"), _LAST_STEP)
        rollout_ms, update_ms = (_number(line.get(f"{name}_ms"), _LONGEST_MS) for name in _TIMED)
        if step is None or rollout_ms is None or update_ms is None:
            return False
        phase = str(line.get("phase", "training"))
        if phase not in self.phases and len(self.phases) >= _MOST_PHASES:
            return False
        counted = self.phases.setdefault(phase, _Phase())
        took = max(int(step) - self.step, 0)
        counted.agent_steps += took
        counted.rollout_ms += rollout_ms
        counted.update_ms += update_ms
        if rollout_ms + update_ms > 0:
            counted.sps.append(took / (rollout_ms + update_ms) * 1e3)
        if isinstance(parts_ms := line.get("parts_ms"), dict) and parts_ms:
            counted.add_parts(rollout_ms, update_ms, parts_ms)
        self.step = int(step)
        self.epochs += 1
        for name, value in line.items():
            number = _number(value)
            if name not in _NO_SERIES and number is not None:
                self._point(name, step, number)
        return True

    def _point(self, name: str, step: float, value: float) -> None:
        if name in self.series or len(self.series) < _MOST_SERIES:
            steps, values = self.series.setdefault(name, (array("d"), array("d")))
            steps.append(step)
            values.append(value)


def read_training(given: Path) -> Json:
    """A run by its folder or its metrics file."""
    path = given / METRICS if given.is_dir() else given
    run, notes = _Run(), []
    for number, line in _lines(path):
        lost = _number(line.get("lost_bytes"), _MOST_BYTES) if line else None
        if lost is not None:
            notes.append(f"{path}:{number}: {lost:,.0f} bytes of metrics are missing here")
        elif line is None or not run.add(line):
            notes.append(f"{path}:{number}: not a line of a training run; left out")
    if not run.epochs:
        raise InputError(f"{path}: no epoch of a training run in it; velo profile reads what velo train wrote")
    phases = [phase.as_json(name) for name, phase in run.phases.items()]
    traces = sorted(path.parent.glob("profiler_trace_*.json*"), key=_made)
    more = len(notes) - _MOST_NOTES
    notes = [*notes[:_MOST_NOTES], *([f"and {more} more such lines"] if more > 0 else [])]
    parts = None
    if traces and given != path:
        try:
            parts = _parts(traces[-1])
        except InputError as error:  # the run is to be told of all the same
            notes.append(str(error))
    return {
        "kind": "training",
        "run": path.parent.resolve().name,
        "file": str(path),
        "step": run.step,
        "epochs": run.epochs,
        "phases": phases,
        "time": _time(phases, run.evaluation_s),
        "epoch_parts": [phase.parts_json(name) for name, phase in run.phases.items() if phase.parts],
        "evaluations": run.evaluations,
        "evaluation": run.last,
        "series": {name: _squeezed(*points, run.step, min(POINTS, run.epochs)) for name, points in run.series.items()},
        "traces": [str(trace) for trace in traces],
        "parts": parts,
        "notes": notes,
    }


def _lines(path: Path) -> Iterator[tuple[int, Json | None]]:
    """The lines of a file as objects; None for what is none. A last line without its end is still being written."""
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, 1):
                try:
                    found = orjson.loads(data)
                except orjson.JSONDecodeError:
                    found = None
                if isinstance(found, dict):
                    yield number, found
                elif data.endswith(b"\n"):
                    yield number, None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _time(phases: list[Json], evaluation_s: float) -> list[Json]:
    """Seconds and shares of everything that metrics have times for; together they are 1."""
    spent = [(f"{phase['phase']}: {what}", phase[f"{what}_s"]) for phase in phases for what in _TIMED]
    spent += [("evaluation", evaluation_s)] if evaluation_s else []
    whole = sum(seconds for _, seconds in spent)
    return [{"part": name, "seconds": each, "share": each / whole if whole else 0.0} for name, each in spent]


def _nested(parts: Mapping[tuple[str, ...], Quantiles]) -> Iterator[tuple[tuple[str, ...], Quantiles]]:
    """Each part after the one it is in, in the order in which the file has those of one; the remainder is the last."""
    places = {path: place for place, path in enumerate(parts)}

    def place(path: tuple[str, ...]) -> list[tuple[bool, int]]:
        upper = [path[:depth] for depth in range(1, len(path) + 1)]
        return [(each[-1] == "other", places.get(each, len(places))) for each in upper]

    return ((path, parts[path]) for path in sorted(parts, key=place))


def _parts(trace: Path) -> Json:
    """The parts inside rollouts and updates, of the steps that the newest trace is of."""
    found = read_torch_trace(trace)
    return {"file": found["file"], "parts": found["parts"]}


def _made(path: Path) -> tuple[int, str]:
    number = path.name.removeprefix("profiler_trace_").partition(".")[0]
    return int(number) if number.isdecimal() else -1, path.name


def _number(value: Any, most: float | None = None) -> float | None:
    """The value if it is one; with `most` from 0 to that."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return None
    return value if most is None or 0 <= value <= most else None


def _squeezed(steps: array[float], values: array[float], last: float, count: int) -> Mapping[str, Any]:
    """Means over equal stretches of steps, the same for every series; None where a stretch has no value."""
    sums, counts = [0.0] * count, [0] * count
    for step, value in zip(steps, values, strict=True):
        place = min(max(int((step - 1) / max(last, 1) * count), 0), count - 1)
        sums[place] += value
        counts[place] += 1
    means = [each / many if many else None for each, many in zip(sums, counts, strict=True)]
    return {"first": values[0], "last": values[-1], "least": min(values), "most": max(values), "means": means}
