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

from tests.support.patience import DEADLINE_S
from velodrome.profiling.profile import Profile
from velodrome.records.facts import RowFacts

FOLDER = Path(__file__).parent / "verdicts"
ROOT = Path(__file__).parents[2]
CAUSES = {
    "concurrency": [
        "429s_at_any_load_8_at_once",
        "429s_at_any_load_24_at_once",
        "429s_at_any_load_64_at_once",
        "limit_too_low",
        "verify_of_varied_length",
        "verify_waits",
    ],
    "connection_limit": ["connection_limit", "connections_to_servers", "half_the_connections"],
    "disk": ["slow_disk", "slow_disk_hides_the_model"],
    "event_loop": ["tool_holds_the_loop", "verify_holds_the_loop"],
    "input": ["too_few_tasks", "too_few_tasks_that_vary"],
    "judge_limit": ["judge_s_limit"],
    "model": ["model_in_the_process", "model_slower_with_load", "model_with_a_queue"],
    "model_limit": ["max_concurrent_too_low"],
    "rate_limit": [
        "rate_limit_8_at_once",
        "rate_limit_24_at_once",
        "rate_limit_64_at_once",
        "rate_limit_with_Retry_After_8_at_once",
        "rate_limit_with_Retry_After_24_at_once",
        "rate_limit_with_Retry_After_64_at_once",
    ],
    "server": ["slow_server_worker"],
    "slow_input": ["slow_input"],
    "straggler": ["one_straggler"],
    "threads": ["few_threads"],
    "tool": ["tool_holds_the_GIL"],
    "verify_cpu": ["verify_burns_CPU", "verify_hides_the_model"],
}


def verdict(file: Path) -> Any:
    head, *rows = (json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines())
    profile = Profile()
    for meta in rows:
        profile.add(RowFacts({"reward": 1.0, "meta": meta}))
    return profile.report(head["config"])["verdict"]


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_that_bound_a_real_run_is_named(cause: str) -> None:
    for name in CAUSES[cause]:
        result = verdict(FOLDER / f"{name}.jsonl.gz")
        assert (name, result["bound"]) == (name, cause), result["paragraph"]


def test_no_number_rests_on_times_that_a_late_loop_or_other_threads_made_longer() -> None:
    for name, reason in {
        "slow_disk_hides_the_model": "",
        "verify_hides_the_model": "",
        "verify_burns_CPU": "",
        "verify_of_varied_length": "whether verify gets slower with more at once.",
    }.items():
        result = verdict(FOLDER / f"{name}.jsonl.gz")
        assert {each["predicted_rollouts_per_s"] for each in result["advice"]} == {None}
        assert not reason or f"What that gives is not known: {reason}" in result["paragraph"]


@pytest.mark.slow
def test_what_is_measured_in_a_run_is_enough_to_name_its_cause() -> None:
    """Waits of which no load can make the cause another: all of them are sleeps."""
    cases = ["connection limit", "slow disk"]
    command = [sys.executable, "-m", "benchmarks.verdicts", "--causes", "--check", "--only", *cases]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok ") == len(cases)
