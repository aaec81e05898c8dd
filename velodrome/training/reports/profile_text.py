"""A training run or a PyTorch trace as a person reads it in a terminal.

Every name may come from a stranger's file; each passes `report.clean` on its way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from velodrome.timing.figures import counted, duration
from velodrome.timing.report import clean, sections, table

Json = dict[str, Any]


def run_report(run: Json, *, top: int = 10) -> str:
    """Speed by phase, where the time went, the last evaluation of each kind."""
    length = f"{counted(run['step'], 'agent step')}, {counted(run['epochs'], 'epoch')}"
    inside = [
        (f"Where the time went: {clean(each['phase'])}, {counted(each['epochs'], 'epoch')}", [_inside(each)])
        for each in run["epoch_parts"]
    ]
    time = [(each["part"], duration(each["seconds"] * 1e3), f"{each['share']:.1%}") for each in run["time"]]
    return sections(
        [
            ("", [clean(f"Training Profile ({run['run']}: {length})", longest=200)]),
            ("Speed", [_speed(run["phases"])]),
            ("Time", [table(("part", "time", "share"), time)]),
            *inside,
            *((f"Last evaluation, {actions}", _evaluation(last)) for actions, last in run["evaluation"].items()),
            ("Traces", [clean(each, longest=200) for each in run["traces"][:top]]),
        ]
    )


def torch_report(trace: Json, *, top: int = 10) -> str:
    """Epochs with their parts, operators, kernels."""
    began = trace["began_at"]
    from_when = "" if began is None else f" from {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:%S} UTC"
    title = f"PyTorch trace ({counted(trace['events'], 'event')}, {duration(trace['seconds'] * 1e3)}{from_when})"
    return sections(
        [
            ("", [title]),
            ("Epochs and parts", [_parts(trace["parts"])] if trace["parts"] else []),
            ("Operators by their own CPU time", _ranked(trace["operators"], "operator", top)),
            ("Work of the device", _ranked(trace["kernels"], "kernel", top)),
        ]
    )


def _speed(phases: Sequence[Json]) -> str:
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


def _inside(phase: Json) -> str:
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


def _parts(parts: Sequence[Json]) -> str:
    rows = [(f"{'  ' * each['depth']}{each['name']}", *_numbers(each)) for each in parts]
    return table(("part", "count", "total", "mean", "not in inner parts", "share"), rows)


def _ranked(ranked: Sequence[Json], what: str, top: int) -> list[str]:
    if not ranked:
        return []
    rows = [(each["name"], *_numbers(each)) for each in ranked[:top]]
    more = len(ranked) - len(rows)
    shown = table((what, "count", "total", "mean", "own", "share of own"), rows)
    return [shown, f"and {more} more"] if more > 0 else [shown]


def _numbers(each: Json) -> tuple[str, ...]:
    times = (duration(each[name]) for name in ("total_ms", "mean_ms", "self_ms"))
    return f"{each['count']:,}", *times, f"{each['share']:.1%}"
