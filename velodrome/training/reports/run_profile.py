"""Reads a training run's folder: speed by phase, where the time went, the last evaluations.

`metrics.jsonl` has the times of rollouts, updates and evaluations, and of the parts inside them; operators are in
PyTorch's traces, if the run made any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.timing.percentiles import Quantiles

Json = dict[str, Any]

METRICS = "metrics.jsonl"


def read_run(source: Path) -> Json:
    """A run by its folder or its metrics file."""
    path = source / METRICS if source.is_dir() else source
    lines = list(_lines(path))
    epochs = [line for line in lines if "rollout_ms" in line]
    if not epochs:
        raise InputError(f"{path}: no epoch of a training run in it; velo profile reads what velo train wrote")
    evaluations = [line for line in lines if "evaluation" in line]
    by_phase: defaultdict[str, list[Json]] = defaultdict(list)
    before = 0
    for line in epochs:
        by_phase[line["phase"]].append({**line, "agent_steps": line["step"] - before})
        before = line["step"]
    phases = [_speed(name, each) for name, each in by_phase.items()]
    traces = sorted(path.parent.glob("profiler_trace_*.json*"), key=lambda trace: (len(trace.name), trace.name))
    return {
        "kind": "training",
        "run": path.parent.resolve().name,
        "file": str(path),
        "step": before,
        "epochs": len(epochs),
        "phases": phases,
        "time": _time(phases, sum(line.get("evaluation_s", 0.0) for line in evaluations)),
        "epoch_parts": [_inside(name, each) for name, each in by_phase.items()],
        "evaluations": len(evaluations),
        "evaluation": {_how(line): {"step": line["step"], **_shown(line["evaluation"])} for line in evaluations},
        "traces": [str(trace) for trace in traces],
    }


def _lines(path: Path) -> Iterator[Json]:
    """The lines of a file that are objects with a step. The last one may still be being written."""
    try:
        for data in path.read_bytes().splitlines():
            try:
                line = orjson.loads(data)
            except orjson.JSONDecodeError:
                continue
            if isinstance(line, dict) and "step" in line:
                yield line
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _speed(name: str, epochs: list[Json]) -> Json:
    steps, rollout_ms, update_ms = (
        sum(line[key] for line in epochs) for key in ("agent_steps", "rollout_ms", "update_ms")
    )
    rates = [line["agent_steps"] / (line["rollout_ms"] + line["update_ms"]) * 1e3 for line in epochs]
    return {
        "phase": name,
        "epochs": len(epochs),
        "agent_steps": steps,
        "rollout_s": rollout_ms / 1e3,
        "update_s": update_ms / 1e3,
        "sps": steps / (rollout_ms + update_ms) * 1e3,
        "sps_median": median(rates),
        "sps_slowest": min(rates),
    }


def _inside(name: str, epochs: list[Json]) -> Json:
    """Parts below what they are parts of, the remainder last. Shares are of rollouts and updates."""
    times: defaultdict[str, Quantiles] = defaultdict(Quantiles)
    for line in epochs:
        spent_ms = {"rollout": line["rollout_ms"], "update": line["update_ms"], **line.get("parts_ms", {})}
        for part, took_ms in spent_ms.items():
            times[part].add(took_ms)
    whole_ms = times["rollout"].sum + times["update"].sum
    places = {part: place for place, part in enumerate(times)}

    def place(part: str) -> list[tuple[bool, int]]:
        names = part.split("/")
        upper = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
        return [(each.endswith("/other"), places.get(each, len(places))) for each in upper]

    parts = [
        {
            "part": part,
            "depth": part.count("/"),
            "share": times[part].sum / whole_ms,
            "mean_ms": times[part].sum / len(epochs),
            "p50_ms": times[part].quantile(0.5),
            "p95_ms": times[part].quantile(0.95),
        }
        for part in sorted(times, key=place)
    ]
    return {"phase": name, "epochs": len(epochs), "parts": parts}


def _time(phases: list[Json], evaluation_s: float) -> list[Json]:
    """Seconds and shares of everything that metrics have times for; together they are 1."""
    spent = [(f"{phase['phase']}: {what}", phase[f"{what}_s"]) for phase in phases for what in ("rollout", "update")]
    spent += [("evaluation", evaluation_s)] if evaluation_s else []
    whole = sum(seconds for _, seconds in spent)
    return [{"part": name, "seconds": each, "share": each / whole} for name, each in spent]


def _how(line: Json) -> str:
    return "greedy" if line["evaluation"]["greedy"] else "sampled"


def _shown(evaluation: Json) -> Json:
    return {name: value for name, value in evaluation.items() if name not in ("greedy", "actions")}
