"""`+executor=ray`: the same rollouts, each once, whatever is killed; no traces of Ray."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.shown.conftest import content
from tests.support.patience import DEADLINE_S
from tests.support.ray_nodes import RayNodes
from velodrome.ray_executor import RolloutActor

COLLECT = (
    "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT +num_samples_in_parallel=8"
    " +num_repeats=2 +seed=5"
)

pytestmark = pytest.mark.slow


def on(nodes: RayNodes, workplace: Any) -> str:
    """The settings for a driver on these nodes."""
    names = [name for name in nodes.environ if name.startswith("RAY_")]
    workplace.environ.update({name: nodes.environ[name] for name in names})
    return f" +executor=ray +ray_address={nodes.address}"


@pytest.mark.alone
@pytest.mark.parametrize(
    "plan", [["actor", "driver"], pytest.param(["actor", "node", "actor", "driver", "actor"], marks=pytest.mark.chaos)]
)
def test_kills_of_actors_of_a_node_and_of_the_driver_leave_what_an_undisturbed_run_leaves(
    own: Any, nodes: RayNodes, plan: list[str]
) -> None:
    """And the same cluster scores rollouts that were left unscored."""
    deferred = COLLECT.replace("OUT", "deferred.jsonl") + " +defer_verification=true +limit=20"
    assert own.run(deferred).returncode == 0
    assert own.run(COLLECT.replace("OUT", "calm.jsonl")).returncode == 0
    command = COLLECT.replace("OUT", "rollouts.jsonl") + on(nodes, own)
    chance, left = random.Random(3), list(plan)

    while True:
        process = own.start(command)
        while process.poll() is None and left:
            own.wait_for_bytes("rollouts.jsonl", process, own.size_of("rollouts.jsonl"))
            time.sleep(chance.random() * 0.2)  # the random moment itself, not a wait for something
            actors = nodes.actors()
            if process.poll() is None and actors:
                kill(left.pop(0), nodes, process.pid, chance.choice(actors))
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, 3, -signal.SIGKILL), errors
        if process.returncode == 0:
            break

    assert left == []
    assert list((own.folder / "home").iterdir()) == []
    assert content(own.rows()) == content(own.rows("calm.jsonl"))
    failed = own.folder / "rollouts.failures.jsonl"
    failures = own.rows(failed.name) if failed.exists() else []
    assert all("2 worker processes ended while this rollout" in each["error"] for each in failures)

    done = own.run(f"velo verify deferred.jsonl +ray_actors=1{on(nodes, own)}")
    assert done.returncode == 0, done.stderr
    assert [row["reward"] for row in own.rows("deferred.verified.jsonl")] == [1.0] * 40


def kill(what: str, nodes: RayNodes, driver: int, actor: int) -> None:
    if what == "node":
        nodes.lose(nodes.raylets[0])
        nodes.add()
    else:
        with suppress(ProcessLookupError):
            os.kill(driver if what == "driver" else actor, signal.SIGKILL)


def refused(workplace: Any, settings: str, *meaning: str) -> None:
    """A run with these settings is refused in one line, and leaves no output."""
    done = workplace.run(COLLECT.replace("OUT", "rollouts.jsonl") + settings)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for part in meaning:
        assert part in done.stderr
    assert not (workplace.folder / "rollouts.jsonl").exists()


def test_without_ray_it_is_one_clear_line_and_nothing_else_imports_it(own: Any) -> None:
    own.tasks("tasks.jsonl", 4)
    refused(own, " +executor=ray +ray_address=127.0.0.1:1", "no Ray cluster answers there")
    own.write("poison/ray.py", "raise ImportError(\"No module named 'ray'\")")
    own.environ["PYTHONPATH"] = str(own.folder / "poison")

    refused(own, " +executor=ray", "ray is not installed", "velodrome[ray]")
    assert own.run(COLLECT.replace("OUT", "rollouts.jsonl") + " +num_workers=2").returncode == 0


def test_a_node_with_another_velodrome_refuses_the_work() -> None:
    async def answers() -> list[Any]:
        return [frames async for frames in RolloutActor().run("0.0.1", None, b"")]  # type: ignore[arg-type]

    [[frame]] = asyncio.run(answers())
    assert "but 0.0.1 is here" in pickle.loads(frame)["refused"][0]
