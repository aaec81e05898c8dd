"""SIGKILL of any process of a run with workers, at random moments: every rollout is there once, as if undisturbed.

A rollout that was in flight at two kills is a failure that says so, which the same command runs again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.shown.conftest import content
from tests.support.patience import DEADLINE_S
from tests.support.ray_nodes import children

COLLECT = (
    "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT +num_samples_in_parallel=8"
    " +num_repeats=2 +num_workers=2 +seed=5"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "runs"),
    [(100, 2), pytest.param(300, 40, marks=pytest.mark.chaos)],
)
def test_a_run_whose_processes_are_killed_again_and_again_leaves_what_an_undisturbed_one_leaves(
    workplace: Any, tasks: int, runs: int
):
    """Of five kills, the second is one of the run itself, which ends it; the next run continues."""
    workplace.scripted(latency_s=0.01)
    workplace.tasks("tasks.jsonl", tasks)
    assert workplace.run(COLLECT.replace("OUT", "calm.jsonl")).returncode == 0
    chance, kills, parents = random.Random(11), 0, 0
    disturbed = COLLECT.replace("OUT", "rollouts.jsonl")

    for _ in range(runs):
        process = workplace.start(disturbed)
        while process.poll() is None:
            workplace.wait_for_bytes("rollouts.jsonl", process, workplace.size_of("rollouts.jsonl"))
            time.sleep(chance.random() * 0.05)  # the random moment itself, not a wait for something
            pids = children(process.pid)
            parent = kills % 5 == 1
            if process.poll() is None and (parent or pids):
                with suppress(ProcessLookupError):
                    os.kill(process.pid if parent else chance.choice(pids), signal.SIGKILL)
                    kills += 1
                parents += parent
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, 3, -signal.SIGKILL), errors
        if process.returncode in (0, 3):
            break

    assert workplace.run(disturbed).returncode == 0
    assert kills > parents > 0
    assert content(workplace.rows()) == content(workplace.rows("calm.jsonl"))
    failed = workplace.folder / "rollouts.failures.jsonl"
    failures = workplace.rows(failed.name) if failed.exists() else []
    assert all("2 worker processes ended while this rollout" in each["error"] for each in failures)
