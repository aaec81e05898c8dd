"""Memory does not grow with the number of rollouts beyond its budget, and a resume runs only what is new.

How soon it resumes, and 200,000 rollouts and more, are measured by `make bench` (benchmarks/scale.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

FEW, MANY = 2_000, 16_000
MEGABYTE = 1_000_000
BASE_BYTES, BYTES_EACH = 150 * MEGABYTE, 100
NOISE_BYTES = 10 * MEGABYTE  # of two peaks of one program


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
def test_memory_stays_within_its_budget_however_many_rollouts_and_a_resume_runs_only_what_is_new(
    workplace: Any,
) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", MANY + 1)
    command = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +num_samples_in_parallel=64 +output_jsonl_fpath="

    peaks = []
    for count in (FEW, MANY):
        code, peak, stderr = peak_of(workplace, f"{command}{count}.jsonl +limit={count}")
        assert code == 0, stderr[-2000:]
        assert peak <= BASE_BYTES + BYTES_EACH * count, f"{count}: {peak / MEGABYTE:.0f} MB"
        peaks.append(peak)
    grown = peaks[1] - peaks[0]
    assert grown <= BYTES_EACH * (MANY - FEW) + NOISE_BYTES, f"{grown / MEGABYTE:.1f} MB"

    path = workplace.folder / f"{MANY}.jsonl"
    size = path.stat().st_size
    code, peak, stderr = peak_of(workplace, f"{command}{MANY}.jsonl")
    assert code == 0, stderr[-2000:]
    assert peak <= BASE_BYTES + BYTES_EACH * MANY, f"{peak / MEGABYTE:.0f} MB"
    with path.open("rb") as stream:
        stream.seek(size)
        new = [json.loads(line) for line in stream]
    assert [row["meta"]["key"] for row in new] == [f"task-{MANY}/0"]
    metrics = json.loads((workplace.folder / f"{MANY}.metrics.json").read_text())
    assert metrics["rollouts/kept"] == MANY + 1
