"""Reads a training run's folder, without torch: speed by phase, where the time went, the last evaluations.

`metrics.jsonl` has the times of rollouts, updates and evaluations, and of the parts inside them; operators are in
PyTorch's traces, if the run made any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.timing.figures import counted, duration
from velodrome.timing.percentiles import Quantiles
from velodrome.timing.report import clean, sections, table

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


def run_report(run: Json, *, top: int = 10) -> str:
    """Speed by phase, where the time went, the last evaluation of each kind."""
    length = f"{counted(run['step'], 'agent step')}, {counted(run['epochs'], 'epoch')}"
    inside = [
        (f"Where the time went: {clean(each['phase'])}, {counted(each['epochs'], 'epoch')}", [_parts_table(each)])
        for each in run["epoch_parts"]
    ]
    time = [(each["part"], duration(each["seconds"] * 1e3), f"{each['share']:.1%}") for each in run["time"]]
    return sections(
        [
            ("", [clean(f"Training Profile ({run['run']}: {length})", longest=200)]),
            ("Speed", [_speed_table(run["phases"])]),
            ("Time", [table(("part", "time", "share"), time)]),
            *inside,
            *((f"Last evaluation, {actions}", _evaluation(last)) for actions, last in run["evaluation"].items()),
            ("Traces", [clean(each, longest=200) for each in run["traces"][:top]]),
        ]
    )


def _speed_table(phases: Sequence[Json]) -> str:
    rows = [
        (
            each["phase"],
            f"{each['epochs']:,}",
            f"{each['agent_steps']:,}",
            *(f"{each[name]:,.0f}" for name in ("sps", "sps_median", "sps_slowest")),
        )
        for each in phases
    ]
    return table(("phase", "epochs", "agent steps", "steps/s", "median", "slowest epoch"), rows)


def _parts_table(phase: Json) -> str:
    rows = []
    for each in phase["parts"]:
        if each["mean_ms"]:  # else not of this phase, as the teacher once it is done
            times = (duration(each[name]) for name in ("mean_ms", "p50_ms", "p95_ms"))
            name = each["part"].rpartition("/")[2]
            rows.append((f"{'  ' * each['depth']}{name}", f"{each['share']:.1%}", *times))
    return table(("part", "share", "mean of an epoch", "p50", "p95"), rows)


def _evaluation(last: Json) -> list[str]:
    rows = [(name, f"{value:,.6g}" if isinstance(value, int | float) else str(value)) for name, value in last.items()]
    return [table(("", ""), rows).lstrip("\n")]
