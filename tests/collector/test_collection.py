"""A whole collection in one process: what its budgets count."""

from __future__ import annotations

import asyncio
import logging
import resource
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from velodrome.collector.agents import ConfiguredAgents, LiveAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.pace import Stop
from velodrome.collector.settings import CollectSettings
from velodrome.contracts import as_agent
from velodrome.settings import Config, Instance

ENV = """
from velodrome import Environment


class Strict(Environment):
    breaks: bool

    def verify(self, task, response):
        if self.breaks:
            raise RuntimeError("no such luck")
        return {"reward": 1.0}
"""


def config(*, breaks: bool) -> Config:
    links: dict[str, Any] = {
        "model_server": {"type": "responses_api_models", "name": "m"},
        "resources_server": {"type": "resources_servers", "name": "env"},
    }
    blocks = [
        Instance("m", "responses_api_models", "scripted_model", {"answers": ["three words here"]}, "t.yaml"),
        Instance("env", "resources_servers", "strict", {"breaks": breaks}, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    return Config({}, {block.name: block for block in blocks})


@pytest.mark.parametrize("breaks", [False, True])
def test_the_tokens_of_failed_rollouts_count_towards_the_budget_like_those_of_kept_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool
):
    monkeypatch.chdir(tmp_path)
    app = tmp_path / "resources_servers" / "strict" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(ENV)
    tasks = [{"id": number, "responses_create_params": {"input": "hi"}} for number in range(10)]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    settings = CollectSettings(
        input=tmp_path / "tasks.jsonl", output=tmp_path / "r.jsonl", parallel=1, max_total_tokens=10
    )
    outcome = asyncio.run(collect(settings, ConfiguredAgents(config(breaks=breaks))))
    assert (outcome.kept + outcome.failed, outcome.failed > 0, outcome.exit_code) == (3, breaks, 4)
    assert outcome.stopped == "max_total_tokens=10 reached (12 tokens)"


@pytest.mark.parametrize("progress", [False, True])
def test_a_token_budget_that_cannot_count_says_so(
    progress: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    async def agent(task: dict[str, Any]) -> dict[str, Any]:
        return {"output": "fine", "reward": 1.0}

    run = asyncio.run(velo.collect(["a", "b"], agent, max_total_tokens=1, progress=progress))
    assert run.kept == 2
    assert "max_total_tokens" in (capsys.readouterr().err if progress else caplog.text)


@pytest.mark.parametrize("own_handler", [False, True])
def test_log_lines_are_lines_above_the_bar(
    own_handler: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    handlers = [logging.StreamHandler()] if own_handler else []
    monkeypatch.setattr(logging.getLogger(), "handlers", handlers)

    async def agent(task: dict[str, Any]) -> dict[str, Any]:
        logging.getLogger("somewhere").warning("look here")
        return {"output": "fine", "reward": 1.0}

    asyncio.run(velo.collect(["a"], agent))
    logging.getLogger("somewhere").warning("and here")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "here" in line] == ["look here", "and here"]


def test_the_first_interrupt_says_what_is_in_flight_and_the_second_ends_it(tmp_path: Path):
    stop, notes = Stop(), list[str]()

    async def agent(task: dict[str, Any]) -> dict[str, Any]:
        stop.interrupt()
        await asyncio.Event().wait()
        raise AssertionError

    def note(text: str) -> None:
        notes.append(text)
        asyncio.get_running_loop().call_soon(stop.interrupt)

    settings = CollectSettings(output=tmp_path / "r.jsonl", parallel=1, drain_s=17)
    agents = LiveAgents(as_agent(agent))
    outcome = asyncio.run(collect(settings, agents, ["a", "b"], Surface(note, stop=stop)))
    assert (outcome.kept, outcome.left, len(notes)) == (0, 2, 1)
    assert ["1 in flight" in notes[0], "17 s" in notes[0], "second Ctrl-C" in notes[0]] == [True] * 3


WATCHING = """
import json

from velodrome import Environment


class Watching(Environment):
    breaks: bool

    def verify(self, task, response):
        with open("r.run.json") as stream:
            return {"reward": 1.0, "seen": json.load(stream)["runs"][-1]}
"""


def test_the_run_file_says_from_the_start_how_many_are_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    app = tmp_path / "resources_servers" / "strict" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(WATCHING)
    task = {"id": "a", "responses_create_params": {"input": "hi"}}
    (tmp_path / "tasks.jsonl").write_bytes(orjson.dumps(task) + b"\n")
    settings = CollectSettings(input=tmp_path / "tasks.jsonl", output=tmp_path / "r.jsonl", repeats=3)
    outcome = asyncio.run(collect(settings, ConfiguredAgents(config(breaks=False))))
    assert (outcome.kept, outcome.failed) == (3, 0)
    rows = [orjson.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    assert [(row["seen"]["requested"], "finished_at" in row["seen"]) for row in rows] == [(3, False)] * 3


def test_a_disk_that_refuses_failures_still_gets_every_finished_rollout(tmp_path: Path):
    output = tmp_path / "r.jsonl"
    (tmp_path / "r.failures.jsonl").write_bytes(b'{"key": "before/0"}\n' * 5_000)
    together = asyncio.Barrier(10)

    async def agent(task: dict[str, Any]) -> dict[str, Any]:
        await together.wait()  # all ten finish in one batch, the failures first
        if task["id"] < 5:
            raise RuntimeError("no such luck")
        return {"output": "fine", "reward": 1.0}

    tasks = [{"id": number, "responses_create_params": {"input": "hi"}} for number in range(10)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the failures file has this size already
    try:
        with pytest.raises(velo.errors.StorageError):
            asyncio.run(velo.collect(tasks, agent, out=output, parallel=10, progress=False))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {row["meta"]["task_index"] for row in map(orjson.loads, output.read_bytes().splitlines())} == {5, 6, 7, 8, 9}
