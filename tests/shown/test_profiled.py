"""Profiling in the collector's own process: the same rollouts, every call counted, and readable after a kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import Any

from patience import DEADLINE_S
from test_traced import COLLECT, contents


def calls(log: str, name: str) -> int:
    """How often a function was called, by a profile's table."""
    result = re.search(rf"^{re.escape(name)} +(\d+) ", log, re.MULTILINE)
    assert result is not None, log[:2000]
    return int(result[1])


def test_a_profiled_collection_makes_the_same_rollouts_and_counts_every_call(workplace: Any) -> None:
    workplace.scripted(latency_s=0.002)
    workplace.tasks("tasks.jsonl", 60, wrong=20)
    plain = workplace.run(COLLECT.replace("OUT", "plain.jsonl"))

    flags = " +profiling_enabled=true +profiling_results_dirpath=profiles"
    profiled = workplace.run(COLLECT.replace("OUT", "profiled.jsonl") + flags)

    assert (plain.returncode, profiled.returncode) == (0, 0), profiled.stderr
    assert contents(workplace, "profiled.jsonl") == contents(workplace, "plain.jsonl")
    for name in ("collector.log", "collector.wall.log"):
        log = (workplace.folder / "profiles" / name).read_text()
        assert log.split("\n", 1)[0].split() == ["name", "ncall", "tsub", "ttot", "tavg"]
        assert (calls(log, "Calculator.verify"), calls(log, "Calculator.calculator")) == (60, 60)


def test_a_collector_killed_while_it_is_profiled_leaves_what_it_had_measured(workplace: Any) -> None:
    workplace.scripted(latency_s=0.01)
    workplace.tasks("tasks.jsonl", 5000)
    flags = " +profiling_enabled=true +profiling_results_dirpath=profiles +profiling_save_every_s=0.2"
    command = COLLECT.replace("OUT", "killed.jsonl") + flags
    log = workplace.folder / "profiles" / "collector.log"
    with subprocess.Popen(
        command.split(), cwd=workplace.folder, env=workplace.environ, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + DEADLINE_S
        while not (log.exists() and "Calculator.verify " in log.read_text()):
            assert time.monotonic() < deadline, "no profile was saved"
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)

    assert 0 < calls(log.read_text(), "Calculator.verify") <= 5000
    assert workplace.rows("killed.jsonl")
