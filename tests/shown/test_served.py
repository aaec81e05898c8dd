"""The same components as servers: two terminals, the same rollouts, servers killed in the middle, no secret told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import test_seeds
from patience import DEADLINE_S

SECRET = "sk-never-to-be-seen-by-anybody"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        result: int = sock.getsockname()[1]
        return result


@contextmanager
def terminal(workplace: Any, command: str, ready: str) -> Iterator[subprocess.Popen[str]]:
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
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0, log.read_text()


def head_at(workplace: Any, port: int, more: str = "") -> None:
    workplace.write("env.yaml", f"head_server: {{host: 127.0.0.1, port: {port}}}\n{more}")


def instances(port: int) -> dict[str, dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_instances", timeout=DEADLINE_S) as answer:
        return {each["name"]: each for each in json.load(answer)}


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


def content(row: dict[str, Any]) -> dict[str, Any]:
    """What of a rollout does not depend on when and where it was made."""
    kept = {name: value for name, value in row.items() if name not in ("meta", "response")}
    kept["key"] = row["meta"]["key"]
    kept["scored"] = row["meta"]["scored"]
    kept["text"] = row["response"]["content"]
    by_chance = {"write_s", "cpu", "lag_s", "read_s"}  # which come with the first sample, or where reading took long
    kept["parts"] = sorted(set(row["meta"]["timing"]) - by_chance)
    return kept


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_tasks_give_the_same_rollouts_embedded_and_served(workplace: Any, workers: int) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 60, wrong=20)
    port = free_port()
    configs = '"+config_paths=[agent.yaml,model.yaml]"'
    collect = "ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl +num_repeats=2"
    embedded = workplace.run(f"{collect} {configs} +output_jsonl_fpath=embedded.jsonl")
    head_at(workplace, port)

    with terminal(workplace, f"ng_run {configs} +num_workers={workers}", "all ready"):
        served = workplace.run(f"{collect} +output_jsonl_fpath=served.jsonl")

    assert (embedded.returncode, served.returncode) == (0, 0), served.stderr
    one = sorted(map(content, workplace.rows("embedded.jsonl")), key=lambda row: row["key"])
    other = sorted(map(content, workplace.rows("served.jsonl")), key=lambda row: row["key"])
    assert one == other
    assert len(one) == 120
    served_time = workplace.rows("served.jsonl")[0]["meta"]["timing"]
    assert served_time["model_calls"] == 2
    assert 0 < served_time["model_s"] + served_time["tools_s"] + served_time["verify_s"] <= served_time["total_s"]


SEED_000_RUN = """config_paths="responses_api_models/openai_model/configs/openai_model.yaml,\\
resources_servers/math_with_judge/configs/bytedtsinghua_dapo17k.yaml"

ng_run "+config_paths=[${config_paths}]" \\
    +profiling_enabled=true \\
    +profiling_results_dirpath=results/profiling/math_with_judge"""
SEED_000_COLLECT = """ng_collect_rollouts +agent_name=math_with_judge_simple_agent \\
    +input_jsonl_fpath=resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl \\
    +output_jsonl_fpath=temp/math_with_judge_rollouts.jsonl \\
    +limit=1024 \\
    +num_repeats=1"""


@contextmanager
def terminal_ended_by_interrupt(workplace: Any, command: str, ready: str) -> Iterator[None]:
    """As `terminal`, for a command whose exit code after Ctrl-C is 130."""
    try:
        with terminal(workplace, command, ready):
            yield
    except AssertionError:
        if "Ctrl-C ends it" not in "".join(path.read_text() for path in workplace.folder.glob("terminal-*.log")):
            raise


def served_texts(port: int) -> str:
    """What every server tells about itself."""
    texts = []
    addresses = [f"http://127.0.0.1:{port}", *(each["url"] for each in instances(port).values())]
    for address in addresses:
        for route in (
            "/",
            "/health",
            "/server_instances",
            "/global_config_dict_yaml",
            "/openapi.json",
            "/docs",
            "/tools",
        ):
            try:
                with urllib.request.urlopen(address + route, timeout=DEADLINE_S) as answer:
                    texts.append(answer.read().decode())
            except urllib.error.HTTPError as error:
                texts.append(error.read().decode())
    return "\n".join(texts)


SERVERS = ("calculator", "policy_model", "my_agent")


@pytest.mark.slow
def test_a_server_killed_in_the_middle_comes_back_and_the_file_ends_with_everything_once(workplace: Any) -> None:
    workplace.scripted(latency_s=0.02)
    workplace.tasks("tasks.jsonl", 400)
    port = free_port()
    head_at(workplace, port)

    with terminal(workplace, 'ng_run "+config_paths=[agent.yaml,model.yaml]"', "all ready"):
        for victim in (*SERVERS, "head_server"):
            pids = {name: pid_of(port, name) for name in SERVERS}
            output = workplace.folder / f"{victim}.jsonl"
            collect = "exec ng_collect_rollouts +agent_name=my_agent +input_jsonl_fpath=tasks.jsonl"
            collect += f" +output_jsonl_fpath={output.name}"
            collection = subprocess.Popen(
                ["bash", "-c", collect], cwd=workplace.folder, env=workplace.environ, stderr=subprocess.PIPE, text=True
            )
            deadline = time.monotonic() + DEADLINE_S
            while not (output.exists() and output.stat().st_size > 20_000):
                assert collection.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(head_pid(pids["calculator"]) if victim == "head_server" else pids[victim], signal.SIGKILL)
            _, stderr = collection.communicate(timeout=DEADLINE_S)
            assert collection.returncode in (0, 3), stderr
            assert f"requested 400 = kept {len(workplace.rows(output.name))} + failed " in stderr
            back = {name: pid_of(port, name) for name in SERVERS}
            assert {name for name in SERVERS if back[name] != pids[name]} == {victim} - {"head_server"}
            again = workplace.run(collect)
            assert again.returncode == 0, again.stderr
            assert sorted(workplace.keys(output.name)) == sorted(f"task-{number}/0" for number in range(400))
            assert {row["reward"] for row in workplace.rows(output.name)} == {1.0}

    for pid in back.values():
        assert not Path(f"/proc/{pid}").exists()


def head_pid(sibling: int) -> int:
    """The head's process: the child of the same supervisor that is none of the servers."""
    parent = int(Path(f"/proc/{sibling}/stat").read_text().rpartition(")")[2].split()[1])
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes()
                its_parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if its_parent == parent and b"head" in words:
                return int(path.name)
    raise AssertionError("no head found")


