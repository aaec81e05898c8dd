"""A profile as one self-contained HTML page: no scripts, no requests, only its own styles.

Keys, names and texts come from untrusted files: the template and the charts escape all of them, and every list and
text is bounded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from velodrome.timing.report import clean, duration
from velodrome.viewer.parts import charts, waterfall
from velodrome.viewer.parts.render import content_policy, environment, page

Json = dict[str, Any]

MARK = "<!-- a page of velo profile -->"  # in the first bytes of a page: what may be written over
_MOST_PARTS = 60
_MOST_TOOLS = 50
_MOST_SLOWEST = 10
_MOST_NOTES = 20
_SERIES = (
    ("rollouts_per_s", "Throughput", "rollouts/s"),
    ("in_flight", "In flight", "rollouts"),
    ("cpu", "CPU of the collector", "cores"),
    ("lag_ms", "Event-loop lag", "ms"),
)
_HISTOGRAMS = ("total", "model", "tools", "verify", "queue")


def profile_page(profile: Json, *, title: str) -> str:
    """The page. `title` says what was profiled, usually the file's name."""
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
        series=_series(profile["series"]),
        histograms=_histograms(profile),
        slowest=[_slow(each) for each in profile["slowest"][:_MOST_SLOWEST]],
        tools=profile["tools"][:_MOST_TOOLS],
        more_tools=max(len(profile["tools"]) - _MOST_TOOLS, 0),
        notes=profile["notes"][:_MOST_NOTES],
        more_notes=max(len(profile["notes"]) - _MOST_NOTES, 0),
    )


def _figures(profile: Json) -> list[tuple[str, str]]:
    """The few numbers at the top, each with its name."""
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


def _series(series: Json) -> list[tuple[str, Json]]:
    pictures = []
    at_s, every_s = series.get("at_s") or [], series.get("every_s") or 1.0
    for name, label, unit in _SERIES:
        values = series.get(name) or []
        if len(values) == len(at_s):
            pictures.append((label, charts.line(at_s, values, label=label, unit=unit, every_s=every_s)))
    return [(label, picture) for label, picture in pictures if picture]


def _histograms(profile: Json) -> list[tuple[str, Json]]:
    """One for each part that took any time at all."""
    lines = {node.get("part"): node for node in profile["tree"]}
    pictures = []
    for part in _HISTOGRAMS:
        each = profile["histograms"].get(part)
        if each and lines.get(part, {}).get("mean_ms"):
            label = str(lines[part]["name"])
            picture = charts.histogram(each["edges_ms"], each["counts"], label=f"{label}: time a rollout spends in it")
            if picture:
                pictures.append((label, picture))
    return pictures


def _slow(each: Json) -> Json:
    total_ms = (each.get("total_s") or 0.0) * 1000
    spans = waterfall.read_spans(each.get("tree"))
    picture = waterfall.draw(spans, each.get("total_s"), label=f"Waterfall of rollout {each['key']}")
    where = f"line {each['line']}"
    if each.get("file"):
        where = f"{Path(each['file']).name}:{each['line']}"
    return {**each, "total_ms": total_ms, "where": where, "picture": picture}
