"""Time to threshold beside stable-baselines3: `python -m benchmarks.train.threshold [--seeds 3] [--json FILE]`.

Our recipes and stable-baselines3's PPO with the settings that rl-baselines3-zoo publishes, in turns, each in a process
of its own, on one thread. CPU seconds of training alone, until the first evaluation at the threshold.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.commands import measure
from benchmarks.summary import Check, Json, concluded, shown, spread, table
from benchmarks.train.__main__ import ONE_THREAD, machine, say
from benchmarks.train.to_threshold import TASKS, ZOO

WAYS = ("ours", "stable-baselines3")


def raced(recipe: str, seeds: int) -> Json:
    """`{way: figures}`; a seed that never reached the threshold counts with all of its training."""
    runs: dict[str, list[Json]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        for way in WAYS if seed % 2 == 0 else WAYS[::-1]:
            each = measure("train.to_threshold", way, recipe, seed, "--first", cwd=Path.cwd())
            step, cpu_s, mean = each["first"] or each["last"]
            say(f"{recipe}, {way}, seed {seed}: {mean:.1f} at {step:,} steps, {cpu_s:.1f} CPU seconds")
            runs[way].append(each)
    ends = {way: [each["first"] or each["last"] for each in of] for way, of in runs.items()}
    return {
        way: {
            "reached": sum(each["first"] is not None for each in runs[way]),
            "steps": spread([each[0] for each in ends[way]]),
            "cpu_s": spread([each[1] for each in ends[way]]),
            "runs": runs[way],
        }
        for way in WAYS
    }


def main() -> int:
    """Train, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train.threshold", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each [3]")
    parser.add_argument("--only", choices=ZOO, action="append", help="one task; may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    result = {recipe: raced(recipe, args.seeds) for recipe in args.only or ZOO}
    print(f"\nTime to threshold: {args.seeds} seeds, median (range).\n")
    rows = [
        [
            recipe,
            f"{TASKS[recipe].threshold:g}",
            way,
            f"{each['reached']}",
            shown(each["steps"], 0),
            shown(each["cpu_s"], 1),
        ]
        for recipe, ways in result.items()
        for way, each in ways.items()
    ]
    print(table(["recipe", "threshold", "trainer", "seeds at the threshold", "steps", "CPU seconds"], rows))
    made = [
        Check(
            f"{recipe}: stable-baselines3's CPU seconds over ours",
            ways[WAYS[1]]["cpu_s"]["median"] / ways["ours"]["cpu_s"]["median"],
            1.0,
            "x",
            least=True,
        )
        for recipe, ways in result.items()
    ]
    print()
    print(table(["what", "measured", "goal", ""], [check.cells() for check in made]))
    return concluded({"machine": machine(), "threshold": result}, made, json=args.json, check=True)


if __name__ == "__main__":
    sys.exit(main())
