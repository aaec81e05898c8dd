"""Worker processes beside one process, when the collector itself is what bounds: the model answers in the process.

    python -m benchmarks.workers [--rounds 5] [--check] [--json FILE]

Every round measures one process, two workers, and two plain processes that share nothing (each with half of the tasks):
what the machine has to give at this moment. The start of processes is left out: rates are those of the rows. `short` is
a rollout with one tool call, `long` one with sixteen.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import velodrome as velo
from benchmarks.commands import ROOT, measure
from benchmarks.summary import Check, Json, concluded, shown, spread, table

SIZES = {"short": (1, 6000), "long": (16, 1000)}  # tool calls in a rollout, rollouts
PARALLEL = 64
LEAST = 1.8


class Echo(velo.Environment):
    """A tool that costs nothing."""

    @velo.tool
    async def echo(self, text: str) -> str:
        """The same text."""
        return text

    async def verify(self, task: Json, response: Any) -> float:
        """Always right."""
        return 1.0


def one(size: str, workers: int, tasks: int) -> Json:
    """One collection: its rate, from its rows, and the CPU of this process and of those it started."""
    calls = SIZES[size][0]
    answers: list[Any] = [{"tool_calls": [{"name": "echo", "arguments": {"text": "a few words " * 4}}]}] * calls
    agent = velo.SimpleAgent(model=velo.ScriptedModel(answers=[*answers, "done"]), environment=Echo())
    with tempfile.TemporaryDirectory() as folder:
        names = [f"task {number}" for number in range(tasks)]
        run = asyncio.run(
            velo.collect(names, agent, out=Path(folder) / "r.jsonl", parallel=PARALLEL, workers=workers, progress=False)
        )
    if run.kept != tasks:
        raise SystemExit(f"{run.kept} rollouts were kept, not {tasks}")
    here, below = (_cpu_s(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    per_s = run.metrics["throughput/samples_per_s"]
    return {"per_s": per_s, "cpu_ms": 1e3 * (here + below) / tasks, "parent_ms": 1e3 * here / tasks}


def apart(size: str, tasks: int) -> Json:
    """Two collections at once, each with half of the tasks."""
    command = [sys.executable, "-m", "benchmarks.workers", "--one", size, "--workers", "1", "--tasks", str(tasks // 2)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
    figures = [orjson.loads(each.communicate()[0]) for each in running]
    return {
        "per_s": sum(each["per_s"] for each in figures),
        "cpu_ms": sum(each["cpu_ms"] for each in figures) / 2,
        "parent_ms": 0.0,
    }


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def run(rounds: int, say: Callable[[str], None]) -> Json:
    """Every figure."""
    figures: Json = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, (_, tasks) in SIZES.items():
            ways: dict[str, tuple[object, ...]] = {"1": ("--workers", 1), "2": ("--workers", 2), "apart": ("--apart",)}
            results: dict[str, list[Json]] = {way: [] for way in ways}
            for turn in range(rounds):
                for way in list(ways)[:: -1 if turn % 2 else 1]:
                    result = measure("workers", "--one", size, "--tasks", tasks, *ways[way], cwd=Path(folder))
                    results[way].append(result)
                    say(f"round {turn + 1}/{rounds}  {size} {way:<6} {result['per_s']:.0f} /s")
            figures[size] = {
                way: {name: spread([each[name] for each in some]) for name in ("per_s", "cpu_ms", "parent_ms")}
                for way, some in results.items()
            }
            for name in ("2", "apart"):
                pairs = zip(results[name], results["1"], strict=True)
                figures[size][name]["gain"] = spread([a["per_s"] / b["per_s"] for a, b in pairs])
    return figures


def main() -> int:
    """Measure and print; the tables go to stdout, what is going on to stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--one", choices=tuple(SIZES))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    if args.one:
        result = apart(args.one, args.tasks) if args.apart else one(args.one, args.workers, args.tasks)
        print(orjson.dumps(result).decode())
        return 0
    found = run(args.rounds, say=lambda line: print(line, file=sys.stderr, flush=True))
    names = {"1": "one process", "2": "two workers", "apart": "two runs that share nothing"}
    rows = [
        [size, text, shown(figures[way]["per_s"], 0), shown(figures[way]["cpu_ms"]), shown(figures[way]["parent_ms"])]
        for size, figures in found.items()
        for way, text in names.items()
    ]
    print(table(["rollout", "way", "per second", "CPU ms each", "of it in the parent"], rows))
    checks = [
        Check(
            f"rollouts/s, two workers over one process, {size}", figures["2"]["gain"]["median"], LEAST, "x", least=True
        )
        for size, figures in found.items()
    ]
    checks += [
        Check(
            f"the same over what two separate runs gain, {size}",
            figures["2"]["gain"]["median"] / figures["apart"]["gain"]["median"],
            0.9,
            least=True,
        )
        for size, figures in found.items()
    ]
    print()
    print(table(["figure", "value", "budget", ""], [each.cells() for each in checks]))
    return concluded(found, checks, json=args.json, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
