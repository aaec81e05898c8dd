"""The end of a collection on a terminal: its results on one screen, and the commands to run next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from velodrome.cli.tables import Row, ink, next_step, pairs
from velodrome.collector.result import Run
from velodrome.records.rollout import beside
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import read_groups
from velodrome.timing.figures import duration, figure
from velodrome.timing.report import clean

Json = dict[str, Any]

_READ_AGAIN_BYTES = 100_000_000  # intervals of larger files are not computed
_MOST_NUMBERS = 8
_MOST_REASONS = 5


def run_end(result: Run, output: Path) -> str:
    """The numbers of the output, the reasons of failures, and the next commands."""
    table = run_table(result.metrics, [output], result.reasons)
    commands = [f"velo view {shlex.quote(str(output))}"] if result.kept else []
    if result.failed:
        commands.append(f"velo show {shlex.quote(str(beside(output, 'failures.jsonl')))}")
    return f"\n{table}\n\n{next_step(*commands)}" if commands else f"\n{table}"


def run_table(metrics: Json, files: Sequence[Path], reasons: Mapping[str, int] | None = None) -> str:
    """Reward and pass@k with their intervals, other numbers, tokens, time, throughput, and failures by reason."""
    intervals = _intervals(files) if sum(path.stat().st_size for path in files) <= _READ_AGAIN_BYTES else {}
    return pairs([*_scores(metrics, intervals), *_costs(metrics), *_rollouts(metrics, reasons or {})])


def _intervals(files: Sequence[Path]) -> Json:
    """The intervals of the reward and of each rate, as text."""
    run = read_groups(files, MetricsSettings(fields=("reward",)))["run"]
    return {
        name: f"[{each['low']:.3f}, {each['high']:.3f}]"
        for name, each in (run["fields"] | run["rates"]).items()
        if each.get("low") is not None
    }


def _scores(metrics: Json, intervals: Json) -> Iterator[Row]:
    rates = [name for name in metrics if name.startswith("pass@")]
    for name in ["reward", *rates]:
        if (value := metrics.get(name)) is not None:
            note = "  95% interval" if name == "reward" and name in intervals else ""
            note += f"  of {metrics['n/reward']:,} rollouts" if name == "reward" and "n/reward" in metrics else ""
            yield name, f"{ink(f'{value:.3f}', 'bold')}  {intervals.get(name, '')}{ink(note, 'dim')}".rstrip()
    if metrics.get("reward") is None:
        yield "reward", f"deferred: {metrics['rollouts/deferred']:,}" if "rollouts/deferred" in metrics else "none"
    others = [name for name in metrics if "/" not in name and name not in ("reward", *rates)]
    for name in others[:_MOST_NUMBERS]:
        n = metrics.get(f"n/{name}")
        yield name, figure(metrics[name]) + ("" if n is None else ink(f"  of {n:,} rollouts", "dim"))
    if len(others) > _MOST_NUMBERS:
        yield "", f"and {len(others) - _MOST_NUMBERS} more numbers"


def _costs(metrics: Json) -> Iterator[Row]:
    if total := metrics.get("tokens/total"):
        parts = [f"{metrics[f'tokens/{way}put']:,} {way}" for way in ("in", "out") if f"tokens/{way}put" in metrics]
        yield "tokens", f"{total:,} ({', '.join(parts)})" if parts else f"{total:,}"
    if active_s := metrics.get("throughput/active_s"):
        yield "time", duration(active_s * 1e3)
        tokens = metrics.get("throughput/tokens_per_s")
        speed = f"{figure(metrics['throughput/samples_per_s'])} rollouts/s"
        yield "throughput", f"{speed}, {figure(tokens)} tokens/s" if tokens else speed


def _rollouts(metrics: Json, reasons: Mapping[str, int]) -> Iterator[Row]:
    counts = {name.removeprefix("rollouts/"): value for name, value in metrics.items() if name.startswith("rollouts/")}
    counts |= {name.replace("/", " "): value for name, value in metrics.items() if name.startswith("stopped/")}
    failed = counts.pop("failed", 0)
    yield "rollouts", ", ".join(f"{value:,} {name}" for name, value in counts.items() if value or name == "kept")
    yield "failed", ink(f"{failed:,}", "red") if failed else "0"
    for reason, count in list(reasons.items())[:_MOST_REASONS]:
        yield "", f"{count:,} x {clean(reason, longest=200)}"
