"""A profile (profiling/profile.py) as a person reads it in a terminal: the tree, the tables, and the verdict last.

Every name in a profile may come from a model or a stranger's file; each passes `report.clean` on its way out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from velodrome.timing.figures import counted, duration
from velodrome.timing.report import Line, clean, histogram, sections, sparkline, table, tree
from velodrome.timing.screen import columns, page

Json = dict[str, Any]

_WIDTH = 100
_MOST_LINES = 200
_MOST_NOTES = 20
_MOST_CHANGES = 10
_SERIES = (
    ("rollouts_per_s", "rollouts/s", "{:.1f}"),
    ("in_flight", "in flight", "{:.0f}"),
    ("cpu", "CPU, cores", "{:.2f}"),
    ("lag_ms", "loop lag, ms", "{:.1f}"),
)


def profile_tree(profile: Json) -> str:
    """Where a rollout's time went, as a tree of means."""
    lines = [
        Line(
            name=str(node.get("name", "?")),
            depth=node.get("depth") or 0,
            mean_ms=node.get("mean_ms") or 0.0,
            bottleneck=bool(node.get("bottleneck")),
            note=_note(node) if node.get("bottleneck") else "",
        )
        for node in profile["tree"][:_MOST_LINES]
    ]
    return tree(f"Rollout Timing Profile (rollouts={profile['rollouts']})", lines)


def _note(node: Json) -> str:
    calls = [] if node.get("calls") is None else [f"{node['calls']:.1f} calls"]
    return ", ".join([*calls, f"p99 {duration(node.get('p99_ms'))}"])


def profile_report(profile: Json, *, top: int = 10) -> str:
    """Everything a profile says, one section below the other; sections with nothing to say are left out."""
    if not profile["rollouts"] and not profile["failed"]:
        notes = [clean(str(note), longest=300) for note in profile["notes"][1:_MOST_NOTES]]
        none = f"none of {counted(profile['rows'], 'rollout')} has times, which velo collect writes: nothing to profile"
        return sections((("", [none]), ("Notes", notes)))
    total = profile["histograms"].get("total")
    return sections(
        (
            ("", [profile_tree(profile)]),
            ("Percentiles", _percentiles(profile)),
            ("Tools", _tools(profile, top)),
            ("Endpoints", _endpoints(profile)),
            ("Slowest rollouts", _slowest(profile, top)),
            ("Time of a rollout", [histogram(total["edges_ms"], total["counts"])] if total else []),
            ("Over time", _series(profile)),
            ("Limit", _pace(profile)),
            ("Notes", [clean(str(note), longest=300) for note in profile["notes"][:_MOST_NOTES]]),
            ("Verdict", [verdict_text(profile["verdict"])]),
        )
    )


def _percentiles(profile: Json) -> list[str]:
    rows = []
    for node in profile["tree"][:_MOST_LINES]:
        times = (duration(node.get(name)) for name in ("mean_ms", "p50_ms", "p90_ms", "p99_ms"))
        share, calls = node.get("share"), node.get("calls")
        name = "  " * (node.get("depth") or 0) + str(node.get("name", "?"))
        rows.append((name, *times, "-" if share is None else f"{share:.1%}", "-" if calls is None else f"{calls:.1f}"))
    return [table(("part", "mean", "p50", "p90", "p99", "share", "calls"), rows)] if rows else []


def _tools(profile: Json, top: int) -> list[str]:
    names = ("mean_ms", "p50_ms", "p99_ms", "cpu_ms", "held_ms")
    rows = [
        (str(tool["name"]), str(tool["calls"]), *(duration(tool.get(name)) for name in names))
        for tool in profile["tools"][:top]
    ]
    if not rows:
        return []
    shown = table(("tool", "calls", "mean", "p50", "p99", "CPU", "held loop"), rows)
    more = len(profile["tools"]) - len(rows)
    return [shown, f"and {more} more"] if more > 0 else [shown]


def _endpoints(profile: Json) -> list[str]:
    """Of models that have several."""
    names = ("mean_ms", "p50_ms", "p99_ms")
    rows = []
    for each in profile.get("endpoints", ()):
        times = (duration(each.get(name)) for name in names)
        rows.append(
            (str(each["name"]), str(each["calls"]), str(each["failed"]), f"{each['in_flight_mean']:.1f}", *times)
        )
    return [table(("endpoint", "calls", "failed", "in flight", "mean", "p50", "p99"), rows)] if rows else []


def _slowest(profile: Json, top: int) -> list[str]:
    rows = []
    several = len({each.get("file") for each in profile["slowest"]}) > 1
    for each in profile["slowest"][:top]:
        reward, total_s = each.get("reward"), each.get("total_s")
        took = duration(None if total_s is None else total_s * 1000)
        where = f"{each['file']}:{each['line']}" if several else str(each["line"])
        rows.append((where, str(each["key"]), took, "-" if reward is None else str(reward)))
    return [table(("line", "key", "total", "reward"), rows, left=2)] if rows else []


def _series(profile: Json) -> Iterator[str]:
    """Of throughput the mean, which is that of the metrics; of what was sampled the least and the most."""
    series = profile["series"]
    for name, label, form in _SERIES:
        values = [value for value in series.get(name, ()) if value is not None]
        if values and name in profile:
            yield f"{label:<13} {sparkline(series[name])}  {form.format(profile[name])} on average"
        elif values:
            span = " to ".join(form.format(value) for value in (min(values), max(values)))
            yield f"{label:<13} {sparkline(series[name])}  {span}"


def _pace(profile: Json) -> list[str]:
    """The last changes of the limit, which `auto` made."""
    changes = profile.get("pace", [])
    begun = profile["series"].get("start", 0.0)
    rows = [
        (f"{each['at'] - begun:.1f} s", str(each["from"]), str(each["to"]), clean(str(each["why"])))
        for each in changes[-_MOST_CHANGES:]
    ]
    if not rows:
        return []
    more = [f"and {len(changes) - len(rows)} before"] if len(changes) > len(rows) else []
    return [table(("after", "from", "to", "why"), rows), *more]


def verdict_text(verdict: Json, width: int | None = None) -> str:
    """What bounded throughput, why, and what to change: the paragraph, and below it what it does not say already."""
    paragraph = str(verdict["paragraph"])
    width = min(_WIDTH, width or (page.get() or _WIDTH + 2) - 2)  # a section is indented by 2
    lines = _wrapped(paragraph, "", width)
    for evidence in verdict.get("evidence", ()):
        if str(evidence) not in paragraph:
            lines += _wrapped(str(evidence), "  - ", width)
    for advice in verdict.get("advice", ()):
        override = advice.get("override")
        if (f"({override})" if override else str(advice["change"])) not in paragraph:
            lines += _wrapped(advice_text(advice), "  > ", width)
    return "\n".join(lines)


def advice_text(advice: Json) -> str:
    """One change: what, the override, and what it is predicted to give."""
    text = str(advice["change"])
    if advice.get("override"):
        text += f": {advice['override']}"
    if advice.get("predicted_rollouts_per_s") is not None:
        gain = "" if advice.get("gain") is None else f", {advice['gain']:.1f}x"
        text += f" (predicted: {advice['predicted_rollouts_per_s']:.1f} rollouts/s{gain})"
    return text


def _wrapped(text: str, lead: str, width: int) -> list[str]:
    return textwrap.wrap(
        clean(text, longest=2000),
        width - columns(lead),
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
    )
