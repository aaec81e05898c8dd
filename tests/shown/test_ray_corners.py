"""`+executor=ray` where things go wrong: tasks that end actors, a lost head node, tokens, versions, code for nodes."""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import DEADLINE_S
from ray_nodes import SUMS, RayNodes, processes_of, ray_nodes
from test_killed_workers import content
from test_nothing_lost import start, wait_for_bytes
from test_ray import COLLECT, on, refused

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SCALE = Path(__file__).parent.parent.parent / "docs" / "scale.md"
ONCE = COLLECT.replace(" +num_repeats=2", "").replace("OUT", "rollouts.jsonl")
SHARED = '''
import os

import velodrome as velo


class Counted(velo.ScriptedModel):
    """One for all actors; it writes down where it is made."""

    shared = True
    made: str = ""

    def setup(self) -> None:
        super().setup()
        with open(self.made, "a") as file:
            file.write(f"{os.getpid()}\\n")
'''


def test_a_task_that_ends_its_actors_is_a_failure_of_its_boundary_and_all_others_are_kept(
    own: Any,
    nodes: RayNodes,
) -> None:
    kills = "        if task['id'] == 'task-7':\n            import os; os._exit(3)\n        return {"
    own.write("resources_servers/sums/app.py", SUMS.replace("        return {", kills))
    own.tasks("tasks.jsonl", 40)

    done = own.run(ONCE + on(nodes, own))

    assert done.returncode == 3, done.stderr
    [failure] = own.rows("rollouts.failures.jsonl")
    assert (failure["key"], failure["boundary"]) == ("task-7/0", "verify")
    assert sorted(own.keys()) == sorted(f"task-{number}/0" for number in range(40) if number != 7)
    assert {row["reward"] for row in own.rows()} == {1.0}


def test_a_shared_component_stays_with_the_driver_and_serves_actors_of_other_nodes(
    own: Any,
    nodes: RayNodes,
) -> None:
    own.write("responses_api_models/counted/app.py", SHARED)
    model = own.folder / "model.yaml"
    model.write_text(model.read_text().replace("scripted_model:", f"counted:\n      made: {own.folder / 'made'}"))
    raylet = SUMS.replace('return {"reward"', 'import os; return {"raylet": os.getppid(), "reward"')
    own.write("resources_servers/sums/app.py", raylet)
    own.tasks("tasks.jsonl", 40)

    process = start(own, ONCE + on(nodes, own))
    _, errors = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, errors
    assert (own.folder / "made").read_text() == f"{process.pid}\n"
    assert {row["raylet"] for row in own.rows()} == set(nodes.raylets)
    assert {row["reward"] for row in own.rows()} == {1.0}


def test_the_loss_of_the_head_node_is_one_clear_line_and_the_same_command_continues(
    own: Any,
    nodes: RayNodes,
) -> None:
    own.environ["RAY_gcs_rpc_server_reconnect_timeout_s"] = "12"  # half of it is what a run waits
    own.tasks("tasks.jsonl", 240)
    slow = ONCE.replace("parallel=8", "parallel=4")
    with ray_nodes() as doomed:
        doomed.add()
        process = start(own, slow + on(doomed, own))
        wait_for_bytes(own.folder / "rollouts.jsonl", 0, process)
        doomed.lose_head()
        _, errors = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1, errors
    *progress, line = errors.splitlines()
    assert all(each.startswith("Collecting rollouts") for each in progress), errors
    assert f"the head node at {doomed.address}" in line
    kept = own.keys()
    assert 0 < len(kept) < 240
    done = own.run(ONCE + on(nodes, own))
    assert done.returncode == 0, done.stderr
    assert own.keys()[: len(kept)] == kept
    assert len(content(own.rows())) == 240


@pytest.mark.parametrize("token", ["another", "", None])
def test_a_wrong_token_an_empty_file_and_none_are_one_clear_line(
    own: Any,
    nodes: RayNodes,
    token: str | None,
) -> None:
    where = on(nodes, own)
    path = own.folder / "other-token"
    if token is not None:
        path.write_text(token * 8)
    own.environ["RAY_AUTH_TOKEN_PATH"] = str(path)

    refused(own, where, "token", str(path))


def test_a_cluster_of_tokens_does_not_answer_without_one(own: Any, nodes: RayNodes) -> None:
    where = on(nodes, own)
    del own.environ["RAY_AUTH_TOKEN_PATH"], own.environ["RAY_AUTH_MODE"]

    refused(own, where, "token", "RAY_AUTH_TOKEN_PATH")


def test_a_node_with_another_python_is_one_clear_line(own: Any, nodes: RayNodes) -> None:
    own.write("other/sitecustomize.py", "import platform\nplatform.python_version = lambda: '3.12.99'\n")
    raylet = nodes.add(PYTHONPATH=str(own.folder / "other"))

    refused(own, on(nodes, own), "has Python 3.12.99 and", f"but Python {platform.python_version()} and")
    nodes.lose(raylet)


def test_another_ray_here_than_there_is_one_clear_line(own: Any, nodes: RayNodes) -> None:
    own.write("other/sitecustomize.py", "import ray\nray.__version__ = '2.59.0'\n")
    own.environ["PYTHONPATH"] = str(own.folder / "other")

    refused(own, on(nodes, own), "Ray: 2.59.0", "the same versions")


