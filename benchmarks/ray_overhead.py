"""What Ray costs beside local workers: CPU of the process that writes, per rollout, with two workers of either kind.

    python -m benchmarks.ray_overhead [--rounds 3] [--json FILE]

Starting a cluster takes seconds and is left out: a figure is the difference between a long and a short collection,
divided by the difference in rollouts. The model answers in the worker, so that rollouts come as fast as they can.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import velodrome as velo
from benchmarks.commands import measure
from benchmarks.summary import Json, concluded, shown, spread, table
from benchmarks.workers import Echo

PARALLEL = 256
LENGTHS = (1000, 7000)
WAYS: dict[str, Json] = {
    "two worker processes": {"workers": 2},
    "two Ray actors": {"executor": "ray", "ray_actors": 2},
}


def one(way: str, tasks: int) -> Json:
    """One collection: the CPU of this process, and the rate from the rows."""
    answers: list[Any] = [{"tool_calls": [{"name": "echo", "arguments": {"text": "a few words " * 4}}]}, "done"]
    agent = velo.SimpleAgent(model=velo.ScriptedModel(answers=answers), environment=Echo())
    names = [f"task {number}" for number in range(tasks)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "r.jsonl"
        run = asyncio.run(velo.collect(names, agent, out=out, parallel=PARALLEL, progress=False, **WAYS[way]))
    if run.kept != tasks:
        raise SystemExit(f"{run.kept} rollouts were kept, not {tasks}")
    return {"cpu_s": time.process_time(), "per_s": run.metrics["throughput/samples_per_s"]}


def run(rounds: int, say: Callable[[str], None]) -> Json:
    """Microseconds per rollout, and rollouts per second, for each way."""
    from tests.support.ray_nodes import ray_nodes

    results: dict[str, list[Json]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, ray_nodes() as cluster:
        for _ in range(2):
            cluster.add()
        os.environ |= {name: value for name, value in cluster.environ.items() if name.startswith("RAY_")}
        os.environ["RAY_ADDRESS"] = cluster.address
        for turn in range(rounds):
            for way in list(WAYS)[:: -1 if turn % 2 else 1]:
                short, long = (measure("ray_overhead", "--one", way, "--tasks", n, cwd=Path(folder)) for n in LENGTHS)
                cpu_us = 1e6 * (long["cpu_s"] - short["cpu_s"]) / (LENGTHS[1] - LENGTHS[0])
                results[way].append({"cpu_us": cpu_us, "per_s": long["per_s"]})
                say(f"round {turn + 1}/{rounds}  {way}: {cpu_us:.0f} us, {long['per_s']:.0f} /s")
    return {way: {name: spread([each[name] for each in some]) for name in some[0]} for way, some in results.items()}


def main() -> int:
    """Measure and print; the table goes to stdout, what is going on to stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=tuple(WAYS))
    parser.add_argument("--tasks", type=int)
    args = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("Ray's overhead is not measured: Ray is not installed (pip install 'velodrome[ray]')")
        return 0
    if args.one:
        print(orjson.dumps(one(args.one, args.tasks)).decode())
        return 0
    figures = run(args.rounds, say=lambda line: print(line, file=sys.stderr, flush=True))
    rows = [[way, shown(each["cpu_us"], 0), shown(each["per_s"], 0)] for way, each in figures.items()]
    print(table(["way", "CPU us of the writing process per rollout", "rollouts per second"], rows))
    return concluded(figures, [], json=args.json, check=False)


if __name__ == "__main__":
    sys.exit(main())
