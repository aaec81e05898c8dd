"""A profile (profiling/profile.py) as a person reads it in a terminal: the tree, the tables, and the verdict last.

Every name in a profile may come from a model or a stranger's file; each passes `report.clean` on its way out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from velodrome.timing.report import Line, clean, columns, duration, histogram, sparkline, table, tree

Json = dict[str, Any]

_WIDTH = 100
_MOST_LINES = 200
_MOST_NOTES = 20
_SERIES = (
    ("rollouts_per_s", "rollouts/s", "{:.1f}"),
    ("in_flight", "in flight", "{:.0f}"),
    ("cpu", "CPU, cores", "{:.2f}"),
    ("lag_ms", "loop lag, ms", "{:.1f}"),
)


def profile_tree(profile: Json, *, ascii_only: bool = False) -> str:
    """Where a rollout's time went, as a tree of means."""
    lines = [
        Line(
            name=str(node.get("name", "?")),
            depth=node.get("depth") or 0,
            mean_ms=node.get("mean_ms") or 0.0,
            bottleneck=bool(node.get("bottleneck")),
            note=_note(node, ascii_only) if node.get("bottleneck") else "",
        )
        for node in profile["tree"][:_MOST_LINES]
    ]
    return tree(f"Rollout Timing Profile (rollouts={profile['rollouts']})", lines, ascii_only=ascii_only)


def _note(node: Json, ascii_only: bool) -> str:
    calls = [] if node.get("calls") is None else [f"{node['calls']:.1f} calls"]
    return ", ".join([*calls, f"p99 {duration(node.get('p99_ms'), ascii_only=ascii_only)}"])


def profile_report(profile: Json, *, top: int = 10, ascii_only: bool = False) -> str:
    """Everything a profile says, one section below the other; sections with nothing to say are left out."""
    sections = (
        ("", [profile_tree(profile, ascii_only=ascii_only)]),
        ("Percentiles", _percentiles(profile, ascii_only)),
        ("Tools", _tools(profile, top, ascii_only)),
        ("Slowest rollouts", _slowest(profile, top, ascii_only)),
        ("Time of a rollout", _total_histogram(profile, ascii_only)),
        ("Over time", _series(profile, ascii_only)),
        ("Notes", [clean(str(note), longest=300, ascii_only=ascii_only) for note in profile["notes"][:_MOST_NOTES]]),
        ("Verdict", verdict_text(profile["verdict"], ascii_only=ascii_only).splitlines()),
    )
    return "\n\n".join(_section(title, lines) for title, lines in sections if lines)


def _section(title: str, lines: Sequence[str]) -> str:
    if not title:
        return "\n".join(lines)
    return "\n".join([title, *(f"  {line}" for text in lines for line in text.splitlines())])


def _percentiles(profile: Json, ascii_only: bool) -> list[str]:
    rows = []
    for node in profile["tree"][:_MOST_LINES]:
        times = (duration(node.get(name), ascii_only=ascii_only) for name in ("mean_ms", "p50_ms", "p90_ms", "p99_ms"))
        share = node.get("share")
        calls = node.get("calls")
        name = "  " * (node.get("depth") or 0) + str(node.get("name", "?"))
        rows.append((name, *times, "-" if share is None else f"{share:.1%}", "-" if calls is None else f"{calls:.1f}"))
    return [table(("part", "mean", "p50", "p90", "p99", "share", "calls"), rows, ascii_only=ascii_only)] if rows else []


def _tools(profile: Json, top: int, ascii_only: bool) -> list[str]:
    names = ("mean_ms", "p50_ms", "p99_ms", "cpu_ms", "held_ms")
    rows = [
        (str(tool["name"]), str(tool["calls"]), *(duration(tool.get(name), ascii_only=ascii_only) for name in names))
        for tool in profile["tools"][:top]
    ]
    if not rows:
        return []
    lines = [table(("tool", "calls", "mean", "p50", "p99", "CPU", "held loop"), rows, ascii_only=ascii_only)]
    more = len(profile["tools"]) - len(rows)
    return [*lines, f"and {more} more"] if more > 0 else lines


def _slowest(profile: Json, top: int, ascii_only: bool) -> list[str]:
    rows = []
    several = len({each.get("file") for each in profile["slowest"]}) > 1
    for each in profile["slowest"][:top]:
        reward = each.get("reward")
        total_s = each.get("total_s")
        took = duration(None if total_s is None else total_s * 1000, ascii_only=ascii_only)
        where = f"{each['file']}:{each['line']}" if several else str(each["line"])
        rows.append((where, str(each["key"]), took, "-" if reward is None else str(reward)))
    head = ("line", "key", "total", "reward")
    return [table(head, rows, left=2, ascii_only=ascii_only)] if rows else []


def _total_histogram(profile: Json, ascii_only: bool) -> list[str]:
    total = profile["histograms"].get("total")
    if not total:
        return []
    return [histogram(total["edges_ms"], total["counts"], ascii_only=ascii_only)]


def _series(profile: Json, ascii_only: bool) -> list[str]:
    series = profile["series"]
    lines = []
    for name, label, form in _SERIES:
        values = [value for value in series.get(name, ()) if value is not None]
        if values:
            span = " to ".join(form.format(value) for value in (min(values), max(values)))
            lines.append(f"{label:<13} {sparkline(series[name], ascii_only=ascii_only)}  {span}")
    return lines


def verdict_text(verdict: Json, *, ascii_only: bool = False) -> str:
    """What bounded throughput, why, and what to change."""
    return "\n".join(_verdict(verdict, ascii_only))


def _verdict(verdict: Json, ascii_only: bool) -> Iterator[str]:
    """The paragraph, and below it what it does not say already."""
    paragraph = str(verdict["paragraph"])
    yield from _wrapped(paragraph, "", ascii_only)
    for evidence in verdict.get("evidence", ()):
        if str(evidence) not in paragraph:
            yield from _wrapped(str(evidence), "  - ", ascii_only)
    for advice in verdict.get("advice", ()):
        if not advice.get("override") or f"({advice['override']})" not in paragraph:
            yield from _wrapped(advice_text(advice), "  > ", ascii_only)


def advice_text(advice: Json) -> str:
    """One change: what, the override, and what it is predicted to give."""
    text = str(advice["change"])
    if advice.get("override"):
        text += f": {advice['override']}"
    if advice.get("predicted_rollouts_per_s") is not None:
        gain = "" if advice.get("gain") is None else f", {advice['gain']:.1f}x"
        text += f" (predicted: {advice['predicted_rollouts_per_s']:.1f} rollouts/s{gain})"
    return text


def _wrapped(text: str, lead: str, ascii_only: bool) -> list[str]:
    shown = clean(text, longest=2000, ascii_only=ascii_only)
    return textwrap.wrap(
        shown, _WIDTH - columns(lead), initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    )