def test_code_that_cannot_be_copied_or_is_not_on_the_nodes_is_one_clear_line(
    own: Any,
    nodes: RayNodes,
) -> None:
    where = on(nodes, own)
    link = own.folder / "resources_servers" / "sums" / "link"
    link.symlink_to("nowhere")
    refused(own, where, "resources_servers", "cannot be copied")
    link.unlink()

    own.write("site-packages/only_here.py", "")
    own.environ["PYTHONPATH"] = str(own.folder / "site-packages")
    own.write("resources_servers/sums/app.py", f"import only_here\n{SUMS}")
    done = own.run(ONCE + where)
    assert done.returncode == 2, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("velo: ")]
    assert line.startswith("velo: ray: node 127.0.0.1: ")
    assert "No module named 'only_here'" in line


def block(heading: str, number: int = 0) -> str:
    """A block of code below a heading of docs/scale.md."""
    section = SCALE.read_text().split(f"\n### {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return section.split("```")[2 * number + 1].split("\n", 1)[1]


@pytest.fixture
def machines(own: Any) -> Iterator[Any]:
    """A folder in which `ssh`, `scp`, `srun`, `scontrol` and `hostname` stay on this machine, with small nodes."""
    own.write("my.yaml", (own.folder / "env.yaml").read_text())
    own.tasks("tasks.jsonl", 40)
    (own.folder / "venv").symlink_to(sys.prefix)
    for name in ("node1", "node2"):
        (own.folder / name).mkdir()
        (own.folder / name / "venv").symlink_to(sys.prefix)
    programs = {
        "ssh": 'HOME="$HERE/$1" exec bash -c "$2"',
        "scp": 'cp "$2" "$HERE/${3/:/\\/}"',
        "srun": 'while [ "$1" != ray ]; do shift; done; exec "$@"',
        "scontrol": 'echo "$@" >> "$HERE/scontrol"',
        "hostname": "echo 127.0.0.1",
    }
    for name, text in programs.items():
        own.write(f"bin/{name}", f"#!/bin/bash\n{text}\n").chmod(0o755)
    own.environ["PATH"] = f"{own.folder / 'bin'}{os.pathsep}{own.environ['PATH']}"
    own.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "HERE": str(own.folder), "HOME": str(own.folder)}
    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/tmp") as folder:
        own.environ["RAY_TMPDIR"] = folder
        try:
            yield own
        finally:
            for pid in processes_of(folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def here(commands: str) -> str:
    """Commands of the page for this machine: its address, a free port, small nodes."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    loopback = commands.replace("ray start --address", "ray start --node-ip-address=127.0.0.1 --address")
    small = loopback.replace("ray start ", "ray start --object-store-memory=80000000 ")
    return small.replace("10.0.0.5", "127.0.0.1").replace("6379", str(port))


def test_the_walk_through_for_ssh_collects_on_the_nodes_that_it_starts(machines: Any) -> None:
    commands = here(block("Plain SSH")).replace("ray start ", "ray start --num-cpus=1 ")

    done = machines.run(f"set -e\n{commands}")

    assert done.returncode == 0, done.stderr
    assert len(content(machines.rows())) == 40
    assert {row["meta"]["timing"]["workers"] for row in machines.rows()} == {3}


def test_the_script_for_slurm_stops_at_the_signal_and_asks_to_be_queued_again(machines: Any) -> None:
    machines.tasks("tasks.jsonl", 200)
    machines.write("job.sh", here(block("Slurm")).replace("=2048", "=8"))
    machines.environ |= {"SLURM_JOB_ID": "5", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "1"}
    machines.environ["SLURMD_NODENAME"] = "here"

    process = start(machines, "exec bash job.sh > log 2>&1")
    wait_for_bytes(machines.folder / "rollouts.jsonl", 0, process)
    process.terminate()
    process.communicate(timeout=DEADLINE_S)

    log, kept = (machines.folder / "log").read_text(), machines.keys()
    assert (machines.folder / "scontrol").read_text() == "requeue 5\n", log
    assert process.returncode not in (0, -signal.SIGTERM), log
    assert 0 < len(kept) < 200
    done = machines.run(
        "velo collect +config_paths=[my.yaml] +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
    )
    assert done.returncode == 0, done.stderr
    assert machines.keys()[: len(kept)] == kept
    assert len(content(machines.rows())) == 200


def test_the_job_for_kubernetes_is_yaml_and_its_entrypoint_runs(own: Any, nodes: RayNodes) -> None:
    job = yaml.safe_load(block("Kubernetes (KubeRay)"))
    assert (job["kind"], job["spec"]["rayClusterSpec"]["rayVersion"]) == ("RayJob", version("ray"))
    own.write("my.yaml", (own.folder / "env.yaml").read_text())
    on(nodes, own)
    own.environ["RAY_ADDRESS"] = nodes.address  # as in the process of a job

    done = own.run(job["spec"]["entrypoint"].replace("/data/", ""))

    assert done.returncode == 0, done.stderr
    assert len(content(own.rows())) == 120
