"""Limiters of components in worker processes: the workers divide their places."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import velodrome as velo
from tests.support.worker_runs import collect, tasks, together
from velodrome.errors import InputError
from velodrome.http.limiter import Limiter


class Database(velo.Environment):
    """Notes in a folder who is inside of its limiter."""

    folder: str
    database_max_concurrent: int = 1

    def setup(self) -> None:
        self._places = Limiter("database", self.database_max_concurrent, "database_max_concurrent")

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        async with self._places:
            mark = Path(self.folder, f"inside-{task['id']}")
            mark.touch()
            inside = len(list(Path(self.folder).glob("inside-*")))
            await asyncio.sleep(0.002)  # the call itself
            mark.unlink()
        return {"reward": 1.0, "inside": inside, "pid": os.getpid()}


pytestmark = pytest.mark.slow


def test_workers_use_no_more_places_than_the_run_has(tmp_path: Path):
    environment = Database(folder=str(tmp_path), database_max_concurrent=3)
    agent = velo.SimpleAgent(model=together(2, tmp_path).model, environment=environment)  # both are asked at first

    run = collect(tasks(40), agent, workers=2, parallel=16)

    assert (run.kept, run.failed) == (40, 0)
    assert max(rollout["inside"] for rollout in run.rollouts) <= 3
    assert len({rollout["pid"] for rollout in run.rollouts}) == 2


def test_fewer_places_than_workers_are_refused(tmp_path: Path):
    agent = velo.SimpleAgent(model=together(2, tmp_path).model, environment=Database(folder=str(tmp_path)))
    with pytest.raises(InputError, match="database_max_concurrent=1: 2 workers divide"):
        collect(tasks(4), agent, workers=2, parallel=16)
