"""`+executor=ray` where things go wrong: a lost head node, versions; and the walk-throughs of the docs."""

from __future__ import annotations

import os
import platform
import shutil
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

from tests.shown.conftest import content
from tests.shown.test_ray import COLLECT, on, refused
from tests.support.patience import DEADLINE_S
from tests.support.ray_nodes import RayNodes, processes_of, ray_nodes
from velodrome import errors
from velodrome.serving.components import source_digest

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.chaos]

PACKAGE = Path(errors.__file__).parent
SCALE = Path(__file__).parent.parent.parent / "docs" / "scale.md"
ONCE = COLLECT.replace(" +num_repeats=2", "").replace("OUT", "rollouts.jsonl")


def test_the_loss_of_the_head_node_is_one_clear_line_and_the_same_command_continues(own: Any, nodes: RayNodes) -> None:
    own.environ["RAY_gcs_rpc_server_reconnect_timeout_s"] = "12"  # half of it is what a run waits
    own.tasks("tasks.jsonl", 240)
    slow = ONCE.replace("parallel=8", "parallel=4")
    with ray_nodes() as doomed:
        doomed.add()
        process = own.start(slow + on(doomed, own))
        own.wait_for_bytes("rollouts.jsonl", process)
        doomed.lose_head()
        _, said = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 1, said
    *progress, line = said.splitlines()
    assert all(each.startswith("Collecting rollouts") for each in progress), said
    assert f"the head node at {doomed.address}" in line
    kept = own.keys()
    assert 0 < len(kept) < 240
    done = own.run(ONCE + on(nodes, own))
    assert done.returncode == 0, done.stderr
    assert own.keys()[: len(kept)] == kept
    assert len(content(own.rows())) == 240


def test_a_node_with_another_velodrome_or_python_and_another_ray_here_are_one_clear_line(
    own: Any, nodes: RayNodes
) -> None:
    velodrome, python, ray = (own.folder / name for name in ("velodrome", "python", "ray"))
    shutil.copytree(PACKAGE, velodrome / "velodrome", ignore=shutil.ignore_patterns("__pycache__"))
    own.write("velodrome/velodrome/later.py", "")  # one file more, under another version
    own.write("velodrome/velodrome-0.7.dist-info/METADATA", "Metadata-Version: 2.1\nName: velodrome\nVersion: 0.7\n")
    own.write("python/sitecustomize.py", "import platform\nplatform.python_version = lambda: '3.12.99'\n")
    own.write("ray/sitecustomize.py", "import ray\nray.__version__ = '2.59.0'\n")
    code = source_digest(PACKAGE / "errors.py")[:8]
    here = {
        velodrome: ("velodrome 0.7 (code", f"velodrome {version('velodrome')} (code {code}) is here"),
        python: ("has Python 3.12.99 and", f"but Python {platform.python_version()} and"),
    }
    for path, meaning in here.items():
        raylet = nodes.add(PYTHONPATH=str(path))
        done = own.run(ONCE + on(nodes, own))
        assert (done.returncode, [part for part in meaning if part not in done.stderr.splitlines()[-1]]) == (2, [])
        nodes.lose(raylet)
    own.environ["PYTHONPATH"] = str(ray)
    refused(own, on(nodes, own), "Ray: 2.59.0", "Version mismatch")


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

    process = machines.start("bash job.sh > log 2>&1")
    machines.wait_for_bytes("rollouts.jsonl", process)
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
