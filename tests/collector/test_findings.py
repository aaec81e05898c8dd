"""The checks run while rollouts are collected, and what they find stands at the end in short form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.collect import finish
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import collect
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings
from velodrome.settings import Config, Instance
from velodrome.stats.metrics import read_metrics

ENV = """
from velodrome import Environment


class Judge(Environment):
    every: int

    def verify(self, task, response):
        return {"reward": float(task["id"] % self.every == 1)}
"""
ALL_ZERO = "warning: all-zero: all 60 rewards are 0"


def config(every: int) -> Config:
    links: dict[str, Any] = {
        "model_server": {"type": "responses_api_models", "name": "m"},
        "resources_server": {"type": "resources_servers", "name": "env"},
    }
    blocks = [
        Instance("m", "responses_api_models", "scripted_model", {"answers": ["three words here"]}, "t.yaml"),
        Instance("env", "resources_servers", "judge", {"every": every}, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    return Config({}, {block.name: block for block in blocks})


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rollouts of the sixty tasks beside it go."""
    monkeypatch.chdir(tmp_path)
    app = tmp_path / "resources_servers" / "judge" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(ENV)
    tasks = [{"id": number, "responses_create_params": {"input": f"What is {number}?"}} for number in range(60)]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    return tmp_path / "r.jsonl"


def collected(output: Path, every: int, **changes: Any) -> Run:
    settings = CollectSettings(input=output.with_name("tasks.jsonl"), output=output, **changes)
    return asyncio.run(collect(settings, ConfiguredAgents(config(every))))


def test_a_collection_whose_rewards_are_all_zero_says_so_at_its_end(output: Path, capsys: pytest.CaptureFixture[str]):
    outcome = collected(output, every=1)
    assert (outcome.kept, outcome.findings) == (60, [ALL_ZERO])
    capsys.readouterr()  # the progress bar
    assert finish(outcome, output) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [f"{outcome.summary()}  ->  {output}", ALL_ZERO]


def test_a_clean_collection_says_nothing(output: Path, capsys: pytest.CaptureFixture[str]):
    outcome = collected(output, every=2)
    assert (outcome.kept, outcome.metrics["reward"], outcome.findings) == (60, 0.5, [])
    assert finish(outcome, output) == 0
    assert "warning:" not in capsys.readouterr().err


def test_after_a_resume_the_whole_file_is_checked(output: Path):
    assert collected(output, every=1, limit=30).findings == []  # thirty are worth a note, and notes alone are not shown
    assert collected(output, every=1).findings == [ALL_ZERO]


def test_failures_are_among_the_findings(output: Path):
    (output.parent / "resources_servers" / "judge" / "app.py").write_text(
        ENV.replace("return", 'if task["id"] % 4 == 0: raise RuntimeError("no such luck")\n        return')
    )
    outcome = collected(output, every=2)
    assert (outcome.kept, outcome.failed) == (45, 15)
    [line] = outcome.findings
    assert line.startswith("warning: failures: 15 of 60 rollouts (25%) failed, most often (15): verify: ")


def test_after_a_resume_the_numbers_are_those_of_the_file_with_and_without_repeats(output: Path):
    for repeats in (1, 2):
        collected(output, every=2, limit=20)
        assert collected(output, every=2, repeats=repeats).metrics == read_metrics(output)[0]
