"""What a training run's folder says: speed by phase, where the time went, how losses and returns moved.

It reads the files alone; torch is not needed. `metrics.jsonl` has the times of rollouts, updates and evaluations, and
of the parts inside them; operators are in PyTorch's trace, if the run made one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
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
_MOST = 1e15  # of steps, milliseconds and bytes
_MOST_NAMES = 100  # of phases, of their parts, and of series
_MOST_NOTES = 5


class _Phase:
    def __init__(self) -> None:
        self.agent_steps = 0
        self.spent_ms = dict.fromkeys(_TIMED, 0.0)
        self.sps = array("d")
        self.parts: dict[str, Quantiles] = {}  # of the epochs that tell them

    def add(self, steps: int, spent_ms: Json, parts_ms: Any) -> None:
        """One epoch: its steps, the times of its rollout and update, and what is inside these."""
        self.agent_steps += steps
        for name, took_ms in spent_ms.items():
            self.spent_ms[name] += took_ms
        took_ms = sum(spent_ms.values())
        if took_ms > 0:
            self.sps.append(steps / took_ms * 1e3)
        if isinstance(parts_ms, dict) and parts_ms:
            inside = {name: each for name, each in parts_ms.items() if name.startswith(("rollout/", "update/"))}
            for name, value in {**spent_ms, **inside}.items():
                part_ms = _number(value, _MOST)
                if part_ms is not None and (name in self.parts or len(self.parts) < _MOST_NAMES):
                    self.parts.setdefault(name, Quantiles()).add(part_ms / 1e3)

    def parts_json(self, name: str) -> Json:
        """Parts below what they are parts of. Shares are of rollouts and updates; means are over all epochs told."""
        epochs = self.parts["rollout"].count
        whole_s = sum(self.parts[each].sum for each in _TIMED)
        places = {path: place for place, path in enumerate(self.parts)}

        def place(path: str) -> list[tuple[bool, int]]:
            """After the part it is in, in the order of the file; the remainder is the last."""
            names = path.split("/")
            upper = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
            return [(each.endswith("/other"), places.get(each, len(places))) for each in upper]

        return {
            "phase": name,
            "epochs": epochs,
            "parts": [
                {
                    "part": path,
                    "depth": path.count("/"),
                    "share": self.parts[path].sum / whole_s if whole_s else 0.0,
                    "mean_ms": self.parts[path].sum / epochs * 1e3,
                    "p50_ms": self.parts[path].quantile(0.5) * 1e3,
                    "p95_ms": self.parts[path].quantile(0.95) * 1e3,
                }
                for path in sorted(self.parts, key=place)
            ],
        }

    def as_json(self, name: str) -> Json:
        spent_s = sum(self.spent_ms.values()) / 1e3
        return {
            "phase": name,
            "epochs": len(self.sps),
            "agent_steps": self.agent_steps,
            "rollout_s": self.spent_ms["rollout"] / 1e3,
            "update_s": self.spent_ms["update"] / 1e3,
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
        self.last: dict[str, Json] = {}  # evaluation, greedy and sampled
        self.phases: dict[str, _Phase] = {}
        self.series: dict[str, tuple[array[float], array[float]]] = {}  # at which step, and how much

    def add(self, line: Json) -> bool:
        """One line; false if it is none of a run's."""
        step = _number(line.get("step"), _MOST)
        if isinstance(line.get("evaluation"), dict):
            self.evaluations += 1
            self.evaluation_s += _number(line.get("evaluation_s"), _MOST) or 0.0
            values = {name: each for name, each in line["evaluation"].items() if not isinstance(each, dict | list)}
            actions = "greedy" if values.pop("greedy", False) else "sampled"
            values.pop("actions", None)
            self.last[actions] = {"step": step, **values}
            self._point(f"evaluation_{actions}/mean_return", step or self.step, values.get("mean_return"))
            return True
        spent_ms = {name: _number(line.get(f"{name}_ms"), _MOST) for name in _TIMED}
        name = str(line.get("phase", "training"))
        known = name in self.phases or len(self.phases) < _MOST_NAMES
        if step is None or None in spent_ms.values() or not known:
            return False
        phase = self.phases.setdefault(name, _Phase())
        phase.add(max(int(step) - self.step, 0), spent_ms, line.get("parts_ms"))
        self.step = int(step)
        self.epochs += 1
        for each, value in line.items():
            if each not in _NO_SERIES:
                self._point(each, step, value)
        return True

    def _point(self, name: str, step: float, value: Any) -> None:
        number = _number(value)
        if number is not None and (name in self.series or len(self.series) < _MOST_NAMES):
            steps, values = self.series.setdefault(name, (array("d"), array("d")))
            steps.append(step)
            values.append(number)


def read_training(source: Path) -> Json:
    """A run by its folder or its metrics file."""
    path = source / METRICS if source.is_dir() else source
    run, notes = _Run(), []
    for number, line in _lines(path):
        lost = _number(line.get("lost_bytes"), _MOST) if line else None
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
    if traces and source != path:
        try:
            parts = {"file": str(traces[-1]), "parts": read_torch_trace(traces[-1])["parts"]}
        except InputError as error:  # the rest of the run is reported all the same
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
                    line = orjson.loads(data)
                except orjson.JSONDecodeError:
                    line = None
                if isinstance(line, dict):
                    yield number, line
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


def _made(path: Path) -> tuple[int, str]:
    number = path.name.removeprefix("profiler_trace_").partition(".")[0]
    return int(number) if number.isdecimal() else -1, path.name


def _number(value: Any, most: float | None = None) -> float | None:
    """The value if it is one; with `most` from 0 to that."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        return None
    return value if most is None or 0 <= value <= most else None


def _squeezed(steps: Sequence[float], values: Sequence[float], last: float, count: int) -> Json:
    """Means over equal stretches of steps, the same for every series; None where a stretch has no value."""
    sums, counts = [0.0] * count, [0] * count
    for step, value in zip(steps, values, strict=True):
        place = min(max(int((step - 1) / max(last, 1) * count), 0), count - 1)
        sums[place] += value
        counts[place] += 1
    means = [each / many if many else None for each, many in zip(sums, counts, strict=True)]
    return {"first": values[0], "last": values[-1], "least": min(values), "most": max(values), "means": means}
