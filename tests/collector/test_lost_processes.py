"""What goes wrong around worker processes: servers that are away, no process at all."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import velodrome as velo
from tests.http.coroutines import in_a_loop
from tests.support.running import free_port
from tests.support.worker_runs import Sums, agent, collect, model_server, tasks
from velodrome.errors import ModelError, ServerError

pytestmark = pytest.mark.slow


def test_a_worker_that_cannot_be_started_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))

    with pytest.raises(ServerError, match=r"a worker process cannot be started: .*no python"):
        collect(tasks(3), agent(), out=tmp_path / "r.jsonl", workers=2)


class Refused(velo.OpenAI):
    """Notes which process was refused."""

    folder: str

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return await super().respond(request)
        except ModelError:
            Path(self.folder, f"refused-{os.getpid()}").touch()
            raise


@in_a_loop
async def test_an_outage_that_every_worker_meets_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    url = f"http://127.0.0.1:{free_port()}"
    model = Refused(f"{url}/v1", "m", endpoint="responses", max_retries=0, folder=str(tmp_path))
    agent = velo.SimpleAgent(model=model, environment=Sums())

    run = asyncio.create_task(velo.collect(tasks(4), agent, workers=2, parallel=4, progress=False))
    while len(list(tmp_path.glob("refused-*"))) < 2:  # noqa: ASYNC110 - other processes write them
        await asyncio.sleep(0.01)
    with model_server(int(url.rpartition(":")[2])):
        result = await run

    assert (result.kept, result.failed) == (4, 0)
    notes = [record.getMessage().split(",")[0] for record in caplog.records]
    assert [note for note in notes if note.startswith("waiting for")] == [f"waiting for {url}"]
