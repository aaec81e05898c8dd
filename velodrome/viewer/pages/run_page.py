"""The page of a run: how many rollouts, their rewards, where the time went, and what the checks report.

What the index knows is shown at once; what needs a pass over the file appears when it is ready.
"""

from __future__ import annotations

import time
from math import isfinite
from typing import Any

import orjson

from velodrome.index import FieldHistogram, Index, State
from velodrome.records.rollout import beside
from velodrome.timing.report import duration
from velodrome.viewer.measurements import SMALL_BYTES, Measurement
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.profile_page import profile_parts
from velodrome.viewer.parts import charts
from velodrome.viewer.parts.render import count, many, moment, number, size
from velodrome.viewer.parts.throughput import rates
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

PATIENCE_S = 0.06  # how long a page waits for what may be ready in a moment
_MOST_METRICS = 40
_MOST_FINDINGS = 40
_MOST_PARTS = 40
_SHOWN = ("rollouts/kept", "rollouts/failed")  # in the account at the top
_TITLES = {
    "": "Means",
    "pass": "Pass rates",
    "rollouts": "Rollouts",
    "tasks": "Tasks counted",
    "tokens": "Tokens",
    "throughput": "Throughput",
}


def run_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """What the template needs."""
    index = source.index()
    state = index.state
    runs = read_runs(source)
    there = source.path.is_file()
    live = state.live and not _over(source, runs)
    metrics, profile, findings = _facts(source, state)
    behind = source.behind  # a picture of half a file would be slow to draw, and wrong
    rewards = None if behind else index.histogram("reward")
    values = metrics.value or {}
    verdict, parts = _profile(profile)
    return {
        "live": live,
        "status": _status(live, runs) if there else "the file cannot be read now; this is what was read before",
        "about": _about(state, runs),
        "account": account(state, runs, live=live or not there),
        "figures": _figures(rewards.mean if rewards else None, values),
        "findings": findings,
        "problems": _findings(findings, index, links),
        "histogram": _histogram(rewards),
        "throughput": None if behind else _throughput(index, runs),
        "profile": profile,
        "verdict": verdict,
        "parts": parts,
        "metrics": metrics,
        "groups": metric_groups(values),
    }


def _facts(source: ViewedFile, state: State) -> list[Measurement]:
    """Measurements of the whole file. For a small file the page waits a moment for them."""
    if source.behind:  # one reader of the file at a time
        return [Measurement(), Measurement(), Measurement()]
    until = time.monotonic() + (PATIENCE_S if state.size <= SMALL_BYTES else 0.0)
    return [source.measure(kind, patience_s=until - time.monotonic()) for kind in ("metrics", "profile", "checks")]


