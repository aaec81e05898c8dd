"""Two hundred thousand rollouts: memory stays within its budget, and the way back in is short."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from patience import DEADLINE_S

COUNT = 200_000
MEGABYTE = 1_000_000
BUDGET_BYTES = 150 * MEGABYTE + 100 * COUNT
# The budget is 15 s for a million: a fifth of that, three times over for a machine busy with other tests.
RESUME_S = 15 * COUNT / 1_000_000 * 3


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
        timeout=DEADLINE_S,
    )
    code, peak = done.stdout.split()
    return int(code), int(peak), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_thousand_rollouts_stay_within_memory_and_resume_in_time(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", COUNT + 1)
    command = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"

    code, peak, stderr = peak_of(workplace, f"{command} +limit={COUNT} +num_samples_in_parallel=64")
    assert code == 0, stderr[-2000:]
    assert peak <= BUDGET_BYTES, f"{peak / MEGABYTE:.0f} MB"

    path = workplace.folder / "rollouts.jsonl"
    size = path.stat().st_size
    began = time.time()
    code, peak, stderr = peak_of(workplace, command)
    assert code == 0, stderr[-2000:]
    assert peak <= BUDGET_BYTES, f"{peak / MEGABYTE:.0f} MB"
    with path.open("rb") as stream:
        stream.seek(size)
        new = [json.loads(line) for line in stream]
    assert [row["meta"]["key"] for row in new] == [f"task-{COUNT}/0"]
    assert new[0]["meta"]["finished_at"] - began <= RESUME_S
    metrics = json.loads((workplace.folder / "rollouts.metrics.json").read_text())
    assert metrics["rollouts/kept"] == COUNT + 1
