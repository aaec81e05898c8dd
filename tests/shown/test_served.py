"""The same components as servers: two terminals, the same rollouts, servers killed in the middle, no secret told."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.shown.conftest import numbered
from tests.support.patience import DEADLINE_S
from tests.support.ray_nodes import children, title
from tests.support.running import free_port, http

SECRET = "sk-never-to-be-seen-by-anybody"


@contextmanager
def terminal(workplace: Any, command: str, ready: str, code: int = 0) -> Iterator[None]:
    """A command that goes on in a terminal of its own, from when it has said `ready` until Ctrl-C."""
    log = workplace.folder / f"terminal-{free_port()}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=workplace.folder,
            env=workplace.environ,
            stdout=out,
            stderr=out,
            text=True,
        )
    deadline = time.monotonic() + DEADLINE_S
    while ready not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == code, log.read_text()


def head_at(workplace: Any, port: int, more: str = "") -> None:
    workplace.write("env.yaml", f"head_server: {{host: 127.0.0.1, port: {port}}}\n{more}")


def instances(port: int) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in http(f"http://127.0.0.1:{port}/server_instances")[1]}


def pid_of(port: int, name: str) -> int:
    """The process of a server, once it is there."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            result = instances(port)[name]
            if result["status"] == "ok":
                pid = result["pid"]
                return int(pid[0] if isinstance(pid, list) else pid)
        except (OSError, KeyError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"{name} did not come back")


def made(row: dict[str, Any]) -> dict[str, Any]:
    """What of a rollout does not depend on when and where it was made."""
    kept = {name: value for name, value in row.items() if name not in ("meta", "response")}
    by_chance = {"write_s", "cpu", "lag_s", "read_s"}  # which come with the first sample, or where reading took long
    parts = sorted(set(row["meta"]["timing"]) - by_chance)
    return {**kept, "scored": row["meta"]["scored"], "text": row["response"]["content"], "parts": parts}


def test_the_same_tasks_give_the_same_rollouts_embedded_and_served(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 60, wrong=20)
    port = free_port()
    configs = '"+config_paths=[agent.yaml,model.yaml]"'
    collect = "ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +num_repeats=2"
    embedded = workplace.run(f"{collect} {configs} +output_jsonl_fpath=embedded.jsonl")
    head_at(workplace, port)

    with terminal(workplace, f"ng_run {configs} +num_workers=2", "all ready"):
        served = workplace.run(f"{collect} +output_jsonl_fpath=served.jsonl")

    assert (embedded.returncode, served.returncode) == (0, 0), served.stderr
    one, other = (
        {row["meta"]["key"]: made(row) for row in workplace.rows(name)} for name in ("embedded.jsonl", "served.jsonl")
    )
    assert one == other
    assert sorted(one) == numbered(60, 2)


SERVERS = ("calculator", "policy_model", "my_agent")


@pytest.mark.slow
@pytest.mark.parametrize(
    "victims", [["policy_model", "head_server"], pytest.param([*SERVERS, "head_server"], marks=pytest.mark.chaos)]
)
def test_a_server_killed_in_the_middle_comes_back_and_the_file_ends_with_everything_once(
    workplace: Any, victims: list[str]
) -> None:
    workplace.scripted(latency_s=0.02)
    workplace.tasks("tasks.jsonl", 150)
    port = free_port()
    head_at(workplace, port)

    with terminal(workplace, 'ng_run "+config_paths=[agent.yaml,model.yaml]"', "all ready"):
        for victim in victims:
            pids = {name: pid_of(port, name) for name in SERVERS}
            output = f"{victim}.jsonl"
            collect = "ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl"
            collect += f" +output_jsonl_fpath={output}"
            collection = workplace.start(collect)
            workplace.wait_for_bytes(output, collection, 20_000)
            os.kill(head_pid(pids["calculator"]) if victim == "head_server" else pids[victim], signal.SIGKILL)
            _, stderr = collection.communicate(timeout=DEADLINE_S)
            assert collection.returncode in (0, 3), stderr
            assert f"requested 150 = kept {len(workplace.rows(output))} + failed " in stderr
            back = {name: pid_of(port, name) for name in SERVERS}
            assert {name for name in SERVERS if back[name] != pids[name]} == {victim} - {"head_server"}
            again = workplace.run(collect)
            assert again.returncode == 0, again.stderr
            assert sorted(workplace.keys(output)) == numbered(150)
            assert {row["reward"] for row in workplace.rows(output)} == {1.0}

    for pid in back.values():
        assert not Path(f"/proc/{pid}").exists()


def head_pid(sibling: int) -> int:
    """The head's process: the child of the same supervisor that is none of the servers."""
    parent = int(Path(f"/proc/{sibling}/stat").read_text().rpartition(")")[2].split()[1])
    return next(pid for pid in children(parent) if "head_server" in title(pid))


COUNTER = """
config_paths: [resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml, model.yaml]
"""
COUNTING = """
policy_model:
  responses_api_models:
    scripted_model:
      answers: [{tool_calls: [{name: increment_counter, arguments: {count: 2}}]}, done]
      latency_s: 0.02
"""


@pytest.mark.slow
def test_sessions_of_64_in_flight_are_their_own_with_several_workers_of_which_one_is_killed(workplace: Any) -> None:
    port = free_port()
    head_at(workplace, port)
    workplace.write("servers.yaml", COUNTER)
    workplace.write("model.yaml", COUNTING)
    row = {"responses_create_params": {"input": "go"}}
    workplace.write_rows(
        "tasks.jsonl", ({"id": str(n), **row, "initial_count": n, "expected_count": n + 2} for n in range(300))
    )
    collect = "ng_collect_rollouts +agent_name=example_session_state_mgmt_simple_agent"
    collect += " +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl +num_samples_in_parallel=64"
    name = "example_session_state_mgmt"

    with terminal(workplace, "ng_run +config_paths=[servers.yaml] +num_workers=2", "all ready"):
        collection = workplace.start(collect)
        workplace.wait_for_bytes("rollouts.jsonl", collection, 20_000)
        os.kill(pid_of(port, name), signal.SIGKILL)
        _, stderr = collection.communicate(timeout=DEADLINE_S)
        assert collection.returncode in (0, 3), stderr
        kept = len(workplace.rows())
        assert f"requested 300 = kept {kept} + failed {300 - kept}" in stderr
        pid_of(port, name)
        again = workplace.run(collect)
        assert again.returncode == 0, again.stderr
        left = {http(instances(port)[name]["url"])[1]["open_sessions"] for _ in range(8)}

    assert sorted(workplace.keys()) == sorted(f"{n}/0" for n in range(300))
    assert {row["reward"] for row in workplace.rows()} == {1.0}  # every one saw its own counter alone
    assert left == {0}


LEAKY = """
from velodrome import Environment


class Leaky(Environment):
    api_key: str

    def verify(self, task, response):
        raise RuntimeError(f"cannot log in with {self.api_key}")
"""


def test_a_secret_that_a_component_tells_in_its_error_is_masked_in_every_file(workplace: Any) -> None:
    port = free_port()
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 3)
    head_at(workplace, port)
    workplace.environment("leaky", LEAKY, f", api_key: {SECRET}")

    with terminal(workplace, "ng_run +config_paths=[agent.yaml,model.yaml]", "all ready"):
        done = workplace.run("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 3
    assert "cannot log in with ***" in (workplace.folder / "rollouts.failures.jsonl").read_text()
    assert SECRET not in done.stderr
    for path in workplace.folder.rglob("*"):
        if path.is_file() and path.name != "agent.yaml":
            assert SECRET.encode() not in path.read_bytes(), path
