"""The end of a training run for a person: what it came to, where the time went, and the curve of the return."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from velodrome.cli.tables import Row, ink, next_step, pairs
from velodrome.timing.report import curve, duration

Json = dict[str, Any]

_CURVES = ("mean_return", "agreement", "loss")  # the first that the run has is drawn


def train_table(folder: Path, step: int, timing: Json, evaluation: Json | None) -> str:
    """Steps, speed of each phase, evaluation, shares of time, and how the return went."""
    parts = [pairs([*_results(folder, step, evaluation), *_times(timing)]), _drawn(_lines(folder / "metrics.jsonl"))]
    commands = next_step(f"velo view {shlex.quote(str(folder))}", f"velo profile {shlex.quote(str(folder))}")
    return "\n\n".join(["", *filter(None, parts), commands]).removeprefix("\n")


def _results(folder: Path, step: int, evaluation: Json | None) -> Iterator[Row]:
    yield "run", str(folder)
    yield "agent steps", f"{step:,}"
    if evaluation:
        error = f" ± {evaluation['standard_error']:.2f}" if evaluation.get("standard_error") is not None else ""
        mean = ink(f"{evaluation['mean_return']:.2f}", "bold")
        yield "return", f"{mean}{error}, {evaluation['episodes']:,} episodes"


def _times(timing: Json) -> Iterator[Row]:
    for name, phase in timing["phases"].items():
        spent_s = phase["rollout_s"] + phase["update_s"]
        rollouts = f" ({phase['rollout_s'] / spent_s:.0%} rollouts)" if spent_s else ""
        yield name, f"{phase['sps']:,.0f} steps/s, {duration(spent_s * 1e3)}{rollouts}"


def _drawn(lines: list[Json]) -> str:
    for name in _CURVES:
        values = [line[name] for line in lines if isinstance(line.get(name), int | float)]
        if len(values) > 1:
            return f"{ink(name.replace('_', ' '), 'bold')}, epoch by epoch\n{curve(values)}"
    return ""


def _lines(path: Path) -> list[Json]:
    try:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict)]
