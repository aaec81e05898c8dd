"""The main job on one machine: a small real LLM, a calculator, a verifier, rollouts in a file.

Run by `make demo`. Each step is a `velo` command that is printed before it runs, so it can be typed again.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path

from velodrome.cli.main import main

HERE = Path(__file__).parent
FOLDER = Path("demo")
OUTPUT = FOLDER / "rollouts.jsonl"
CONFIGS = (
    "resources_servers/calculator/configs/calculator.yaml",
    "responses_api_models/local_model/configs/local_model.yaml",
)


def step(*words: str) -> int:
    """Print a command and run it."""
    print(f"\n$ velo {shlex.join(words)}", file=sys.stderr, flush=True)
    return main(words)


def demo() -> int:
    """Pull, collect, show."""
    if step("model", "pull"):
        return 1
    began = time.monotonic()
    code = step(
        "collect",
        f"+config_paths=[{','.join(CONFIGS)}]",
        f"+input_jsonl_fpath={HERE / 'demo_tasks.jsonl'}",
        f"+output_jsonl_fpath={OUTPUT}",
        "+limit=24",
        "+num_samples_in_parallel=16",
        "+max_wall_s=60",
        "+drain_s=10",
        "+overwrite=true",
        "+embedded=true",
    )
    took = time.monotonic() - began
    if code not in (0, 4) or not OUTPUT.stat().st_size:
        return code
    if step("show", str(OUTPUT), "1"):
        return 1
    reward = json.loads((FOLDER / "rollouts.metrics.json").read_text())["reward"]
    rollouts = sum(1 for _ in OUTPUT.open())
    print(
        f"\n{rollouts} rollouts of a real model in {took:.0f} s, mean reward {reward:.3f}: {OUTPUT}\n"
        "Next:\n"
        f"  .venv/bin/velo show {OUTPUT} --all | less        every conversation\n"
        f"  .venv/bin/velo metrics {OUTPUT}                  the numbers again, from the file\n"
        "  .venv/bin/velo envs                                        list the environments\n"
        "  docs/environments.md                                       write your own, in twenty lines",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(demo())