def read_runs(source: ViewedFile) -> list[Json]:
    """The runs recorded in `run.json`; none if there is no such file."""
    try:
        record = orjson.loads(beside(source.path, "run.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return []
    runs = record.get("runs") if isinstance(record, dict) else None
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []


def account(state: State, runs: list[Json], *, live: bool) -> Json:
    """Requested = kept + failed + not run. During a run, `of` is how many there will be."""
    kept, failed = state.rows, state.failed
    ended = bool(runs) and "finished_at" in runs[-1] and not live
    going = bool(runs) and "finished_at" not in runs[-1]
    requested = runs[-1].get("requested") if ended or going else None
    left = max(requested - kept - failed, 0) if isinstance(requested, int) else 0
    known = ended or not (runs or live)
    return {
        "requested": kept + failed + left if known else None,
        "of": kept + failed + left if going and isinstance(requested, int) else None,
        "kept": kept,
        "failed": failed,
        "left": left if known else 0,
        "parts": [("kept", kept), ("failed", failed), ("left", left)],
    }


def _over(source: ViewedFile, runs: list[Json]) -> bool:
    """Whether the last run is on record as ended, and nothing was written after it."""
    ended = runs[-1].get("finished_at") if runs else None
    try:
        return isinstance(ended, int | float) and ended >= source.path.stat().st_mtime - 1
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
        ended = runs[-1].get("finished_at")
        about.append(moment(ended if ended is not None else runs[-1].get("started_at")).striptags())
        if len(runs) > 1:
            about.append(f"{len(runs)} runs into one file")
    return about


def _figures(mean_reward: float | None, metrics: Json) -> list[tuple[str, str]]:
    per_s = metrics.get("throughput/samples_per_s")
    figures = [("mean reward", number(mean_reward))]
    figures += [(_over_tasks(name, metrics), _formatted(name, metrics[name])) for name in _pass_names(metrics)[:2]]
    figures += [
        ("tokens", count(metrics.get("tokens/total"))),
        ("rollouts/s", number(round(per_s, 2)) if isinstance(per_s, int | float) else "–"),
        ("tools per rollout", number(metrics.get("avg_tool_calls"))),
    ]
    active_s = metrics.get("throughput/active_s")
    figures.append(("active", duration(active_s * 1000) if isinstance(active_s, int | float) else "–"))
    return figures


def _pass_names(metrics: Json) -> list[str]:
    names = [name for name, value in metrics.items() if name.startswith("pass@") and isinstance(value, int | float)]
    return [names[0], names[-1]] if len(names) > 1 else names


def _over_tasks(name: str, metrics: Json) -> str:
    """A pass rate with the tasks that have enough rollouts for it, where others have not."""
    tasks, scored = metrics.get(f"tasks/{name}"), metrics.get("tasks/pass@1")
    known = isinstance(tasks, int) and isinstance(scored, int)
    return f"{name} over {count(tasks)} of {count(scored)} tasks" if known and tasks != scored else name


def _histogram(rewards: FieldHistogram | None) -> Json | None:
    if not rewards:
        return None
    label = f"Reward: {many(sum(rewards.counts), 'rollout')}, mean {number(rewards.mean)}"
    return charts.histogram(rewards.edges, rewards.counts, label=label, shown=number)


def _throughput(index: Index, runs: list[Json]) -> Json | None:
    points = index.series()
    if not points:
        return None
    curve = rates(points, runs)
    return charts.line(curve.at_s, curve.per_s, label="Throughput", unit="rollouts/s", every_s=curve.every_s)


def _profile(profile: Measurement) -> tuple[Json | None, list[Json]]:
    if not profile.value or not profile.value.get("rollouts"):
        return None, []
    return profile.value["verdict"], profile_parts(profile.value["tree"][:_MOST_PARTS])


def _findings(findings: Measurement, index: Index, links: Links) -> list[Json]:
    """The worst first; an example is a line of the file, which is the number of a rollout unless it cannot be read."""
    order = {"error": 0, "warning": 1}
    known = sorted(findings.value or [], key=lambda each: order.get(each["severity"], 2))[:_MOST_FINDINGS]
    there = {entry.number for entry in index.entries([line for each in known for line in each["examples"][:5]])}

    def linked(lines: list[int]) -> list[tuple[str, str | None]]:
        return [(f"line {line}", links.rollout(line) if line in there else None) for line in lines]

    return [{"advice": "", **each, "links": linked(each["examples"][:5])} for each in known]


def metric_groups(metrics: Json) -> list[tuple[str, list[tuple[str, str]]]]:
    """The metrics by what they are about; values that are not numbers are left out."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, value in metrics.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            continue
        if name in _SHOWN:
            continue
        head, slash, rest = name.partition("/")
        kind = head if slash else "pass" if name.startswith(("pass@", "pass^", "majority@")) else ""
        groups.setdefault(_TITLES.get(kind, kind), []).append((rest or name, _formatted(name, value)))
    return [(title, rows[:_MOST_METRICS]) for title, rows in groups.items()]


def _formatted(name: str, value: float) -> str:
    if name.startswith(("pass@", "pass^", "majority@")) and 0 <= value <= 1:
        return f"{value:.1%}"
    return duration(value * 1000) if name.endswith("_s") and not name.endswith("per_s") else number(value)
