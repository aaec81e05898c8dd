"""SIGKILL of any process of a run with workers, at random moments: every rollout is there once, as if undisturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from test_nothing_lost import start, wait_for_bytes

COLLECT = (
    "exec ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT +num_samples_in_parallel=8"
    " +num_repeats=2 +num_workers=2 +seed=5"
)


def children(process: subprocess.Popen[str]) -> list[int]:
    """Processes that this one started: workers, and the one that reads rows."""
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    return []


def content(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rollouts by key, without times and ids."""
    keys = [row["meta"]["key"] for row in rows]
    assert len(keys) == len(set(keys))
    for row in rows:
        del row["meta"]["timing"], row["meta"]["finished_at"], row["response"]["id"]
    return dict(zip(keys, rows, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", " +speculate=true"])
def test_a_run_whose_processes_are_killed_again_and_again_leaves_what_an_undisturbed_one_leaves(
    workplace: Any, more: str
):
    workplace.scripted(latency_s=0.004)
    workplace.tasks("tasks.jsonl", 300)
    assert workplace.run(COLLECT.replace("OUT", "calm.jsonl")).returncode == 0
    chance, kills, parents = random.Random(11), 0, 0
    path = workplace.folder / "rollouts.jsonl"
    disturbed = COLLECT.replace("OUT", "rollouts.jsonl") + more

    for _ in range(40):
        process = start(workplace, disturbed)
        while process.poll() is None:
            wait_for_bytes(path, path.stat().st_size if path.exists() else 0, process)
            time.sleep(chance.random() * 0.1)  # the random moment itself, not a wait for something
            pids = children(process)
            parent = kills % 5 == 4
            if process.poll() is None and (parent or pids):
                with suppress(ProcessLookupError):
                    os.kill(process.pid if parent else chance.choice(pids), signal.SIGKILL)
                    kills += 1
                parents += parent
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, -signal.SIGKILL), errors
        if process.returncode == 0:
            break

    assert workplace.run(disturbed).returncode == 0
    assert kills - parents >= 3
    assert parents >= 1
    assert content(workplace.rows()) == content(workplace.rows("calm.jsonl"))
    assert not (workplace.folder / "rollouts.failures.jsonl").exists()
