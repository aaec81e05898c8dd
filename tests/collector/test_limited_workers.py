"""Limiters of components in worker processes: their places are the run's, not a worker's."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import velodrome as velo
from tests.collector.worker_runs import HERE, Answering, Sums, collect, model, model_server, tasks, together
from velodrome.http.limiter import Limiter


class Database(velo.Environment):
    """Notes in a folder who is inside of its limiter. A task's `trap` ends the process there."""

    folder: str
    database_max_concurrent: int = 1

    def setup(self) -> None:
        self._places = Limiter("database", self.database_max_concurrent, "database_max_concurrent")

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        async with self._places:
            if task.get("trap") and os.getpid() != HERE:
                os.kill(os.getpid(), signal.SIGKILL)
            mark = Path(self.folder, f"inside-{task['id']}")
            mark.touch()
            inside = len(list(Path(self.folder).glob("inside-*")))
            await asyncio.sleep(0.002)  # the call itself
            mark.unlink()
        return {"reward": 1.0, "inside": inside, "pid": os.getpid()}


def agent(folder: Path, places: int) -> velo.SimpleAgent:
    """Both workers are asked before one of them answers."""
    environment = Database(folder=str(folder), database_max_concurrent=places)
    return velo.SimpleAgent(model=together(2, folder).model, environment=environment)


@pytest.mark.parametrize("places", [1, 3])
def test_workers_use_no_more_places_than_the_run_has(tmp_path: Path, places: int):
    run = collect(tasks(60), agent(tmp_path, places), workers=2, parallel=16)

    assert (run.kept, run.failed) == (60, 0)
    assert max(rollout["inside"] for rollout in run.rollouts) <= places
    assert len({rollout["pid"] for rollout in run.rollouts}) == 2


def test_the_place_of_a_worker_that_is_killed_goes_to_others(tmp_path: Path):
    several = tasks(20)
    several[5]["trap"] = "verify"

    run = collect(several, velo.SimpleAgent(model=model, environment=agent(tmp_path, 1).environment), workers=2)

    assert (run.kept, run.failed) == (19, 1)


async def judged(request: dict[str, Any]) -> str:
    return "fine"


class Judged(velo.Environment):
    judge: velo.Model

    async def verify(self, task: dict[str, Any], response: Any) -> float:
        return float((await self.judge.ask("good?")).text == "fine")


def test_a_judge_has_its_places_with_workers_too(tmp_path: Path):
    environment = Judged(judge=judged, judge_max_concurrent=1)

    run = collect(tasks(30), velo.SimpleAgent(model=model, environment=environment), workers=2)

    assert (run.kept, run.metrics["reward"]) == (30, 1.0)


def test_a_live_model_is_sent_to_workers_which_share_its_places():
    with model_server() as url:
        model = velo.OpenAI(url, "m", endpoint="responses", max_concurrent=1)
        run = collect(tasks(60), velo.SimpleAgent(model=model, environment=Sums()), workers=2)

    assert (run.kept, run.metrics["reward"], Answering.most) == (60, 1.0, 1)
