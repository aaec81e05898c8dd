"""Two hundred thousand rollouts: memory stays within its budget, and a resume runs only what is new.

How soon it resumes is measured by `make bench` (benchmarks/scale.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

COUNT = 200_000
MEGABYTE = 1_000_000
BUDGET_BYTES = 150 * MEGABYTE + 100 * COUNT

# A small process in between: the peak that wait4 reports begins with the size of the process that forked.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)
"""


def peak_of(workplace: Any, command: str) -> tuple[int, int, str]:
    """The exit code, the peak memory in bytes and stderr of a command."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command.split()],
        cwd=workplace.folder,
        env=workplace.environ,
        capture_output=True,
        text=True,
    )
    code, peak = done.stdout.split()
    return int(code), int(peak), done.stderr


@pytest.mark.slow
def test_two_hundred_thousand_rollouts_stay_within_memory_and_a_resume_runs_only_what_is_new(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", COUNT + 1)
    command = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"

    code, peak, stderr = peak_of(workplace, f"{command} +limit={COUNT} +num_samples_in_parallel=64")
    assert code == 0, stderr[-2000:]
    assert peak <= BUDGET_BYTES, f"{peak / MEGABYTE:.0f} MB"

    path = workplace.folder / "rollouts.jsonl"
    size = path.stat().st_size
    code, peak, stderr = peak_of(workplace, command)
    assert code == 0, stderr[-2000:]
    assert peak <= BUDGET_BYTES, f"{peak / MEGABYTE:.0f} MB"
    with path.open("rb") as stream:
        stream.seek(size)
        new = [json.loads(line) for line in stream]
    assert [row["meta"]["key"] for row in new] == [f"task-{COUNT}/0"]
    metrics = json.loads((workplace.folder / "rollouts.metrics.json").read_text())
    assert metrics["rollouts/kept"] == COUNT + 1
