"""What a sandbox costs: its start, a trivial program in it, and 64 of them in flight.

    python -m benchmarks.sandbox --rounds 50

`cold` starts a box when it is asked for; `warm` takes one that waits. Beside them is the same program as a plain child
process: the floor, on this machine and at this moment. CPU counts all processes of the boxes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from benchmarks.summary import Check, Json, concluded, shown, spread, table
from velodrome.environments.sandbox import Sandbox, Sandboxes

PROGRAM = "print(sum(map(int, input().split())))"
FLIGHT = 64
PER_BOX = 4


async def trivial(box: Sandbox) -> None:
    ran = await box.run(["python3", "main.py"], stdin="1 2\n")
    if ran.stdout != "3\n":
        raise RuntimeError(f"the program failed: {ran}")


async def one_by_one(rounds: int, warm: int) -> Json:
    """Milliseconds until a box is open, for the program in it, and both together; CPU of all."""
    boxes = Sandboxes(warm=warm)
    opens, runs, both = [], [], []
    await (await boxes.open()).close()  # the first one finds out what works here
    before = children_cpu_s()
    for _ in range(rounds):
        await asyncio.gather(*boxes._ready)  # a warm one is ready before it is asked for
        start = time.perf_counter()
        async with await boxes.open({"main.py": PROGRAM}) as box:
            opened = time.perf_counter()
            await trivial(box)
            end = time.perf_counter()
        opens.append(1000 * (opened - start))
        runs.append(1000 * (end - opened))
        both.append(1000 * (end - start))
    await boxes.aclose()
    cpu_ms = 1000 * (children_cpu_s() - before) / rounds
    return {"open_ms": spread(opens), "run_ms": spread(runs), "both_ms": spread(both), "cpu_ms": cpu_ms}


async def plain(rounds: int) -> Json:
    """The same program as an ordinary child."""
    times, before = [], children_cpu_s()
    for _ in range(rounds):
        start = time.perf_counter()
        child = await asyncio.create_subprocess_exec(
            sys._base_executable,  # type: ignore[attr-defined]
            "-c",
            PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await child.communicate(b"1 2\n")
        times.append(1000 * (time.perf_counter() - start))
    return {"run_ms": spread(times), "cpu_ms": 1000 * (children_cpu_s() - before) / rounds}


async def in_flight(count: int) -> Json:
    """Boxes per second, each with a few programs, 64 of them open at a time."""
    boxes = Sandboxes()
    await (await boxes.open()).close()
    queue = iter(range(count))
    cpu_s, host_s, start = children_cpu_s(), time.process_time(), time.perf_counter()

    async def worker() -> None:
        for _ in queue:
            async with await boxes.open({"main.py": PROGRAM}) as box:
                for _ in range(PER_BOX):
                    await trivial(box)

    await asyncio.gather(*(worker() for _ in range(FLIGHT)))
    seconds, host_s = time.perf_counter() - start, time.process_time() - host_s
    await boxes.aclose()
    return {
        "boxes_per_s": count / seconds,
        "programs_per_s": count * PER_BOX / seconds,
        "cpu_ms": 1000 * (children_cpu_s() - cpu_s) / count,
        "host_cpu_ms": 1000 * host_s / count,
    }


def children_cpu_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def made_checks(found: Json) -> list[Check]:
    """The aim of a warm box; the same beside a plain child, which a busy machine slows as much; the host's part."""
    warm, floor = found["warm"]["both_ms"]["median"], found["plain"]["run_ms"]["median"]
    return [
        Check("a trivial program in a warm box", warm, 30, "ms"),
        Check("the same over a plain child", warm / floor, 1.5, "x"),
        Check("CPU of the host per box, 64 in flight", found["flight"]["host_cpu_ms"], 15, "ms"),
    ]


def report(found: Json, checks: list[Check]) -> str:
    rows = [["plain child", "", shown(found["plain"]["run_ms"], 1), "", f"{found['plain']['cpu_ms']:.1f}"]]
    for way in ("cold", "warm"):
        figures = found[way]
        times = [shown(figures[name], 1) for name in ("open_ms", "run_ms", "both_ms")]
        rows.append([f"{way} box", *times, f"{figures['cpu_ms']:.1f}"])
    flight = found["flight"]
    line = (
        f"{FLIGHT} in flight: {flight['boxes_per_s']:.0f} boxes/s with {PER_BOX} programs each "
        f"({flight['programs_per_s']:.0f} programs/s), {flight['cpu_ms']:.0f} ms of CPU per box, "
        f"{flight['host_cpu_ms']:.1f} ms of it in the host process"
    )
    ways = table(["way", "open, ms", "program, ms", "both, ms", "CPU ms"], rows)
    return f"{ways}\n\n{line}\n\n{table(['figure', 'value', 'budget', ''], [each.cells() for each in checks])}"


async def measure(rounds: int) -> Json:
    return {
        "plain": await plain(rounds),
        "cold": await one_by_one(rounds, warm=0),
        "warm": await one_by_one(rounds, warm=2),
        "flight": await in_flight(max(FLIGHT, 4 * rounds)),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    found = asyncio.run(measure(args.rounds))
    checks = made_checks(found)
    print(report(found, checks))
    return concluded(found, checks, json=args.json, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
