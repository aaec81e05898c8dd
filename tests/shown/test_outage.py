"""Servers that die or hang under a collection: it waits, continues, or stops; no task is blamed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import running

pytestmark = pytest.mark.slow

PATIENCE_S = 240
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


class Place:
    """A folder with three servers under fixed addresses, and tasks of which those from `waits` on wait at the gate."""

    def __init__(self, folder: Path, tasks: int, waits: int) -> None:
        self.folder = folder
        running.write_component(folder, "resources_servers", "gated", ENVIRONMENT)
        config = CONFIG
        for name in ("MODEL", "GATED", "AGENT"):
            config = config.replace(name, str(running.free_port()))
        (folder / "servers.yaml").write_text(config)
        rows = [
            {"id": f"t{n}", "waits": n >= waits, "responses_create_params": {"input": f"15% of 240? ({n})"}}
            for n in range(tasks)
        ]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def servers(self, *argv: str) -> running.Session:
        return running.Session(self.folder, "+config_paths=[servers.yaml]", *argv).up()

    def collect(self, head: int, *argv: str) -> subprocess.Popen[str]:
        words = ["collect", "+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=out.jsonl"]
        words += [f"+head_server.port={head}", "+num_samples_in_parallel=4", *argv]
        return subprocess.Popen(
            [sys.executable, "-m", "velodrome.cli.main", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def keys(self) -> list[str]:
        return sorted(json.loads(line)["meta"]["key"] for line in (self.folder / "out.jsonl").read_text().splitlines())

    def run_file(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.folder / "out.run.json").read_text())["runs"][-1]
        return result


def said_until(process: subprocess.Popen[str], words: str) -> str:
    """What a process says up to and with these words; the suite's own limit ends a process that never does."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        piece = process.stderr.readline()
        assert piece, f"never said {words!r}: {said}"
        said += piece
    return said


def test_servers_that_are_all_dead_are_waited_for_and_the_run_continues_when_they_are_back(tmp_path: Path):
    place = Place(tmp_path, 12, waits=6)
    with place.servers() as first:
        collect = place.collect(first.port)
        while len(place.keys() if (tmp_path / "out.jsonl").exists() else []) < 6:
            assert collect.poll() is None
        first.process.send_signal(signal.SIGKILL)
        first.ends()
    said = said_until(collect, "waiting for http://127.0.0.1:")
    (tmp_path / "open").touch()
    with place.servers() as second:
        _, rest = collect.communicate(timeout=PATIENCE_S)
        second.ends(signal.SIGTERM)
    assert collect.returncode == 0, said + rest
    assert "is back after" in rest
    assert place.keys() == sorted(f"t{n}/0" for n in range(12))
    assert not (tmp_path / "out.failures.jsonl").exists() or not (tmp_path / "out.failures.jsonl").read_text()


def test_servers_that_stay_away_stop_the_run_and_what_was_in_flight_is_left(tmp_path: Path):
    place = Place(tmp_path, 10, waits=3)
    with place.servers() as servers:
        collect = place.collect(servers.port, "+server_wait_s=0.5")
        while len(place.keys() if (tmp_path / "out.jsonl").exists() else []) < 3:
            assert collect.poll() is None
        servers.process.send_signal(signal.SIGKILL)
        servers.ends()
    _, said = collect.communicate(timeout=PATIENCE_S)
    assert collect.returncode == 4, said
    assert "requested 10 = kept 3 + failed 0 + 7 not run (http://127.0.0.1:" in said
    assert "could not be reached for 0.5 s" in place.run_file()["stopped"]

    (tmp_path / "open").touch()
    with place.servers() as servers:
        collect = place.collect(servers.port)
        _, said = collect.communicate(timeout=PATIENCE_S)
        servers.ends(signal.SIGTERM)
    assert collect.returncode == 0, said
    assert place.keys() == sorted(f"t{n}/0" for n in range(10))


def test_a_model_that_refuses_every_connection_stops_an_embedded_run_too(tmp_path: Path):
    place = Place(tmp_path, 5, waits=5)
    address = f"http://127.0.0.1:{running.free_port()}"
    settings = f"openai_base_url: {address}/v1, openai_api_key: none, openai_model: m, max_retries: 1"
    model = f"  responses_api_models:\n    openai_model: {{{settings}}}\n"
    rest = (tmp_path / "servers.yaml").read_text().partition("gated:\n")[2]
    (tmp_path / "servers.yaml").write_text(f"policy_model:\n{model}gated:\n{rest}")
    words = ("+config_paths=[servers.yaml]", "+embedded=true", "+server_wait_s=0.5")
    collect = place.collect(running.free_port(), *words)
    _, said = collect.communicate(timeout=PATIENCE_S)
    assert collect.returncode == 4, said
    assert f"requested 5 = kept 0 + failed 0 + 5 not run ({address} could not be reached" in said


def test_ctrl_c_ends_the_wait(tmp_path: Path):
    place = Place(tmp_path, 3, waits=0)
    (tmp_path / "begun").unlink(missing_ok=True)
    with place.servers() as servers:
        collect = place.collect(servers.port)
        while not (tmp_path / "begun").exists():
            assert collect.poll() is None
        servers.process.send_signal(signal.SIGKILL)
        servers.ends()
    said_until(collect, "waiting for http://127.0.0.1:")
    collect.send_signal(signal.SIGINT)
    _, said = collect.communicate(timeout=PATIENCE_S)
    assert collect.returncode == 130, said
    assert "requested 3 = kept 0 + failed 0 + 3 not run (interrupted)" in said


def test_a_server_that_hangs_is_started_again_and_answers(tmp_path: Path):
    place = Place(tmp_path, 1, waits=1)
    with place.servers("+health_timeout_s=3", "+health_misses=2") as servers:
        model = servers.instances()["policy_model"]
        os.kill(model["pid"], signal.SIGSTOP)
        servers.expect("policy_model: hangs: no answer to 2 health checks")
        servers.expect("policy_model: restarted")
        assert running.gone(model["pid"])
        assert running.http(f"{model['url']}/v1/responses", {"input": "hi"})[0] == 200
        assert servers.ends(signal.SIGTERM) == 0
