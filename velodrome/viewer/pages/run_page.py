"""The page of a run: how many rollouts, their rewards, where the time went, and what the checks report.

Data from the index is shown at once; data from a pass over the file appears when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from velodrome.index import Index, State
from velodrome.index.pictures import RewardSummary, quoted
from velodrome.stats.intervals import Interval
from velodrome.timing.figures import duration
from velodrome.viewer.measurements import SMALL_BYTES, Measurement
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.profile_page import profile_parts, time_charts
from velodrome.viewer.pages.run_charts import (
    RunCharts,
    RunPictures,
    interval_text,
    percent,
    run_charts,
)
from velodrome.viewer.parts.render import NONE, count, many, moment, number, size
from velodrome.viewer.runs.run_summary import read_runs
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

PATIENCE_S = 0.06  # how long a page waits for a measurement
_MOST_METRICS = 40
_MOST_FINDINGS = 40
_MOST_PARTS = 40
_MOST_TOOLS = 20
_SHOWN = ("rollouts/kept", "rollouts/failed")  # shown at the top
_TITLES = {
    "": "Means",
    "pass": "Pass rates",
    "rollouts": "Rollouts",
    "tasks": "Tasks counted",
    "n": "Rollouts counted",
    "tokens": "Tokens",
    "throughput": "Throughput",
}


def run_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """The values of the template."""
    index = source.index()
    state = index.state
    runs = read_runs(source.path)
    exists = source.path.is_file()
    live = state.live and not _ended(source, runs)
    metrics, profile, findings, tools = _facts(source, state)
    values = metrics.value or {}
    verdict, parts = _profile(profile)
    # A picture of half a file would be slow to draw, and wrong.
    charts = RunCharts() if source.behind else run_charts(source, links, address.by)
    return {
        "live": live,
        "status": _status(live, runs) if exists else "the file cannot be read now; this is what was read before",
        "about": [*_names(charts.pictures), *_about(state, runs)],
        "account": account(state, runs, live=live or not exists),
        "figures": _figures(charts.pictures, values, verdict),
        "weighing": _weighing(charts.pictures),
        "charts": charts,
        "times": time_charts(profile.value["series"]) if profile.value else [],
        "tools": tools,
        "tool_rows": _tool_rows(tools, links),
        "findings": findings,
        "problems": _findings(findings, index, links),
        "profile": profile,
        "verdict": verdict,
        "parts": parts,
        "metrics": metrics,
        "groups": metric_groups(values),
    }


def _facts(source: ViewedFile, state: State) -> list[Measurement]:
    """Measurements of the whole file. For a small file the page waits a moment for them."""
    kinds = ("metrics", "profile", "checks", "tools")
    if source.behind:  # one reader of the file at a time
        return [Measurement() for _ in kinds]
    first = source.measure(kinds[0], patience_s=PATIENCE_S if state.size <= SMALL_BYTES else 0.0)
    return [first, *(source.measure(kind, patience_s=0.0) for kind in kinds[1:])]


def account(state: State, runs: list[Json], *, live: bool) -> Json:
    """Requested = kept + failed + not run. During a run, `of` is the expected total."""
    kept, failed = state.rows, state.failed
    ended = bool(runs) and "finished_at" in runs[-1] and not live
    unfinished = bool(runs) and "finished_at" not in runs[-1]
    requested = runs[-1].get("requested") if ended or unfinished else None
    not_run = max(requested - kept - failed, 0) if isinstance(requested, int) else 0
    is_total_known = ended or not (runs or live)
    return {
        "requested": kept + failed + not_run if is_total_known else None,
        "of": kept + failed + not_run if unfinished and isinstance(requested, int) else None,
        "kept": kept,
        "failed": failed,
        "left": not_run if is_total_known else 0,
        "parts": [("kept", kept), ("failed", failed), ("left", not_run)],
    }


def _ended(source: ViewedFile, runs: list[Json]) -> bool:
    """Whether the last run has ended, and nothing was written after it."""
    finished_at = runs[-1].get("finished_at") if runs else None
    try:
        return isinstance(finished_at, int | float) and finished_at >= source.path.stat().st_mtime - 1
    except OSError:
        return False


def _status(live: bool, runs: list[Json]) -> str:
    if live:
        return "live: rollouts are being added"
    if not runs:
        return "at rest"
    if "finished_at" not in runs[-1]:
        return "no end recorded: the run is still going, or was killed"
    stopped = runs[-1].get("stopped")
    return f"stopped: {stopped!s:.80}" if stopped else "finished"


def _about(state: State, runs: list[Json]) -> list[Any]:
    about: list[Any] = [size(state.size)]
    if state.bytes < state.size and not state.complete:
        about.insert(0, f"indexed {size(state.bytes)} of {size(state.size)}")
    if runs:
        finished_at = runs[-1].get("finished_at")
        about.append(moment(finished_at if finished_at is not None else runs[-1].get("started_at")).striptags())
        if len(runs) > 1:
            about.append(f"{len(runs)} runs into one file")
    return about


def _names(pictures: RunPictures | None) -> list[str]:
    """The model and the agent, or their numbers."""
    kinds = pictures.ran if pictures else []
    return [f"{kind} {names[0]}" if len(names) == 1 else many(len(names), kind) for kind, names in kinds if names]


def _figures(pictures: RunPictures | None, metrics: Json, verdict: Json | None) -> list[tuple[str, str, str]]:
    """Name, value and interval of each figure: first the results, then the speed."""
    rewards = pictures.rewards.summary if pictures else RewardSummary()
    figures = [("mean reward", number(rewards.mean), _interval_note(rewards.interval, number))]
    rates = pictures.rates if pictures else []
    most = rates[0].tasks if rates else 0
    for each in [rates[0], rates[-1]] if len(rates) > 1 else rates[:1]:
        name = (
            f"pass@{each.k}" if each.tasks == most else f"pass@{each.k} over {count(each.tasks)} of {count(most)} tasks"
        )
        figures.append((name, percent(each.rate), _interval_note(each.interval, percent)))
    per_s, active_s = metrics.get("throughput/samples_per_s"), metrics.get("throughput/active_s")
    figures.append(("tokens", count(metrics.get("tokens/total")), ""))
    speed = number(round(per_s, 2)) if isinstance(per_s, int | float) else NONE
    active = f"in {duration(active_s * 1000)}" if isinstance(active_s, int | float) else ""
    figures.append(("rollouts/s", speed, active))
    what = verdict.get("what") if verdict else None
    figures.append(("limited by", str(what) if what else NONE, ""))
    return figures


def _interval_note(interval: Interval | None, shown: Callable[[float], str]) -> str:
    return f"{interval_text(interval, shown)} (95%)" if interval else ""


def _weighing(pictures: RunPictures | None) -> str:
    """A note if the mean over rollouts differs from the mean over tasks, which comparisons use."""
    rewards = pictures.rewards.summary if pictures else RewardSummary()
    over, alike = number(rewards.mean), number(rewards.mean_of_tasks)
    if over == alike:
        return ""
    return (
        f"The mean reward is over {many(rewards.count, 'rollout')}: {over}. With every task weighed alike it is {alike}"
        f", over {many(rewards.tasks, 'task')}; that is what a comparison shows, for the tasks that both runs have."
    )


def _tool_rows(tools: Measurement, links: Links) -> list[Json]:
    """The most called tools, each with a link to the rollouts that called it."""
    most = max((tool["calls"] for tool in tools.value or []), default=0)
    return [
        {
            **tool,
            "href": links.rollouts(q=f"tool={quoted(tool['name'])} -state:failed"),
            "share": tool["calls"] / most if most else 0.0,
        }
        for tool in (tools.value or [])[:_MOST_TOOLS]
    ]


def _profile(profile: Measurement) -> tuple[Json | None, list[Json]]:
    if not profile.value or not profile.value.get("rollouts"):
        return None, []
    return profile.value["verdict"], profile_parts(profile.value["tree"][:_MOST_PARTS])


def _findings(findings: Measurement, index: Index, links: Links) -> list[Json]:
    """The findings, the worst first. An example is a line number, with a link if the line is a rollout."""
    order = {"error": 0, "warning": 1}
    worst = sorted(findings.value or [], key=lambda each: order.get(each["severity"], 2))[:_MOST_FINDINGS]
    numbers = {entry.number for entry in index.entries([line for each in worst for line in each["examples"][:5]])}

    def line_links(lines: list[int]) -> list[tuple[str, str | None]]:
        return [(f"line {line}", links.rollout(line) if line in numbers else None) for line in lines]

    def all_of(where: str) -> str | None:
        return links.rollouts(q=where) if where else None

    return [
        {"advice": "", **each, "links": line_links(each["examples"][:5]), "all_href": all_of(each.get("where", ""))}
        for each in worst
    ]


def metric_groups(metrics: Json) -> list[tuple[str, list[tuple[str, str]]]]:
    """The metrics in titled groups. Values that are not numbers are left out."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, value in metrics.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or name in _SHOWN:
            continue
        head, slash, rest = name.partition("/")
        kind = head if slash else "pass" if name.startswith(("pass@", "pass^", "majority@")) else ""
        groups.setdefault(_TITLES.get(kind, kind), []).append((rest or name, _formatted(name, value)))
    return [(title, rows[:_MOST_METRICS]) for title, rows in groups.items()]


def _formatted(name: str, value: float) -> str:
    if name.startswith(("pass@", "pass^", "majority@")) and 0 <= value <= 1:
        return f"{value:.1%}"
    return duration(value * 1000) if name.endswith("_s") and not name.endswith("per_s") else number(value)
