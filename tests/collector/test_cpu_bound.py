"""A verifier that breaks, in a whole collection: what each executor contains, and what it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collector.embedded import lines_of, write_tasks
from tests.support.patience import DEADLINE_S
from tests.support.running import write_component
from velodrome.cli.main import main

SCRIPT = '''
import asyncio
import ctypes
import os
import sys
from typing import Literal

import velodrome as velo


class Breaks(velo.Environment):
    """In __main__, so a worker process gets it by value."""

    @velo.tool
    def look(self, where: Literal["here", "there"]) -> str:
        """Look."""
        return where

    def verify(self, task, response):
        if task["id"] == "crash":
            ctypes.string_at(0)
        elif task["id"] == "exit":
            os._exit(3)
        while task["id"] == "spin":
            pass
        return {"reward": float(len(response.text)), "here": float(sys.argv[0].endswith("script.py"))}


executor, out, *names = sys.argv[1:]
environment = Breaks(executor=executor, verify_timeout_s=2.0, worker_processes=2)
agent = velo.SimpleAgent(model=velo.ScriptedModel(answers=["yes"]), environment=environment)
tasks = [{"id": name, "responses_create_params": {"input": name}} for name in names]
asyncio.run(velo.collect(tasks, agent, out=out, parallel=1, progress=False))
'''
OUT = "rollouts.jsonl"


def collected(folder: Path, executor: str, *names: str) -> tuple[int, dict[str, float], dict[str, Any]]:
    """The exit code of a collection, whether the code of each rollout ran in its process, and its failures."""
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "script.py"), executor, str(folder / OUT), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    failed = folder / "rollouts.failures.jsonl"
    failures = {row["key"]: (row["boundary"], row["error"]) for row in (lines_of(failed) if failed.exists() else [])}
    rows = lines_of(folder / OUT)
    assert {row["reward"] for row in rows} == {3.0}
    return done.returncode, {row["id"]: row["here"] for row in rows}, failures


@pytest.mark.slow
def test_in_a_process_it_costs_one_rollout_which_is_blamed_on_verify(tmp_path: Path):
    line = SCRIPT[: SCRIPT.index("def verify")].count("\n") + 1
    place = f" ({tmp_path / 'script.py'}:{line} in Breaks.verify)"
    assert collected(tmp_path, "process", "a", "crash", "b", "exit", "c", "spin", "d") == (
        0,
        dict.fromkeys("abcd", 0.0),
        {
            "crash/0": ("verify", f"verify: its process ended with signal SIGSEGV{place}"),
            "exit/0": ("verify", f"verify: its process ended with exit code 3{place}"),
            "spin/0": ("verify", f"verify: no answer within 2 s{place}"),
        },
    )


CONFIG = """
weather:
  resources_servers:
    own: {executor: process}
agent:
  responses_api_agents:
    simple_agent:
      resources_server: {type: resources_servers, name: weather}
      model_server: {type: responses_api_models, name: policy_model}
policy_model:
  responses_api_models:
    scripted_model: {answers: ["yes"]}
"""
APP = """
import os

from velodrome import Environment

from .beside import REWARD


class Own(Environment):
    def verify(self, task, response):
        return {"reward": REWARD, "here": float(os.getpid() == task["pid"])}
"""


@pytest.mark.slow
def test_an_environment_of_a_folder_runs_in_processes_with_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path, "resources_servers", "own", APP).with_name("beside.py").write_text("REWARD = 0.25\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    write_tasks(tmp_path / "tasks.jsonl", "a", pid=os.getpid())
    files = ["+input_jsonl_fpath=tasks.jsonl", f"+output_jsonl_fpath={OUT}"]
    assert main(["collect", "+config_paths=[config.yaml]", *files]) == 0
    assert [(row["reward"], row["here"]) for row in lines_of(tmp_path / OUT)] == [(0.25, 0.0)]
