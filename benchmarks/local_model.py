"""The local model on the demo's tasks: rollouts per second at 1, 4, 8 and 16 in flight, in turns.

`python -m benchmarks.local_model [--rounds 3] [--threads 1] [--json FILE]`. The budget: it rises with what is in
flight, and is at least 1.5 at 16 on one thread. Wall time suffers from whatever else the machine does, so rollouts per
second of CPU and the load are beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import velodrome
from benchmarks.summary import Json
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.local_model.app import LocalModel

IN_FLIGHT = (1, 4, 8, 16)
LEAST_AT_16 = 1.5
NO_LOSS = 0.97  # a step that loses less is noise
_TASKS = Path(__file__).parent.parent / "examples" / "demo_tasks.jsonl"


async def measure(in_flight: int, rollouts: int, threads: int) -> Json:
    """One collection with a model that is loaded and has read nothing."""
    model = LocalModel(n_threads=threads)
    await model.respond({"input": "Hello", "max_output_tokens": 1})
    agent = SimpleAgent(model_server=model, resources_server=Calculator())
    wall, cpu = time.perf_counter(), time.process_time()
    run = await velodrome.collect(_TASKS, agent, limit=rollouts, parallel=in_flight, seed=1, progress=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await model.aclose()
    kept = len(run.rollouts)
    return {"per_s": kept / wall, "per_cpu_s": kept / cpu, "load": os.getloadavg()[0]}


def table(results: dict[int, list[Json]]) -> tuple[list[Json], bool]:
    """A row for each number in flight, medians of the rounds; whether the budget is kept."""
    rows = [
        {"in_flight": number} | {key: median(each[key] for each in rounds) for key in rounds[0]}
        for number, rounds in results.items()
    ]
    rates = [row["per_s"] for row in rows]
    rises = rates[-1] > rates[0] and all(later >= NO_LOSS * rate for rate, later in pairwise(rates))
    return rows, rises and rates[-1] >= LEAST_AT_16


def main() -> int:
    """Measure, print the table; 1 if the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[int, list[Json]] = {number: [] for number in IN_FLIGHT}
    for _ in range(args.rounds):
        for number in IN_FLIGHT:
            results[number].append(asyncio.run(measure(number, args.rollouts, args.threads)))
    rows, kept = table(results)
    print(f"local model, demo tasks, {args.threads} thread(s), median of {args.rounds}\n")
    print("in flight  rollouts/s  rollouts per CPU-second  load")
    for row in rows:
        print(f"{row['in_flight']:>9}  {row['per_s']:>10.2f}  {row['per_cpu_s']:>23.2f}  {row['load']:>4.1f}")
    budget = f"rises with what is in flight; at 16 at least {LEAST_AT_16} on one thread"
    print(f"\nbudget: {budget}: {'kept' if kept else 'missed'}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"rows": rows, "budget": budget, "kept": kept}, indent=2) + "\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
