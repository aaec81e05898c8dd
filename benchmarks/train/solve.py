"""Recipes that solve their task: `python -m benchmarks.train.solve [--seeds 5] [--only RECIPE] [--json FILE]`.

Every recipe with every seed, in a process of its own and on one thread. A recipe solves its task if the policy at the
end of every seed's training has at least the threshold, as the mean over 100 episodes with the likeliest actions.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.commands import measure
from benchmarks.summary import Check, Json, concluded, shown, spread, table
from benchmarks.train.__main__ import ONE_THREAD, machine, say
from benchmarks.train.to_threshold import TASKS


def solved(recipe: str, seeds: int) -> Json:
    """How the seeds ended, and when each first reached the threshold."""
    runs = []
    for seed in range(seeds):
        runs.append(measure("train.to_threshold", "ours", recipe, seed, cwd=Path.cwd()))
        first, last = runs[-1]["first"], runs[-1]["last"]
        reached = f"threshold at {first[0]:,} steps, {first[1]:.1f} s" if first else "never at the threshold"
        say(f"{recipe}, seed {seed}: {reached}; {last[2]:.2f} at the end ({last[0]:,} steps, {last[1]:.1f} s)")
    firsts = [each["first"] for each in runs if each["first"]]
    return {
        "threshold": TASKS[recipe].threshold,
        "returns": spread([each["last"][2] for each in runs]),
        "steps": runs[0]["last"][0],
        "cpu_s": spread([each["last"][1] for each in runs]),
        "reached": len(firsts),
        "first_steps": spread([each[0] for each in firsts]) if firsts else None,
        "first_cpu_s": spread([each[1] for each in firsts]) if firsts else None,
        "runs": runs,
    }


def report(result: Json) -> None:
    """The table."""
    head = ["recipe", "threshold", "return at the end", "steps to threshold", "CPU s to threshold", "steps", "CPU s"]
    rows = [
        [
            recipe,
            f"{each['threshold']:g}",
            shown(each["returns"]),
            shown(each["first_steps"], 0) if each["first_steps"] else "-",
            shown(each["first_cpu_s"], 1) if each["first_cpu_s"] else "-",
            f"{each['steps']:,}",
            shown(each["cpu_s"], 1),
        ]
        for recipe, each in result.items()
    ]
    print(f"\nRecipes that solve: {next(iter(result.values()))['returns']['n']} seeds, median (range).\n")
    print(table(head, rows))


def lowest(recipe: str, each: Json) -> Check:
    """What a recipe is held to."""
    return Check(f"{recipe}: the lowest seed", each["returns"]["low"], each["threshold"], least=True)


def run_command(
    name: str,
    text: str | None,
    tasks: Iterable[str],
    seeds: int,
    measured: Callable[[str, int], Json],
    report: Callable[[Json], None],
    check: Callable[[str, Json], Check],
) -> int:
    """The command line of a benchmark over recipes and seeds: train, print, write."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.train.{name}", description=text)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"seeds of each recipe [{seeds}]")
    parser.add_argument("--only", choices=tasks, action="append", help="one recipe; may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    result = {recipe: measured(recipe, args.seeds) for recipe in args.only or tasks}
    report(result)
    made = [check(recipe, each) for recipe, each in result.items()]
    print()
    print(table(["what", "measured", "goal", ""], [each.cells() for each in made]))
    return concluded({"machine": machine(), name: result}, made, json=args.json, check=True)


if __name__ == "__main__":
    sys.exit(run_command("solve", __doc__, TASKS, 5, solved, report, lowest))
