"""Servers that die or hang under a collection: it waits, continues, or stops; no task is blamed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from tests.shown.conftest import numbered
from tests.support import running
from tests.support.patience import DEADLINE_S

pytestmark = pytest.mark.slow

# Rollouts wait at a gate until a file is there, so that some are in flight when the servers die.
ENVIRONMENT = """
import asyncio
from pathlib import Path

from velodrome.resources_servers.environment import Environment


class Gated(Environment):
    async def verify(self, task, response):
        Path("begun").touch()
        while task["waits"] and not Path("open").exists():
            await asyncio.sleep(0.02)
        return {"reward": 1.0}
"""
CONFIG = """
policy_model:
  responses_api_models:
    scripted_model: {port: MODEL, answers: ["It is 36"]}
gated:
  resources_servers:
    gated: {port: GATED}
my_agent:
  responses_api_agents:
    simple_agent:
      port: AGENT
      resources_server: {type: resources_servers, name: gated}
      model_server: {type: responses_api_models, name: policy_model}
"""


@pytest.fixture
def place(workplace: Any) -> Any:
    """A folder with the config of three servers under fixed addresses."""
    workplace.write("resources_servers/gated/app.py", ENVIRONMENT)
    config = CONFIG
    for name in ("MODEL", "GATED", "AGENT"):
        config = config.replace(name, str(running.free_port()))
    workplace.write("servers.yaml", config)
    return workplace


def gated(place: Any, count: int, waits: int) -> None:
    """Tasks of which those from `waits` on wait at the gate."""
    params = {"input": "15% of 240?"}
    rows = ({"id": f"task-{n}", "waits": n >= waits, "responses_create_params": params} for n in range(count))
    place.write_rows("tasks.jsonl", rows)


def servers(place: Any, *argv: str) -> running.Session:
    return running.Session(place.folder, "+config_paths=[servers.yaml]", *argv).up()


def collecting(place: Any, head: int, words: str = "", until: int = 0) -> subprocess.Popen[str]:
    """A collection, from when it has so many rollouts."""
    command = "velo collect +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
    process: subprocess.Popen[str] = place.start(
        f"{command} +head_server.port={head} +num_samples_in_parallel=4 {words}"
    )
    while (len(place.keys()) if place.size_of("rollouts.jsonl") else 0) < until:
        assert process.poll() is None, process.communicate()
    return process


def killed(session: running.Session) -> None:
    session.process.send_signal(signal.SIGKILL)
    session.ends()


def said_until(process: subprocess.Popen[str], words: str) -> str:
    """What a process says up to and with these words; the suite's own limit ends a process that never does."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        piece = process.stderr.readline()
        assert piece, f"never said {words!r}: {said}"
        said += piece
    return said


def test_servers_that_are_all_dead_are_waited_for_and_the_run_continues_when_they_are_back(place: Any):
    gated(place, 12, waits=6)
    with servers(place) as first:
        collect = collecting(place, first.port, until=6)
        killed(first)
    said = said_until(collect, "waiting for http://127.0.0.1:")
    place.write("open", "")
    with servers(place) as second:
        _, rest = collect.communicate(timeout=DEADLINE_S)
        second.ends(signal.SIGTERM)
    assert collect.returncode == 0, said + rest
    assert "is back after" in rest
    assert sorted(place.keys()) == numbered(12)
    assert place.size_of("rollouts.failures.jsonl") == 0


def test_servers_that_stay_away_stop_the_run_and_what_was_in_flight_is_left(place: Any):
    gated(place, 10, waits=3)
    with servers(place) as first:
        collect = collecting(place, first.port, "+server_wait_s=0.5", until=3)
        killed(first)
    _, said = collect.communicate(timeout=DEADLINE_S)
    assert collect.returncode == 4, said
    assert "requested 10 = kept 3 + failed 0 + 7 not run (http://127.0.0.1:" in said, said
    record = json.loads((place.folder / "rollouts.run.json").read_text())
    assert "could not be reached for 0.5 s" in record["runs"][-1]["stopped"]

    place.write("open", "")
    with servers(place) as second:
        collect = collecting(place, second.port)
        _, said = collect.communicate(timeout=DEADLINE_S)
        second.ends(signal.SIGTERM)
    assert collect.returncode == 0, said
    assert sorted(place.keys()) == numbered(10)


def test_a_server_that_hangs_is_started_again_and_answers(place: Any):
    with servers(place, "+health_timeout_s=3", "+health_misses=2") as session:
        model = session.instances()["policy_model"]
        os.kill(model["pid"], signal.SIGSTOP)
        session.expect("policy_model: hangs: no answer to 2 health checks")
        session.expect("policy_model: restarted")
        assert running.gone(model["pid"])
        assert running.http(f"{model['url']}/v1/responses", {"input": "hi"})[0] == 200
        assert session.ends(signal.SIGTERM) == 0
