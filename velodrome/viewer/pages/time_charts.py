"""The charts over the time of a run: rollouts per second, how many were in flight, how late the event loop was.

Load comes from the profile. Every point links to the rollouts that finished while it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

from velodrome.index import Index
from velodrome.index.pictures import Group, finished_between
from velodrome.timing.report import duration
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts import plots
from velodrome.viewer.parts.plots import Mark
from velodrome.viewer.parts.render import NONE, count, many, number
from velodrome.viewer.parts.throughput import rates

Json = dict[str, Any]

_MOST = 120  # points


class Timeline(NamedTuple):
    """Stretches of `every_s` seconds from each start, and what is known of the load in each."""

    starts: tuple[float, ...] = ()
    every_s: float = 1.0
    in_flight: tuple[float | None, ...] = ()
    lag_ms: tuple[float | None, ...] = ()


def profile_timeline(series: Json) -> Timeline:
    """The series of a profile, in at most so many points: the mean of those in flight, the longest lag."""
    lengths = {len(series[name]) for name in ("at_s", "in_flight", "lag_ms")}
    if lengths == {0} or len(lengths) > 1:
        return Timeline()
    every_s = series["every_s"] * ceil(len(series["at_s"]) / _MOST)
    points = zip(series["at_s"], series["in_flight"], series["lag_ms"], strict=True)
    starts, in_flight, lags = [], [], []
    for place, some in groupby(points, key=lambda point: point[0] // every_s):
        together = list(some)
        starts.append(series["start"] + place * every_s)
        known = [each for _, each, _ in together if each is not None]
        in_flight.append(sum(known) / len(known) if known else None)
        lags.append(max((each for *_, each in together if each is not None), default=None))
    return Timeline(tuple(starts), every_s, tuple(in_flight), tuple(lags))


def file_timeline(index: Index, runs: Sequence[Json]) -> Timeline:
    """Without a profile: the times at which something finished, and those between that are not a stop."""
    points = index.series()
    if not points:
        return Timeline()
    curve = rates(points, runs)
    return Timeline(tuple(points[0].at + at_s for at_s in curve.at_s), curve.every_s)


def finished(index: Index, timeline: Timeline) -> list[Group]:
    """What finished in each stretch."""
    return index.picture(lambda columns: finished_between(columns, timeline.starts, timeline.every_s))


def time_charts(timeline: Timeline, groups: Sequence[Group], links: Links) -> list[tuple[str, str, Json]]:
    """Throughput; and where they are known, rollouts in flight and the lag of the event loop."""
    per_s = [group.count / timeline.every_s for group in groups]
    wanted: list[tuple[str, Sequence[float | None], str, Callable[[float], str]]] = [
        ("Throughput", per_s, "rollouts/s", number),
        ("In flight", timeline.in_flight, "rollouts", number),
        ("Event-loop lag", timeline.lag_ms, "the longest", duration),
    ]
    charts = [
        (title, unit, _curve(timeline, groups, values, f"{title}, {unit}", shown, links))
        for title, values, unit, shown in wanted
        if any(value is not None for value in values)
    ]
    return [(title, unit, picture) for title, unit, picture in charts if picture]


def _curve(
    timeline: Timeline,
    groups: Sequence[Group],
    values: Sequence[float | None],
    label: str,
    shown: Callable[[float], str],
    links: Links,
) -> Json | None:
    marks, before, begun = [], None, timeline.starts[0] if timeline.starts else 0.0
    for start, group, value in zip(timeline.starts, groups, values, strict=True):
        if value is not None:
            at = plots.elapsed(start - begun)
            gap = before is not None and start - before > 1.5 * timeline.every_s
            title = f"{at}: {shown(value)}; {many(group.count, 'rollout')} finished"
            cells = (f"{at} to {plots.elapsed(start - begun + timeline.every_s)}", shown(value), count(group.count))
            marks.append(Mark(title, value, links.rollouts(q=group.where), cells, gap=gap))
            before = start
    known = [mark.height for mark in marks]
    about = f"{label}: {shown(min(known))} to {shown(max(known))}" if known else NONE
    below = [plots.elapsed(0.0), plots.elapsed(timeline.starts[-1] - begun + timeline.every_s)] if marks else []
    head = (plots.TIME, label.partition(", ")[2], "finished")
    return plots.curve(marks, label=about, head=head, below=below, scale=plots.scale_of(known, shown))
