"""A whole collection in one process: what its budgets count."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest

import velodrome as velo
from tests.collector.embedded import config, lines_of, write_tasks
from tests.support.running import write_component
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import collect
from velodrome.collector.settings import CollectSettings

ENV = """
from velodrome import Environment


class Strict(Environment):
    breaks: bool

    def verify(self, task, response):
        if self.breaks:
            raise RuntimeError("no such luck")
        return {"reward": 1.0}
"""


def collected(folder: Path, tasks: int, *, breaks: bool = False, **settings: Any) -> velo.Run:
    write_component(folder, "resources_servers", "strict", ENV)
    write_tasks(folder / "tasks.jsonl", range(tasks))
    agents = ConfiguredAgents(config("strict", {"answers": ["three words here"]}, breaks=breaks))
    paths = {"input": folder / "tasks.jsonl", "output": folder / "r.jsonl"}
    return asyncio.run(collect(CollectSettings(**paths, **settings), agents))


@pytest.mark.parametrize("breaks", [False, True])
def test_the_tokens_of_failed_rollouts_count_towards_the_budget_like_those_of_kept_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool
):
    monkeypatch.chdir(tmp_path)
    outcome = collected(tmp_path, 10, breaks=breaks, parallel=1, max_total_tokens=10)
    assert (outcome.kept + outcome.failed, outcome.failed > 0, outcome.exit_code) == (3, breaks, 4)
    assert outcome.stopped == "max_total_tokens=10 reached (12 tokens)"


def test_a_token_budget_that_cannot_count_says_so(capsys: pytest.CaptureFixture[str]):
    async def agent(task: dict[str, Any]) -> dict[str, Any]:
        return {"output": "fine", "reward": 1.0}

    assert asyncio.run(velo.collect(["a", "b"], agent, max_total_tokens=1)).kept == 2
    assert "max_total_tokens" in capsys.readouterr().err


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
    assert {row["meta"]["task_index"] for row in lines_of(output)} == {5, 6, 7, 8, 9}
