"""A profile as one self-contained HTML page: no scripts, no requests, only its own styles.

Keys, names and texts come from untrusted files: the template and the charts escape all of them, and every list and
text is bounded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from velodrome.timing.figures import duration
from velodrome.timing.report import clean
from velodrome.viewer.parts import plots, waterfall
from velodrome.viewer.parts.plots import Mark
from velodrome.viewer.parts.render import content_policy, count, environment, many, number, page

Json = dict[str, Any]

MARK = "<!-- a page of velo profile -->"  # in the first bytes of a page, which may then be overwritten
_MOST_PARTS = 60
_MOST_TOOLS = 50
_MOST_SLOWEST = 10
_MOST_NOTES = 20
_MOST_BINS = 60
_SERIES = (
    ("rollouts_per_s", "Throughput, rollouts/s"),
    ("in_flight", "Rollouts in flight"),
    ("cpu", "CPU of the collector, cores"),
    ("lag_ms", "Event-loop lag, ms"),
)
_HISTOGRAMS = ("total", "model", "tools", "verify", "queue")


def profile_page(profile: Json, *, title: str) -> str:
    """The page. `title` is usually the name of the profiled file."""
    style = environment().get_template("profile.css").render()
    return page(
        "profile.html",
        mark=Markup(MARK),
        policy=content_policy(style=style),
        style=Markup(style),
        title=clean(title, longest=120),
        profile=profile,
        verdict=profile["verdict"],
        figures=_figures(profile),
        parts=profile_parts(profile["tree"][:_MOST_PARTS]),
        series=time_charts(profile["series"]),
        histograms=_histograms(profile),
        slowest=[_slow(each) for each in profile["slowest"][:_MOST_SLOWEST]],
        tools=profile["tools"][:_MOST_TOOLS],
        more_tools=max(len(profile["tools"]) - _MOST_TOOLS, 0),
        notes=profile["notes"][:_MOST_NOTES],
        more_notes=max(len(profile["notes"]) - _MOST_NOTES, 0),
    )


def _figures(profile: Json) -> list[tuple[str, str]]:
    """The numbers at the top, each with its name."""
    total: Json = next(iter(profile["tree"]), {})
    rate = profile.get("rollouts_per_s")
    load = profile.get("load") or {}
    figures = [
        ("rollouts", f"{profile['rollouts']:,}"),
        ("rollouts/s", "–" if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"),
        ("mean rollout", duration(total.get("mean_ms"))),
        ("p99 rollout", duration(total.get("p99_ms"))),
        ("active", duration(None if profile.get("active_s") is None else profile["active_s"] * 1000)),
    ]
    if load.get("in_flight_mean") is not None and load.get("limit") is not None:
        figures.append(("in flight", f"{load['in_flight_mean']:.1f} / {load['limit']}"))
    if profile["failed"]:
        figures.append(("failed", f"{profile['failed']:,}"))
    return figures


def profile_parts(tree: list[Json]) -> list[Json]:
    """The lines of the table of parts, each with the colour of its bar."""
    return [
        {
            "calls": None,
            "share": None,
            **node,
            "depth": min(node.get("depth") or 0, 4),
            "kind": waterfall.kind(str(node.get("part", ""))),
        }
        for node in tree
    ]


def time_charts(series: Json) -> list[tuple[str, Json]]:
    """Charts of the load over time. Periods without load are left out and marked."""
    at_s, every_s = series.get("at_s") or [], series.get("every_s") or 1.0
    charts = []
    for name, title in _SERIES:
        marks, before = [], None
        values = series.get(name) or []
        for at, value in zip(at_s, values, strict=True) if len(values) == len(at_s) else ():
            if value is not None:
                marks.append(Mark(title, value, gap=before is not None and at - before > 1.5 * every_s))
                before = at
        heights = [mark.height for mark in marks]
        if heights:
            label = f"{title}: {number(min(heights))} to {number(max(heights))}"
            below, scale = [plots.elapsed(0.0), plots.elapsed(at_s[-1] + every_s)], plots.scale_of(heights, number)
            charts.append((title, plots.curve(marks, label=label, head=[plots.TIME], below=below, scale=scale) or {}))
    return charts


def _histograms(profile: Json) -> list[tuple[str, Json]]:
    """A histogram of the time in each part. Empty bins at both ends are left out."""
    lines = {node.get("part"): node for node in profile["tree"]}
    charts = []
    for part in _HISTOGRAMS:
        each = profile["histograms"].get(part)
        nonempty = [place for place, bin_count in enumerate(each["counts"] if each else ()) if bin_count]
        if not nonempty or not lines.get(part, {}).get("mean_ms"):
            continue
        places = range(nonempty[0], min(nonempty[-1] + 1, nonempty[0] + _MOST_BINS))
        edges, counts = [duration(edge) for edge in each["edges_ms"]], each["counts"]
        marks = [Mark(f"{edges[at]} to {edges[at + 1]}: {many(counts[at], 'rollout')}", counts[at]) for at in places]
        label = str(lines[part]["name"])
        below, scale = [edges[places[0]], edges[places[-1] + 1]], plots.scale_of([counts[at] for at in places], count)
        picture = plots.bars(marks, label=f"{label}: time a rollout spends in it", head=[], below=below, scale=scale)
        charts.append((label, picture or {}))
    return charts


def _slow(each: Json) -> Json:
    total_ms = (each.get("total_s") or 0.0) * 1000
    spans = waterfall.read_spans(each.get("tree"))
    picture = waterfall.draw(spans, each.get("total_s"), label=f"Waterfall of rollout {each['key']}")
    where = f"line {each['line']}"
    if each.get("file"):
        where = f"{Path(each['file']).name}:{each['line']}"
    return {**each, "total_ms": total_ms, "where": where, "picture": picture}