@pytest.mark.slow
def test_every_collect_command_of_the_seeds_runs_as_written_against_servers(workplace: Any) -> None:
    workplace.scripted()
    agents = (workplace.folder / "agent.yaml").read_text()
    yours = agents[agents.index("my_agent:") :].replace("my_agent", "your_agent")
    workplace.write("agent.yaml", agents + yours)
    head_at(workplace, free_port())
    for name in ("tasks.jsonl", "full_dataset.jsonl", "benchmark.jsonl"):
        workplace.tasks(name, 30)

    with terminal(workplace, 'ng_run "+config_paths=[agent.yaml,model.yaml]"', "all ready"):
        for command, output, count, overrides in test_seeds.SAME_LINES:
            if "agent_name" not in command:  # two agents run here: one must be named
                command = command.replace("ng_collect_rollouts", "ng_collect_rollouts +agent_name=my_agent")
            done = workplace.run(f"rm -f {output.removesuffix('.jsonl')}.*; {command}")
            assert done.returncode == 0, done.stderr
            rows = workplace.rows(output)
            request = [{k: v for k, v in row["responses_create_params"].items() if k in overrides} for row in rows]
            assert request == [overrides] * count


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
    rows = [
        {"id": str(n), "responses_create_params": {"input": "go"}, "initial_count": n, "expected_count": n + 2}
        for n in range(600)
    ]
    workplace.write("tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    collect = "exec ng_collect_rollouts +agent_name=example_session_state_mgmt_simple_agent"
    collect += " +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl +num_samples_in_parallel=64"
    name = "example_session_state_mgmt"

    with terminal(workplace, "ng_run +config_paths=[servers.yaml] +num_workers=2", "all ready"):
        collection = subprocess.Popen(
            ["bash", "-c", collect], cwd=workplace.folder, env=workplace.environ, stderr=subprocess.PIPE, text=True
        )
        output = workplace.folder / "rollouts.jsonl"
        deadline = time.monotonic() + DEADLINE_S
        while not (output.exists() and output.stat().st_size > 20_000):
            assert collection.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(pid_of(port, name), signal.SIGKILL)
        _, stderr = collection.communicate(timeout=DEADLINE_S)
        assert collection.returncode in (0, 3), stderr
        kept = len(workplace.rows())
        assert f"requested 600 = kept {kept} + failed {600 - kept}" in stderr
        pid_of(port, name)
        again = workplace.run(collect)
        assert again.returncode == 0, again.stderr
        left = set()
        for _ in range(8):
            with urllib.request.urlopen(instances(port)[name]["url"], timeout=DEADLINE_S) as answer:
                left.add(json.load(answer)["open_sessions"])

    assert sorted(workplace.keys(), key=lambda key: int(key[:-2])) == [f"{n}/0" for n in range(600)]
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
    workplace.write("resources_servers/leaky/app.py", LEAKY)
    agent = (workplace.folder / "agent.yaml").read_text()
    block = f"leaky: {{entrypoint: app.py, api_key: {SECRET}}}"
    workplace.write("agent.yaml", agent.replace("calculator: {entrypoint: app.py}", block))

    with terminal(workplace, "ng_run +config_paths=[agent.yaml,model.yaml]", "all ready"):
        done = workplace.run("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 3
    assert "cannot log in with ***" in (workplace.folder / "rollouts.failures.jsonl").read_text()
    assert SECRET not in done.stderr
    for path in workplace.folder.rglob("*"):
        if path.is_file() and path.name != "agent.yaml":
            assert SECRET.encode() not in path.read_bytes(), path
