"""What goes wrong around worker processes: a reader that does not answer, servers that go twice, no process at all."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

import velodrome as velo
from tests.collector.worker_runs import Sums, agent, collect, model, model_server, tasks
from velodrome.errors import ModelError, ServerError


class StopsReader(Sums):
    """Stops the process that reads rows, which then answers nothing."""

    def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        for children in Path(f"/proc/{os.getppid()}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                if b"velodrome.collector.reader" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGSTOP)
                    Path(self.undeclared["stopped"]).touch()
        return super().verify(task, response)


def test_a_reader_that_does_not_answer_is_given_up_and_the_output_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("velodrome.collector.reader._ANSWER_S", 0.1)
    environment = StopsReader(stopped=str(tmp_path / "stopped"))

    run = collect(
        tasks(30), velo.SimpleAgent(model=model, environment=environment), out=tmp_path / "r.jsonl", workers=2
    )

    assert (tmp_path / "stopped").exists()
    assert (run.metrics["reward"], run.metrics["rollouts/kept"]) == (1.0, 30)
    assert run.profile is not None


def test_a_worker_that_cannot_be_started_is_one_clear_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(ServerError, match=r"a worker process cannot be started: .*no python"):
        collect(tasks(3), agent(), out=tmp_path / "r.jsonl", workers=2)

    assert list(tmp_path.glob("velo-worker-*")) == []


class Refused(velo.OpenAI):
    """Notes who asked and who was refused. A call of the second round waits until that has begun."""

    folder: str

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        folder, number = Path(self.folder), request["input"][0]["content"]
        (folder / f"asked-{number}-{os.getpid()}").touch()
        await seen(folder, f"round-{number}", 1)
        try:
            return await super().respond(request)
        except ModelError:
            (folder / f"refused-{number}-{os.getpid()}").touch()
            raise


async def seen(folder: Path, name: str, count: int) -> None:
    """Wait for so many files of this name."""
    for _ in range(100 * DEADLINE_S):
        if len(list(folder.glob(f"{name}*"))) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name} never came")


def test_an_outage_that_every_worker_meets_is_reported_once_and_the_next_one_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    several = tasks(4)
    for number, task in enumerate(several):
        task["responses_create_params"] = {"input": str(1 + number // 2)}
    refused = Refused(f"http://127.0.0.1:{port}/v1", "m", endpoint="responses", max_retries=0, folder=str(tmp_path))

    async def twice() -> Any:
        agent = velo.SimpleAgent(model=refused, environment=Sums())
        run = asyncio.create_task(velo.collect(several, agent, workers=2, parallel=2, progress=False))
        (tmp_path / "round-1").touch()
        await seen(tmp_path, "refused-1", 2)
        with model_server(port):
            await seen(tmp_path, "asked-2", 2)
        (tmp_path / "round-2").touch()
        await seen(tmp_path, "refused-2", 2)
        with model_server(port):
            return await run

    run = asyncio.run(twice())

    assert (run.kept, run.failed) == (4, 0)
    notes = [record.getMessage() for record in caplog.records]
    assert [note.split(",")[0] for note in notes if note.startswith("waiting for")] == [
        f"waiting for http://127.0.0.1:{port}"
    ] * 2
