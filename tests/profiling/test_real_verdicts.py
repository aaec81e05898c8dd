"""The verdict on real runs, each bound by one thing on purpose (benchmarks/verdict_cases.py).

`python -m benchmarks.verdicts --causes --record tests/profiling/verdicts` records the files again. Whether predictions
come true is measured by `make bench`.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.profiling.profile import Profile
from velodrome.records.facts import RowFacts

FOLDER = Path(__file__).parent / "verdicts"
ROOT = Path(__file__).parents[2]
CAUSES = {
    "connection_limit": "connection_limit",
    "connections_to_servers": "connection_limit",
    "half_the_connections": "connection_limit",
    "judge_s_limit": "judge_limit",
    "few_threads": "threads",
    "limit_too_low": "concurrency",
    "max_concurrent_too_low": "model_limit",
    "model_in_the_process": "model",
    "model_slower_with_load": "model",
    "model_with_a_queue": "model",
    "one_straggler": "straggler",
    "rate_limit": "rate_limit",
    "slow_disk": "disk",
    "slow_disk_hides_the_model": "disk",
    "slow_input": "slow_input",
    "slow_server_worker": "server",
    "too_few_tasks": "input",
    "too_few_tasks_that_vary": "input",
    "tool_holds_the_GIL": "tool",
    "tool_holds_the_loop": "event_loop",
    "verify_burns_CPU": "verify_cpu",
    "verify_hides_the_model": "verify_cpu",
    "verify_holds_the_loop": "event_loop",
    "verify_of_varied_length": "concurrency",
    "verify_waits": "concurrency",
}


def verdict(file: Path) -> Any:
    head, *rows = (json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines())
    profile = Profile()
    for meta in rows:
        profile.add(RowFacts({"reward": 1.0, "meta": meta}))
    return profile.report(head["config"])["verdict"]


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_that_bound_a_real_run_is_named(name: str) -> None:
    result = verdict(FOLDER / f"{name}.jsonl.gz")
    assert (result["bound"], name) == (CAUSES[name], name), result["paragraph"]


@pytest.mark.parametrize("name", ["slow_disk_hides_the_model", "verify_hides_the_model", "verify_burns_CPU"])
def test_no_number_rests_on_times_that_a_late_loop_or_other_threads_made_longer(name: str) -> None:
    result = verdict(FOLDER / f"{name}.jsonl.gz")
    assert [each["predicted_rollouts_per_s"] for each in result["advice"]] == [None] * len(result["advice"])


def test_it_is_said_that_a_late_loop_hides_what_the_model_takes() -> None:
    result = verdict(FOLDER / "slow_disk_hides_the_model.jsonl.gz")
    assert "What that gives is not known: the event loop was late" in result["paragraph"]


def test_times_that_vary_are_not_said_to_be_longer_with_more_at_once() -> None:
    result = verdict(FOLDER / "verify_of_varied_length.jsonl.gz")
    assert result["paragraph"].endswith("What that gives is not known: whether verify gets slower with more at once.")


def test_every_recorded_run_has_its_cause() -> None:
    assert {file.name.removesuffix(".jsonl.gz") for file in FOLDER.iterdir()} == set(CAUSES)


@pytest.mark.slow
def test_what_is_measured_in_a_run_is_enough_to_name_its_cause() -> None:
    """Waits of which no load can make the cause another: all of them are sleeps."""
    cases = ["connection limit", "slow input", "slow disk", "one straggler"]
    command = [sys.executable, "-m", "benchmarks.verdicts", "--causes", "--check", "--only", *cases]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok ") == len(cases)
