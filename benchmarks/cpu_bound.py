"""A verifier that computes for 20 ms: `executor: process` beside `thread`, and beside two processes with nothing else.

    python -m benchmarks.cpu_bound [--rounds 5] [--check] [--json FILE]

Every round measures each way once, in turn; a ratio is of two measurements of one round. The workers' start is part of
the run. CPU per rollout is that of all processes: however busy the machine is, it tells what the processes cost.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import velodrome as velo
from benchmarks.commands import measure
from benchmarks.summary import Check, Json, concluded, shown, spread, table

BURNED_S = 0.02
ROLLOUTS = 600
PARALLEL = 16
PROCESSES = 2
LEAST = 1.8


def burn(steps: int) -> int:
    """A computation that holds the interpreter's lock."""
    total = 0
    for step in range(steps):
        total += step * step % 7
    return total


def calibrated() -> int:
    """How many steps take 20 ms of CPU."""
    steps, took = 10_000, []
    for _ in range(20):
        began = time.process_time()
        burn(steps)
        took.append(time.process_time() - began)
    return round(steps * BURNED_S / min(took))


class Burns(velo.Environment):
    """Its verify computes."""

    steps: int

    def verify(self, task: Json, response: Any) -> float:
        """Always right, after a while."""
        burn(self.steps)
        return 1.0


def one(executor: str, steps: int) -> Json:
    """One collection in this process."""
    if executor in ("1", "2"):
        return _plain(int(executor), steps)
    environment = Burns(steps=steps, executor=executor, worker_processes=PROCESSES)  # type: ignore[arg-type]
    agent = velo.SimpleAgent(model=velo.ScriptedModel(answers=["yes"]), environment=environment)
    tasks = [f"task {number}" for number in range(ROLLOUTS)]
    began = time.perf_counter()
    run = asyncio.run(velo.collect(tasks, agent, parallel=PARALLEL, progress=False))
    seconds = time.perf_counter() - began
    if run.metrics["rollouts/kept"] != ROLLOUTS:
        raise SystemExit(f"{run.metrics['rollouts/kept']} rollouts were kept, not {ROLLOUTS}")
    return {"per_s": ROLLOUTS / seconds, "cpu_ms": 1e3 * _cpu_s() / ROLLOUTS}


def _plain(processes: int, steps: int) -> Json:
    """The same computations without anything around them, in so many processes."""
    code = f"from benchmarks.cpu_bound import burn\nfor _ in range({ROLLOUTS // processes}): burn({steps})"
    began = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(processes)]
    for each in running:
        each.wait()
    return {"per_s": ROLLOUTS / (time.perf_counter() - began), "cpu_ms": 1e3 * _cpu_s() / ROLLOUTS}


def _cpu_s() -> float:
    whose = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in whose)


def run(rounds: int, say: Callable[[str], None]) -> Json:
    """Every figure."""
    steps = calibrated()
    ways = ("thread", "process", "1", "2")
    results: dict[str, list[Json]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for way in ways if turn % 2 == 0 else reversed(ways):
                result = measure("cpu_bound", "--one", way, "--steps", steps, cwd=Path(folder))
                results[way].append(result)
                say(f"round {turn + 1}/{rounds}  {way:<8} {result['per_s']:.1f} /s  {result['cpu_ms']:.2f} ms of CPU")

    def ratio(way: str, other: str, figure: str = "per_s") -> Json:
        return spread([a[figure] / b[figure] for a, b in zip(results[way], results[other], strict=True)])

    figures = {
        way: {name: spread([each[name] for each in results[way]]) for name in ("per_s", "cpu_ms")} for way in ways
    }
    return figures | {
        "gain": ratio("process", "thread"),
        "machine": ratio("2", "1"),
        "cpu": ratio("process", "thread", "cpu_ms"),
    }


def report(found: Json, checks: list[Check]) -> str:
    """The figures as tables."""
    names = {
        "thread": "executor: thread",
        "process": f"executor: process, {PROCESSES} workers",
        "1": "the computation alone, one process",
        "2": "the computation alone, two processes",
    }
    rows = [[text, shown(found[way]["per_s"], 1), shown(found[way]["cpu_ms"])] for way, text in names.items()]
    ways = table(["way", "per second", "CPU ms each"], rows)
    return f"{ways}\n\n{table(['figure', 'value', 'budget', ''], [each.cells() for each in checks])}"


def made_checks(found: Json) -> list[Check]:
    """The aim, and the same beside what the machine gives two processes at this moment."""
    gain, machine = found["gain"]["median"], found["machine"]["median"]
    return [
        Check("rollouts/s, process over thread", gain, LEAST, "x", least=True),
        Check("the same over what two plain processes gain", gain / machine, 0.9, least=True),
        Check("CPU per rollout, process over thread", found["cpu"]["median"], 1.1, "x"),
    ]


def main() -> int:
    """Measure and print; the tables go to stdout, what is going on to stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--one", choices=("inline", "thread", "process", "1", "2"))
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    if args.one:
        print(orjson.dumps(one(args.one, args.steps)).decode())
        return 0
    found = run(args.rounds, say=lambda line: print(line, file=sys.stderr, flush=True))
    checks = made_checks(found)
    print(report(found, checks))
    return concluded(found, checks, json=args.json, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
