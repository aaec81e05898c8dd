"""The curves of training runs, for the chart kit: values over agent steps.

Evaluations are points with their standard error, greedy and sampled ones in separate charts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

from velodrome.viewer.parts import plots
from velodrome.viewer.parts.render import number
from velodrome.viewer.runs.training_run import TrainingData

Json = dict[str, Any]
Points = list[tuple[int, float]]

MOST_PICTURES = 100  # of numbers without a title here
_LONGEST_TITLE = 120
_TITLES = {  # titles of the fields of an epoch that are drawn first
    "rollout_return": "Return in rollouts, sampled",
    "teacher_return": "Return of the teacher",
    "loss": "Loss",
    "policy_loss": "Policy loss",
    "value_loss": "Value loss",
    "cross_entropy": "Cross-entropy to the teacher",
    "agreement": "Agreement with the teacher",
    "entropy": "Entropy",
    "approx_kl": "KL from the policy that acted",
    "clip_fraction": "Clipped share",
    "explained_variance": "Explained variance",
    "grad_norm": "Gradient norm",
    "learning_rate": "Learning rate",
    "sps": "Agent steps per second",
    "rollout_length": "Steps per episode in rollouts",
}
_NOT_DRAWN = frozenset(("step", "epoch", "episodes", "rollout_ms", "update_ms"))
PHASES = {"supervised": "teacher-forced", "ppo": "PPO"}
PARTS = {  # of an epoch's time: the parts that each label adds up
    "student acts": ("rollout/student_forward",),
    "teacher": ("rollout/teacher",),
    "environment": ("rollout/environment",),
    "rest of the rollout": ("rollout/replay_store", "rollout/other"),
    "forward and backward": ("update/forward", "update/backward"),
    "rest of the update": ("update/advantages", "update/minibatch", "update/optimizer", "update/other"),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a picture; `marks` are single points instead: a step, a value, a standard error."""

    label: str
    points: Points
    marks: Sequence[tuple[int, float, float]] = ()
    shape: str = ""  # of the marks: circle, diamond


def titles(runs: Sequence[TrainingData]) -> dict[str, str]:
    """The title of every number of the epochs, in the order of the charts."""
    names = dict.fromkeys(
        name for run in runs for line in run.epochs for name, value in line.items() if is_number(value)
    )
    titled = {name: title for name, title in _TITLES.items() if name in names}
    others = islice((name for name in names if name not in titled and name not in _NOT_DRAWN), MOST_PICTURES)
    return titled | {name: name[:_LONGEST_TITLE].replace("_", " ") for name in others}


def is_number(value: Any) -> bool:
    """Whether the value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and abs(value) < 1e300


def column(lines: Sequence[Json], name: str) -> Points:
    """The values of a field, from the epochs that have it."""
    return [(line["step"], line[name]) for line in lines if is_number(line.get(name))]


def evaluations(run: TrainingData, *, greedy: bool) -> list[tuple[int, float, float]]:
    """The evaluations of one kind: step, mean return, standard error."""
    result = []
    for line in run.evaluations:
        value = line["evaluation"]
        if bool(value.get("greedy")) is greedy and is_number(value.get("mean_return")):
            error = value.get("standard_error")
            result.append((line["step"], value["mean_return"], error if is_number(error) else 0.0))
    return result


def phases(run: TrainingData) -> list[tuple[str, int, int]]:
    """The phases: name, first step, last step."""
    result: list[tuple[str, int, int]] = []
    previous_step = 0
    for line in run.epochs:
        name, step = str(line["phase"])[:40], line["step"]
        if result and result[-1][0] == name:
            result[-1] = (name, result[-1][1], step)
        else:
            result.append((name, previous_step, step))
        previous_step = step
    return result[:20]


def picture(title: str, curves: Sequence[Curve], last: int, bands: Sequence[tuple[str, int, int]] = ()) -> Json | None:
    """A picture of some curves over steps up to `last`; None if there is nothing to draw."""
    values = [value for curve in curves for _, value in curve.points]
    values += [at for curve in curves for _, value, error in curve.marks for at in (value - error, value + error)]
    if not values or last <= 0:
        return None
    low, high = min(values), max(values)
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    scale = plots.Scale(low, high, number)

    def x(step: float) -> float:
        return 100 * step / last

    newest = [(curve.points or curve.marks)[-1][1] for curve in curves if curve.points or curve.marks]
    label = f"{title}: from {number(min(values))} to {number(max(values))} over {last:,} agent steps"
    return {
        **plots.chart("curve", label, scale, ["0", f"{last:,} steps"]),
        "title": title,
        "now": number(newest[0]) if len(newest) == 1 else "",
        "shades": [
            (x(start), max(x(end) - x(start), 0.1), PHASES.get(name, name), name == "ppo") for name, start, end in bands
        ],
        "lines": [
            plots.line([(x(step), value) for step, value in curve.points], scale, f"line-{at % 8}")
            for at, curve in enumerate(curves)
            if curve.points
        ],
        "dots": [
            plots.dot(
                x(step),
                value,
                scale,
                reach=(value - error, value + error) if error else None,
                style=f"mark-{at % 8}",
                shape=curve.shape,
                title=f"{curve.label}, step {step:,}: {number(value)}" + (f" ± {number(error)}" if error else ""),
            )
            for at, curve in enumerate(curves)
            for step, value, error in curve.marks
        ],
    }


def shares(run: TrainingData) -> list[Json]:
    """The share of each part in the time of the epochs, and its milliseconds per epoch."""
    lines = [line["parts_ms"] for line in run.epochs if isinstance(line.get("parts_ms"), dict)]
    totals = {
        label: sum(value for line in lines for part in parts if is_number(value := line.get(part)) and value > 0)
        for label, parts in PARTS.items()
    }
    whole = sum(totals.values())
    return [
        {"label": label, "share": total / whole, "ms": total / len(lines)} for label, total in totals.items() if total
    ]


def last_step(runs: Sequence[TrainingData]) -> int:
    """The largest step of all runs."""
    return max((line["step"] for run in runs for line in (*run.epochs[-1:], *run.evaluations[-1:])), default=0)


def training_charts(runs: Sequence[TrainingData], labels: Sequence[str]) -> Iterator[Json]:
    """The charts of one run, or of several together: the evaluations first, then the numbers of the epochs."""
    last = last_step(runs)
    bands = phases(runs[0]) if len(runs) == 1 else []
    for greedy, title, shape in ((True, "Evaluation, greedy", "circle"), (False, "Evaluation, sampled", "diamond")):
        marks = [
            Curve(label, [], evaluations(run, greedy=greedy), shape) for label, run in zip(labels, runs, strict=True)
        ]
        chart = picture(f"{title}: mean return", marks, last, bands)
        if chart:
            yield chart
    for name, title in titles(runs).items():
        curves = [Curve(label, column(run.epochs, name)) for label, run in zip(labels, runs, strict=True)]
        chart = picture(title, curves, last, bands)
        if chart:
            yield chart
