"""Budgets of `make bench`: a miss is shown, one that load does not explain is an exit code. What peers are charged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.peers.process_tree import Look, figures, memory_mb, tree
from benchmarks.summary import Check, concluded


@pytest.mark.parametrize(
    ("value", "least", "outcome", "code", "code_checked"),
    [
        (10.0, False, "ok", 0, 0),
        (19.0, False, "MISSED", 0, 1),
        (21.0, False, "MISSED BY FAR", 1, 1),
        (10.0, True, "ok", 0, 0),
        (6.0, True, "MISSED", 0, 1),
        (4.0, True, "MISSED BY FAR", 1, 1),
    ],
)
def test_a_budget_missed_by_far_is_an_exit_code_and_any_miss_is_one_with_check(
    tmp_path: Path, value: float, least: bool, outcome: str, code: int, code_checked: int
):
    checks = [Check("fine", 1.0, 2.0), Check("this", value, 10.0, "s", least=least)]
    assert checks[1].cells()[-1] == outcome
    assert concluded({}, checks, json=tmp_path / "out.json", check=False) == code
    assert concluded({}, checks, json=None, check=True) == code_checked
    assert [each["far"] for each in json.loads((tmp_path / "out.json").read_text())["checks"]] == [False, code == 1]


def test_a_peer_is_charged_for_the_time_in_which_all_its_rollouts_are_in_flight():
    start_up = [Look(float(second), 1.0 + second, 0) for second in range(5)]
    # Four in flight: 2 s of CPU for each of the first and the last four rollouts, 0.5 s for each between.
    work = [Look(5.0 + done, 6.0 + 2 * min(done, 4) + 0.5 * max(0, min(done, 16) - 4), 2 * done) for done in range(17)]
    tail = [Look(21.0 + done, 20.0 + 2 * done, 32 + 2 * done) for done in range(1, 5)]
    assert figures([*start_up, *work, *tail], rollouts=20, parallel=4) == {
        "rollouts": 12,
        "cpu_ms": 500.0,
        "per_s": 1.0,
        "start_s": 6.0,
        "start_cpu_s": 8.0,
    }


def test_too_few_rollouts_for_a_steady_state_are_refused():
    with pytest.raises(ValueError, match="too few"):
        figures([Look(float(at), float(at), 2 * at) for at in range(9)], rollouts=8, parallel=4)


def test_the_processes_that_a_peer_starts_are_counted_with_it():
    child = "import sys; print('up', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        processes = tree(process.pid)
        assert len(processes) == 2
        assert memory_mb(processes) > memory_mb({process.pid: 0.0}) > 0
        process.communicate()


def test_a_collection_that_slows_down_is_not_steady():
    steady = [(step * 1.0, step * 0.5, step * 100) for step in range(1, 101)]
    slowing = [(now * 2 if size > 9_000 else now, cpu, size) for now, cpu, size in steady]
    assert scale.steadiness(steady, 0) == scale.steadiness(steady, 1) == 1.0
    assert scale.steadiness(slowing, 0) < 0.5
    assert scale.steadiness(slowing, 1) == 1.0
