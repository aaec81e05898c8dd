"""The checks run while rollouts are collected, and what they find stands at the end in short form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.collector.embedded import config, write_tasks
from tests.support.running import write_component
from velodrome.cli.collect import finish
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import collect
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings
from velodrome.stats.metrics import read_metrics

ENV = """
from velodrome import Environment


class Judge(Environment):
    every: int

    def verify(self, task, response):
        return {"reward": float(task["id"] % self.every == 1)}
"""
ALL_ZERO = "warning: all-zero: all 60 rewards are 0"


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rollouts of the sixty tasks beside it go."""
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path, "resources_servers", "judge", ENV)
    write_tasks(tmp_path / "tasks.jsonl", range(60))
    return tmp_path / "r.jsonl"


def collected(output: Path, every: int, **changes: Any) -> Run:
    settings = CollectSettings(input=output.with_name("tasks.jsonl"), output=output, **changes)
    agents = ConfiguredAgents(config("judge", {"answers": ["three words here"]}, every=every))
    return asyncio.run(collect(settings, agents))


def of_rewards(run: Run) -> list[str]:
    """The findings but for those about time: on a busy machine any verification is slow."""
    return [line for line in run.findings if "slow-" not in line]


def test_a_collection_whose_rewards_are_all_zero_says_so_at_its_end(output: Path, capsys: pytest.CaptureFixture[str]):
    outcome = collected(output, every=1)
    assert (outcome.kept, of_rewards(outcome)) == (60, [ALL_ZERO])
    capsys.readouterr()  # the progress bar
    assert finish(outcome, output) == 0
    said = capsys.readouterr().err.splitlines()
    assert (said[0], ALL_ZERO in said) == (f"{outcome.summary()}  ->  {output}", True)


def test_after_a_resume_the_whole_file_is_checked(output: Path):
    assert of_rewards(collected(output, every=1, limit=30)) == []  # worth a note, and notes alone are not shown
    assert of_rewards(collected(output, every=1)) == [ALL_ZERO]


def test_after_a_resume_the_numbers_are_those_of_the_file_with_and_without_repeats(output: Path):
    for repeats in (1, 2):
        collected(output, every=2, limit=20)
        run = collected(output, every=2, repeats=repeats)
        assert (run.metrics, run.metrics["reward"], of_rewards(run)) == (read_metrics(output)[0], 0.5, [])
