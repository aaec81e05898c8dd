"""The real verifiers: `vf-eval` plays its NeMo Gym taskset on our environment server, with our model server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.programs import environment, make_home, process_group
from tests.interop.test_nemo_gym import SCRIPT, TASKS, lines, read
from tests.support import hosted as hosting
from tests.support.patience import DEADLINE_S
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.responses_api_models.scripted_model.app import ScriptedModel


def evaluate(folder: Path, settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """`vf-eval` with a home of its own and no other variables, in a group of processes that ends with it."""
    python = environment("verifiers")
    make_home(folder / "home", python)
    config = folder / "eval.json"
    config.write_text(json.dumps(settings))
    variables = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], "NO_KEY": "none"}
    command = [str(python.with_name("vf-eval")), "@", str(config), "--no-rich"]
    with process_group(command, folder, variables, stderr=subprocess.STDOUT) as process:
        said, _ = process.communicate(timeout=DEADLINE_S)
    return subprocess.CompletedProcess(command, process.returncode, said)


def test_its_nemo_gym_taskset_is_played_and_scored_on_our_servers(tmp_path: Path):
    tasks = lines(tmp_path / "tasks.jsonl", TASKS[1:])
    with (
        hosting.hosted("resources_servers", ExampleSessionStateMgmt) as counter,
        hosting.hosted("responses_api_models", lambda: ScriptedModel(answers=SCRIPT)) as model,
    ):
        taskset = {"id": "nemo_gym", "dataset": str(tasks), "task": {"resources_url": counter}}
        agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
        ended = evaluate(
            tmp_path,
            {
                "model": "policy_model",
                "push": False,
                "output_dir": str(tmp_path / "out"),
                "run": {"name": "run"},
                "client": {"base_url": f"{model}/v1", "api_key_var": "NO_KEY"},
                "env": {"taskset": taskset, "agent": agent},
            },
        )
    assert ended.returncode == 0, ended.stdout
    episodes = sorted(
        read(tmp_path / "out" / "run" / "traces.jsonl"), key=lambda each: str(each["task"]["data"]["idx"])
    )
    assert [(each["ok"], each["errors"]) for each in episodes] == [(True, [])] * 2, ended.stdout
    traces = [each["traces"][0] for each in episodes]
    assert [each["rewards"]["nemo_gym"]["score"] for each in traces] == [1, 0]
    assert [each["info"]["nemo_gym"]["final_count"] for each in traces] == [4, 5]  # sessions by cookie
