"""The end of a training run or of a sweep for a person: the result, where the time went, the curve of the return."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from velodrome.cli.tables import Row, ink, next_step, pairs
from velodrome.timing.figures import counted, duration
from velodrome.timing.report import curve, table
from velodrome.training.sweep import SweepResult

Json = dict[str, Any]

_TOP = 5  # trials of a ranking
_LONGEST = 200
_CURVES = {  # the first that the run has is drawn
    "rollout_return": "return in rollouts, sampled",
    "agreement": "agreement",
    "loss": "loss",
}


def train_table(folder: Path, step: int, timing: Json, evaluation: Json | None) -> str:
    """Steps, speed of each phase, evaluation, shares of time, and how the return went."""
    parts = [pairs([*_results(folder, step, evaluation), *_times(timing)]), _curve(_lines(folder / "metrics.jsonl"))]
    commands = next_step(f"velo view {shlex.quote(str(folder))}", f"velo profile {shlex.quote(str(folder))}")
    return "\n\n".join(["", *filter(None, parts), commands]).removeprefix("\n")


def _results(folder: Path, step: int, evaluation: Json | None) -> Iterator[Row]:
    yield "run", str(folder)
    yield "agent steps", f"{step:,}"
    if evaluation:
        error = f" ± {evaluation['standard_error']:.2f}" if evaluation.get("standard_error") is not None else ""
        mean = ink(f"{evaluation['mean_return']:.2f}", "bold")
        yield (
            f"evaluation, {'greedy' if evaluation['greedy'] else 'sampled'}",
            f"return {mean}{error}, {counted(evaluation['episodes'], 'episode')}",
        )


def _times(timing: Json) -> Iterator[Row]:
    for name, phase in timing["phases"].items():
        spent_s = phase["rollout_s"] + phase["update_s"]
        rollouts = f" ({phase['rollout_s'] / spent_s:.0%} rollouts)" if spent_s else ""
        yield name, f"{phase['sps']:,.0f} steps/s, {duration(spent_s * 1e3)}{rollouts}"


def _curve(lines: list[Json]) -> str:
    for name, title in _CURVES.items():
        having = [line for line in lines if isinstance(line.get(name), int | float)]
        if len(having) > 1:
            episodes = sum(line.get("episodes", 0) for line in having)
            over = f", {counted(episodes, 'episode')}" if name == "rollout_return" else ""
            return f"{ink(title, 'bold')}{over}, epoch by epoch\n{curve([line[name] for line in having])}"
    return ""


def _lines(path: Path) -> list[Json]:
    try:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict)]


def ranking_table(result: SweepResult) -> str:
    """The best trials, their values as words to paste, and what failed."""
    failed = [trial for trial in result.trials if trial.value is None]
    head = ("", "trial", result.sweep.metric, "")
    rows = [
        (str(place), str(trial.trial), f"{trial.value:g}", trial.words)
        for place, trial in enumerate(result.ranking[:_TOP], 1)
    ]
    lines = [table(head, rows, left=4, longest=_LONGEST)] if rows else []
    if failed:
        lines.append(f"{counted(len(failed), 'trial')} failed, as trial {failed[0].trial}: {failed[0].reason}")
    best = result.best
    if best is not None:
        lines.append(f"best: {best.words}")
        lines.append(next_step(f"velo view {shlex.quote(str(result.folder / best.runs[0]['folder']))}"))
    return "\n".join(lines)
