"""A training run, a PyTorch trace or a merged trace as a person reads it in a terminal.

Every name may come from a stranger's file; each passes `report.clean` on its way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from velodrome.timing.report import clean, counted, duration, padded, sparkline, table

Json = dict[str, Any]

_FIRST = ("mean_return", "evaluation/mean_return", "loss", "agreement", "sps")
_NAME = 26


def training_report(found: Json, *, top: int = 10, ascii_only: bool = False) -> str:
    """Speed by phase, where the time went, what moved, the last evaluation."""
    length = f"{counted(found['step'], 'agent step')}, {counted(found['epochs'], 'epoch')}"
    title = f"Training Profile ({found['run']}: {length})"
    told = found["epoch_parts"]
    sections: list[tuple[str, list[str]]] = [
        ("", [clean(title, longest=200, ascii_only=ascii_only)]),
        ("Speed", _speed(found, ascii_only)),
        ("Time", _time(found, ascii_only)),
        *((f"Where the time went: {_title(each, ascii_only)}", [_inside(each, ascii_only)]) for each in told),
        ("Over agent steps", _series(found["series"], top, ascii_only)),
        ("Last evaluation", _evaluation(found["evaluation"], ascii_only)),
        ("Traces", [clean(each, longest=200, ascii_only=ascii_only) for each in found["traces"][:top]]),
        ("Notes", [clean(each, longest=300, ascii_only=ascii_only) for each in found["notes"]]),
    ]
    if found["parts"]:
        where = clean(found["parts"]["file"].rpartition("/")[2], ascii_only=ascii_only)
        inside = (f"Parts of the steps in {where}", [_parts(found["parts"]["parts"], ascii_only)])
        sections.insert(3 + len(told), inside)
    return _joined(sections)


def torch_report(found: Json, *, top: int = 10, ascii_only: bool = False) -> str:
    """Steps with their parts, operators, kernels."""
    title = (
        f"PyTorch trace ({counted(found['events'], 'event')}, {duration(found['seconds'] * 1e3, ascii_only=ascii_only)}"
    )
    if found["began_at"] is not None:
        title += f" from {_moment(found['began_at'])}"
    sections = [
        ("", [title + ")"]),
        ("Steps and parts", [_parts(found["parts"], ascii_only)] if found["parts"] else []),
        ("Operators by their own CPU time", _ranked(found["operators"], "operator", top, ascii_only)),
        ("Work of the device", _ranked(found["kernels"], "kernel", top, ascii_only)),
        ("Notes", [clean(each, longest=300, ascii_only=ascii_only) for each in found["notes"]]),
    ]
    return _joined(sections)


def merge_report(found: Json, *, ascii_only: bool = False) -> str:
    """Where each file lies on the common clock, and what does not meet."""
    rows = []
    for each in found["files"]:
        times = (duration(each[name] * 1e3, ascii_only=ascii_only) for name in ("from_s", "seconds"))
        rows.append((each["name"], f"{each['events']:,}", *times))
    lines = table(("file", "events", "begins after", "lasts"), rows, ascii_only=ascii_only).splitlines()
    notes = [clean(each, longest=300, ascii_only=ascii_only) for each in found["notes"]]
    head = f"{clean(found['file'], longest=200, ascii_only=ascii_only)}: begins {_moment(found['began_at'])}"
    return _joined([("", [head]), ("Files", lines), ("Notes", notes)])


def _joined(sections: Sequence[tuple[str, list[str]]]) -> str:
    shown = []
    for title, lines in sections:
        if lines:
            body = [f"  {line}" if title else line for text in lines for line in text.splitlines()]
            shown.append("\n".join([title, *body] if title else body))
    return "\n\n".join(shown)


def _moment(epoch_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _speed(found: Json, ascii_only: bool) -> list[str]:
    rows = [
        (each["phase"], f"{each['epochs']:,}", f"{each['agent_steps']:,}", *map(_per_s, _rates(each)))
        for each in found["phases"]
    ]
    head = ("phase", "epochs", "agent steps", "steps/s", "median", "slowest epoch")
    return [table(head, rows, ascii_only=ascii_only)]


def _rates(phase: Json) -> tuple[float | None, ...]:
    return phase["sps"], phase["sps_median"], phase["sps_slowest"]


def _per_s(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _time(found: Json, ascii_only: bool) -> list[str]:
    rows = [
        (each["part"], duration(each["seconds"] * 1e3, ascii_only=ascii_only), f"{each['share']:.1%}")
        for each in found["time"]
    ]
    return [table(("part", "time", "share"), rows, ascii_only=ascii_only)]


def _title(phase: Json, ascii_only: bool) -> str:
    return f"{clean(phase['phase'], ascii_only=ascii_only)}, {counted(phase['epochs'], 'epoch')}"


def _inside(phase: Json, ascii_only: bool) -> str:
    rows = []
    for each in phase["parts"]:
        if not each["mean_ms"]:
            continue  # not of this phase, as the teacher once it is done
        times = (duration(each[name], ascii_only=ascii_only) for name in ("mean_ms", "p50_ms", "p95_ms"))
        name = each["part"].rpartition("/")[2]
        rows.append((f"{'  ' * each['depth']}{name}", f"{each['share']:.1%}", *times))
    return table(("part", "share", "mean of an epoch", "p50", "p95"), rows, ascii_only=ascii_only)


def _series(series: Json, top: int, ascii_only: bool) -> list[str]:
    names = [name for name in _FIRST if name in series]
    names += [name for name in series if name not in _FIRST]
    lines = []
    for name in names[:top]:
        each = series[name]
        low = min(each["least"], 0.0)
        drawn = [None if value is None else value - low for value in each["means"]]
        label = padded(clean(name, longest=_NAME, ascii_only=ascii_only), _NAME)
        ends = f"{each['first']:.4g} to {each['last']:.4g}"
        lines.append(f"{label}{sparkline(drawn, ascii_only=ascii_only)}  {ends}")
    more = len(names) - len(lines)
    return [*lines, f"and {more} more (--top {len(names)}, or --json)"] if more > 0 else lines


def _evaluation(last: Json | None, ascii_only: bool) -> list[str]:
    if last is None:
        return []
    rows = [(name, f"{value:,.6g}" if isinstance(value, int | float) else str(value)) for name, value in last.items()]
    return [table(("", ""), rows, ascii_only=ascii_only).lstrip("\n")]


def _parts(parts: Sequence[Json], ascii_only: bool) -> str:
    rows = [(f"{'  ' * each['depth']}{each['name']}", *_numbers(each, ascii_only)) for each in parts]
    return table(("part", "count", "total", "mean", "not in inner parts", "share"), rows, ascii_only=ascii_only)


def _ranked(ranked: Sequence[Json], what: str, top: int, ascii_only: bool) -> list[str]:
    if not ranked:
        return []
    rows = [(each["name"], *_numbers(each, ascii_only)) for each in ranked[:top]]
    found = [table((what, "count", "total", "mean", "own", "share of own"), rows, ascii_only=ascii_only)]
    more = len(ranked) - len(rows)
    return [*found, f"and {more} more"] if more > 0 else found


def _numbers(each: Json, ascii_only: bool) -> tuple[str, ...]:
    times = (duration(each[name], ascii_only=ascii_only) for name in ("total_ms", "mean_ms", "self_ms"))
    return f"{each['count']:,}", *times, f"{each['share']:.1%}"
