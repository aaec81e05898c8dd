"""Time to threshold beside stable-baselines3: `python -m benchmarks.train.threshold [--seeds 3] [--json FILE]`.

Our recipes and stable-baselines3's PPO with the settings that rl-baselines3-zoo publishes, in turns, each in a process
of its own, on one thread. CPU seconds of training alone, until the first evaluation at the threshold.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.commands import measure
from benchmarks.summary import Check, Json, shown, spread, table
from benchmarks.train.__main__ import say
from benchmarks.train.solve import run_command
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


def report(result: Json) -> None:
    """The table."""
    rows = [
        [
            recipe,
            f"{TASKS[recipe].threshold:g}",
            way,
            f"{each['reached']} of {each['cpu_s']['n']}",
            shown(each["steps"], 0),
            shown(each["cpu_s"], 1),
        ]
        for recipe, ways in result.items()
        for way, each in ways.items()
    ]
    print("\nTime to threshold: median (range).\n")
    print(table(["recipe", "threshold", "trainer", "seeds at the threshold", "steps", "CPU seconds"], rows))


def ratio(recipe: str, ways: Json) -> Check:
    """What a recipe is held to."""
    times = ways[WAYS[1]]["cpu_s"]["median"] / ways[WAYS[0]]["cpu_s"]["median"]
    return Check(f"{recipe}: stable-baselines3's CPU seconds over ours", times, 1.0, "x", least=True)


if __name__ == "__main__":
    sys.exit(run_command("threshold", __doc__, ZOO, 3, raced, report, ratio))
