"""`+executor=ray`: the same rollouts, each once, whatever is killed; no traces of Ray; one line if it fails."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from ray_nodes import RayNodes, processes_of
from test_killed_workers import content
from test_nothing_lost import start, wait_for_bytes

from velodrome import errors
from velodrome.serving.connect import source_digest

COLLECT = (
    "exec ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT +num_samples_in_parallel=8"
    " +num_repeats=2 +seed=5"
)
PACKAGE = Path(errors.__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def on(nodes: RayNodes, workplace: Any) -> str:
    """The settings for a driver on these nodes."""
    names = [name for name in nodes.environ if name.startswith("RAY_")]
    workplace.environ.update({name: nodes.environ[name] for name in names})
    return f" +executor=ray +ray_address={nodes.address}"


def test_a_cluster_started_here_makes_the_same_rollouts_and_leaves_no_process_no_file_and_no_noise(own: Any) -> None:
    own.environ["RAY_MARK_OF_THIS_TEST"] = str(own.folder)
    assert own.run(COLLECT.replace("OUT", "calm.jsonl")).returncode == 0

    done = own.run(COLLECT.replace("OUT", "rollouts.jsonl") + " +executor=ray +ray_actors=2")

    assert done.returncode == 0, done.stderr
    assert content(own.rows()) == content(own.rows("calm.jsonl"))
    assert done.stdout.startswith("{")
    assert "ray" not in done.stderr.lower()
    assert list((own.folder / "home").iterdir()) == []
    deadline = time.monotonic() + DEADLINE_S
    while (left := processes_of(str(own.folder))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_kills_of_actors_of_a_node_and_of_the_driver_leave_what_an_undisturbed_run_leaves(
    own: Any, nodes: RayNodes
) -> None:
    assert own.run(COLLECT.replace("OUT", "calm.jsonl")).returncode == 0
    command = COLLECT.replace("OUT", "rollouts.jsonl") + on(nodes, own)
    path = own.folder / "rollouts.jsonl"
    chance, plan = random.Random(3), ["actor", "node", "actor", "driver", "actor"]

    while True:
        process = start(own, command)
        while process.poll() is None and plan:
            wait_for_bytes(path, path.stat().st_size if path.exists() else 0, process)
            time.sleep(chance.random() * 0.2)  # the random moment itself, not a wait for something
            actors = nodes.actors()
            if process.poll() is None and actors:
                kill(plan.pop(0), nodes, process.pid, chance.choice(actors))
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, -signal.SIGKILL), errors
        if process.returncode == 0:
            break

    assert plan == []
    assert content(own.rows()) == content(own.rows("calm.jsonl"))
    assert not (own.folder / "rollouts.failures.jsonl").exists()


def kill(what: str, nodes: RayNodes, driver: int, actor: int) -> None:
    if what == "node":
        nodes.lose(nodes.raylets[0])
        nodes.add()
    else:
        with suppress(ProcessLookupError):
            os.kill(driver if what == "driver" else actor, signal.SIGKILL)


def test_verification_is_spread_over_a_cluster(own: Any, nodes: RayNodes) -> None:
    where = on(nodes, own)
    deferred = COLLECT.replace("OUT", "rollouts.jsonl") + " +defer_verification=true +limit=20"
    assert own.run(deferred).returncode == 0

    done = own.run(f"velo verify rollouts.jsonl +ray_actors=1{where}")

    assert done.returncode == 0, done.stderr
    assert {row["reward"] for row in own.rows("rollouts.verified.jsonl")} == {1.0}
    assert len(own.rows("rollouts.verified.jsonl")) == 40


def test_a_node_with_another_version_is_one_clear_line(own: Any, nodes: RayNodes) -> None:
    other = own.folder / "installed"  # what that node has: a copy with one file more, under another version
    shutil.copytree(PACKAGE, other / "velodrome", ignore=shutil.ignore_patterns("__pycache__"))
    own.write("installed/velodrome/later.py", "")
    own.write("installed/velodrome-0.7.dist-info/METADATA", "Metadata-Version: 2.1\nName: velodrome\nVersion: 0.7\n")
    raylet = nodes.add(PYTHONPATH=str(other))

    code = source_digest(PACKAGE / "errors.py")[:8]
    refused(own, on(nodes, own), "velodrome 0.7 (code", f"velodrome {version('velodrome')} (code {code}) is here")
    nodes.lose(raylet)


def test_code_that_is_too_large_to_be_sent_is_one_clear_line(own: Any, nodes: RayNodes) -> None:
    large = own.write("resources_servers/sums/weights.bin", "")
    os.truncate(large, 200 << 20)

    refused(own, on(nodes, own), "resources_servers: too large to be sent to nodes")


def refused(workplace: Any, settings: str, *meaning: str) -> None:
    """A run with these settings is refused in one line, and leaves no output."""
    done = workplace.run(COLLECT.replace("OUT", "rollouts.jsonl") + settings)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for part in meaning:
        assert part in done.stderr
    assert not (workplace.folder / "rollouts.jsonl").exists()


@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        (" +executor=ray +ray_address=127.0.0.1:1", "no Ray cluster answers there"),
        (" +executor=ray +ray_address=ray://head:10001", "expected the host:port"),
        (" +executor=ray +num_workers=2", "ray_actors"),
        (" +ray_actors=2", "executor=ray"),
        (" +executor=slurm", "executor"),
    ],
)
def test_what_cannot_work_is_one_clear_line(own: Any, settings: str, meaning: str) -> None:
    refused(own, settings, meaning)


def test_without_ray_it_is_one_clear_line_and_nothing_else_imports_it(own: Any) -> None:
    own.write("poison/ray.py", "raise ImportError(\"No module named 'ray'\")")
    own.environ["PYTHONPATH"] = str(own.folder / "poison")

    refused(own, " +executor=ray", "ray is not installed", "velodrome[ray]")
    assert own.run(COLLECT.replace("OUT", "rollouts.jsonl") + " +num_workers=2").returncode == 0
