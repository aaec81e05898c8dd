"""A profile (read/profile.py) as one HTML page that stands by itself: no scripts, no outside requests, no styles but
its own.

Keys, names and texts come from files nobody vouches for: the template escapes all of them, the charts escape theirs,
and each list and each text has its largest size.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from velodrome.timing.report import clean, duration
from velodrome.view import charts

Json = dict[str, Any]

MARK = "<!-- a page of velo profile -->"  # in the first bytes of a page: what may be written over
_MOST_PARTS = 60
_MOST_TOOLS = 50
_MOST_SLOWEST = 10
_MOST_NOTES = 20
_MOST_SPANS = 2000
_DEEPEST = 12
_LATEST_US = 1e15
_PARTS = {"model": "model", "tools": "tools", "verify": "verify", "judge": "verify", "queue": "wait", "backoff": "wait"}
_SERIES = (
    ("rollouts_per_s", "Throughput", "rollouts/s"),
    ("in_flight", "In flight", "rollouts"),
    ("cpu", "CPU of the collector", "cores"),
    ("lag_ms", "Event-loop lag", "ms"),
)
_HISTOGRAMS = ("total", "model", "tools", "verify", "queue")


def profile_page(profile: Json, *, title: str) -> str:
    """The page. `title` says what was profiled, usually the file's name."""
    style = _environment().get_template("profile.css").render()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template("profile.html")
        .render(
            mark=Markup(MARK),
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            style=Markup(style),
            title=clean(title, longest=120),
            profile=profile,
            verdict=profile["verdict"],
            figures=_figures(profile),
            parts=[_part(node) for node in profile["tree"][:_MOST_PARTS]],
            series=_series(profile["series"]),
            histograms=_histograms(profile),
            slowest=[_slow(each) for each in profile["slowest"][:_MOST_SLOWEST]],
            tools=profile["tools"][:_MOST_TOOLS],
            more_tools=max(len(profile["tools"]) - _MOST_TOOLS, 0),
            notes=profile["notes"][:_MOST_NOTES],
            more_notes=max(len(profile["notes"]) - _MOST_NOTES, 0),
        )
    )


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("velodrome.view"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["duration"] = duration
    found.filters["clean"] = lambda value, longest=60: clean(str(value), longest=longest)
    found.filters["share"] = lambda value: "–" if value is None else f"{value:.1%}"
    found.filters["rate"] = lambda value: "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return found


def _figures(profile: Json) -> list[tuple[str, str]]:
    """The few numbers at the top, each with its name."""
    total: Json = next(iter(profile["tree"]), {})
    rate = profile.get("rollouts_per_s")
    load = profile.get("load") or {}
    found = [
        ("rollouts", f"{profile['rollouts']:,}"),
        ("rollouts/s", "–" if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"),
        ("mean rollout", duration(total.get("mean_ms"))),
        ("p99 rollout", duration(total.get("p99_ms"))),
        ("active", duration(None if profile.get("active_s") is None else profile["active_s"] * 1000)),
    ]
    if load.get("in_flight_mean") is not None and load.get("limit") is not None:
        found.append(("in flight", f"{load['in_flight_mean']:.1f} / {load['limit']}"))
    if profile["failed"]:
        found.append(("failed", f"{profile['failed']:,}"))
    return found


def _part(node: Json) -> Json:
    depth = min(node.get("depth") or 0, 4)
    bar = charts.share_bar(node.get("share"), kind=_kind(str(node.get("part", ""))))
    return {"calls": None, "share": None, **node, "depth": depth, "bar": Markup(bar)}


def _series(series: Json) -> list[Json]:
    found = []
    at_s = series.get("at_s") or []
    for name, label, unit in _SERIES:
        values = series.get(name) or []
        picture = ""
        if len(values) == len(at_s):
            picture = charts.line(at_s, values, label=label, unit=unit, every_s=series.get("every_s") or 1.0)
        if picture:
            found.append({"label": label, "picture": Markup(picture)})
    return found


def _histograms(profile: Json) -> list[Json]:
    """One for each part that took any time at all."""
    lines = {node.get("part"): node for node in profile["tree"]}
    found = []
    for part in _HISTOGRAMS:
        each = profile["histograms"].get(part)
        if each and lines.get(part, {}).get("mean_ms"):
            label = str(lines[part]["name"])
            picture = charts.histogram(each["edges_ms"], each["counts"], label=f"{label}: time a rollout spends in it")
            if picture:
                found.append({"label": label, "picture": Markup(picture)})
    return found


def _slow(each: Json) -> Json:
    total_ms = (each.get("total_s") or 0.0) * 1000
    bars = list(islice(_bars(each.get("tree"), 0), _MOST_SPANS))
    picture = charts.waterfall(bars, total_ms, label=f"Waterfall of rollout {each['key']}") if bars else ""
    where = f"line {each['line']}"
    if each.get("file"):
        where = f"{Path(each['file']).name}:{each['line']}"
    return {**each, "total_ms": total_ms, "where": where, "picture": Markup(picture)}


def _bars(nodes: Any, depth: int) -> Iterator[charts.Bar]:
    """The spans of a rollout as bars, parents first; what is not a span is passed over, for the tree is the file's."""
    for node in nodes if isinstance(nodes, list) else ():
        if not (isinstance(node, list) and len(node) == 5 and all(map(_is_time, node[1:3]))):
            continue
        name, start_us, length_us, counts, children = node
        told = counts.items() if isinstance(counts, dict) else ()
        note = ", ".join(f"{key!s:.40} {value:g}" for key, value in islice(told, 8) if _is_time(value))
        shown = str(name).removeprefix("tool:")
        yield charts.Bar(shown, start_us / 1000, length_us / 1000, depth, _kind(str(name)), note)
        if depth < _DEEPEST:
            yield from _bars(children, depth + 1)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LATEST_US


def _kind(part: str) -> str:
    return "tools" if part.startswith("tool:") else _PARTS.get(part, "other")
