"""The main job on one machine: a small real LLM, a calculator, a verifier, rollouts in a file.

Run by `make demo`. Each step is a `velo` command that is printed before it runs, so it can be typed again.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path

from velodrome.cli.main import main
from velodrome.cli.streams import say

TASKS = Path(os.path.relpath(__file__)).with_name("demo_tasks.jsonl")
FOLDER = Path("demo")
OUTPUT = FOLDER / "rollouts.jsonl"


def step(*words: str) -> int:
    """Print a command and run it."""
    print(f"\n$ velo {shlex.join(words)}", file=sys.stderr, flush=True)
    return main(words)


def demo() -> int:
    """Pull, collect, and say what to look at; nothing is opened."""
    if step("model", "pull"):
        return 1
    began = time.monotonic()
    code = step(
        *("collect", "calculator", "local_model", str(TASKS), "-o", str(OUTPUT)),
        *("--limit", "24", "--parallel", "16", "--max-wall-s", "60", "--drain-s", "10", "--overwrite", "--embedded"),
    )
    took = time.monotonic() - began
    if code not in (0, 4) or not OUTPUT.stat().st_size:
        return code
    reward = json.loads((FOLDER / "rollouts.metrics.json").read_text())["reward"]
    rollouts = sum(1 for _ in OUTPUT.open())
    say(
        f"\n{rollouts} rollouts of a real model in {took:.0f} s, mean reward {reward:.3f}: {OUTPUT}\n"
        f"  .venv/bin/velo view {OUTPUT}    read them in a browser\n"
        f"  .venv/bin/velo show {OUTPUT}    read one here\n"
        "  .venv/bin/velo envs                        the environments there are\n"
        "  docs/environments.md                       write your own, in twenty lines"
    )
    return 0


if __name__ == "__main__":
    sys.exit(demo())
