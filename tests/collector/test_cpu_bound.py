"""A verifier that breaks, in a whole collection: what each executor contains, and what it cannot."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import DEADLINE_S

SCRIPT = '''
from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from typing import Literal

import velodrome as velo


class Breaks(velo.Environment):
    """In __main__, so a worker process gets it by value."""

    way: Literal["crash", "exit", "spin", "none"] = "none"

    @velo.tool
    def look(self, where: Literal["here", "there"]) -> str:
        """Look."""
        return where

    def verify(self, task, response):
        if task["id"] == "bad":
            if self.way == "crash":
                ctypes.string_at(0)
            elif self.way == "exit":
                os._exit(3)
            elif self.way == "spin":
                while True:
                    pass
        return {"reward": float(len(response.text)), "here": float(sys.argv[0].endswith("script.py"))}


way, executor, out = sys.argv[1:]
environment = Breaks(way=way, executor=executor, verify_timeout_s=2.0 if way == "spin" else 600.0, worker_processes=2)
agent = velo.SimpleAgent(model=velo.ScriptedModel(answers=["yes"]), environment=environment)
tasks = [{"id": name, "responses_create_params": {"input": name}} for name in ("a", "b", "bad", "c", "d")]
asyncio.run(velo.collect(tasks, agent, out=out, parallel=1, progress=False))
'''


def collected(tmp_path: Path, way: str, executor: str) -> tuple[int, dict[str, float], list[tuple[str, str, str]]]:
    """The exit code of a collection of five tasks, the rewards it kept, and its failures."""
    out = tmp_path / "rollouts.jsonl"
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), way, executor, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    failed = out.with_name("rollouts.failures.jsonl")
    lines = failed.read_text().splitlines() if failed.exists() else []
    failures = [(row["key"], row["boundary"], row["error"]) for row in map(json.loads, lines)]
    return done.returncode, rows(out), failures


def rows(out: Path) -> dict[str, tuple[float, float]]:
    """The reward of each task, and whether its code ran in the collecting process."""
    lines = out.read_text().splitlines()
    return {row["id"]: (row["reward"], row["here"]) for row in map(json.loads, lines)}


def failure(tmp_path: Path, error: str) -> tuple[str, str, str]:
    line = SCRIPT[: SCRIPT.index("def verify")].count("\n") + 1
    return "bad/0", "verify", f"{error} ({tmp_path / 'script.py'}:{line} in Breaks.verify)"


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("crash", "verify: its process ended with signal SIGSEGV"),
        ("exit", "verify: its process ended with exit code 3"),
        ("spin", "verify: no answer within 2 s"),
    ],
)
def test_in_a_process_it_costs_one_rollout_which_is_blamed_on_verify(tmp_path: Path, way: str, error: str):
    kept = dict.fromkeys(("a", "b", "c", "d"), (3.0, 0.0))
    assert collected(tmp_path, way, "process") == (0, kept, [failure(tmp_path, error)])


def test_in_a_thread_a_spin_costs_one_rollout(tmp_path: Path):
    kept = dict.fromkeys(("a", "b", "c", "d"), (3.0, 1.0))
    assert collected(tmp_path, "spin", "thread") == (0, kept, [failure(tmp_path, "verify: no answer within 2 s")])


@pytest.mark.parametrize("executor", ["inline", "thread"])
@pytest.mark.parametrize(("way", "code"), [("crash", -signal.SIGSEGV), ("exit", 3)])
def test_in_the_collecting_process_a_crash_ends_the_run_and_a_resume_in_processes_completes_it(
    tmp_path: Path, executor: str, way: str, code: int
):
    assert collected(tmp_path, way, executor) == (code, dict.fromkeys(("a", "b"), (3.0, 1.0)), [])
    done, kept, failures = collected(tmp_path, way, "process")
    assert (done, list(kept), len(failures)) == (0, ["a", "b", "c", "d"], 1)


def test_the_reward_is_the_same_in_each_executor(tmp_path: Path):
    results = {}
    for executor in ("inline", "thread", "process"):
        (tmp_path / executor).mkdir()
        _, kept, failures = collected(tmp_path / executor, "none", executor)
        results[executor] = ({name: reward for name, (reward, _) in kept.items()}, failures)
    assert results == dict.fromkeys(results, (dict.fromkeys(("a", "b", "bad", "c", "d"), 3.0), []))


CONFIG = """
weather:
  resources_servers:
    own:
      entrypoint: app.py
      executor: {executor}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: weather}}
      model_server: {{type: responses_api_models, name: policy_model}}
policy_model:
  responses_api_models:
    scripted_model:
      answers: ["yes"]
"""
APP = """
import os

from velodrome import Environment

from .beside import REWARD


class Own(Environment):
    def verify(self, task, response):
        return {"reward": REWARD, "here": float(os.getpid() == task["pid"])}
"""


def test_an_environment_of_a_folder_runs_in_processes_with_the_files_beside_it(tmp_path: Path):
    folder = tmp_path / "resources_servers" / "own"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "beside.py").write_text("REWARD = 0.25\n")
    (tmp_path / "config.yaml").write_text(CONFIG.format(executor="process"))
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "responses_create_params": {"input": "a"}, "pid": 1}\n')
    command = [sys.executable, "-m", "velodrome.cli.main", "collect", "+config_paths=[config.yaml]"]
    files = ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=out.jsonl"]
    done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, rows(tmp_path / "out.jsonl")) == (0, {"a": (0.25, 0.0)}), done.stderr


@pytest.mark.parametrize(
    ("value", "told"),
    [("fork", "executor"), ("process, worker_processes: none", "worker_processes")],
)
def test_a_bad_value_is_one_line_and_exit_code_2(tmp_path: Path, value: str, told: str):
    folder = tmp_path / "resources_servers" / "own"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "beside.py").write_text("REWARD = 0.25\n")
    (tmp_path / "config.yaml").write_text(CONFIG.format(executor=value.replace(", ", "\n      ")))
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "responses_create_params": {"input": "a"}}\n')
    command = [sys.executable, "-m", "velodrome.cli.main", "collect", "+config_paths=[config.yaml]"]
    files = ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=out.jsonl"]
    done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "weather" in line and told in line], done.stderr
    assert "Traceback" not in done.stderr
