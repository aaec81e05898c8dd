"""`velo status FILE`: a run in another terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.support.patience import DEADLINE_S
from velodrome.cli.main import main

RUN = """
import asyncio, pathlib, sys
import velodrome as velo

async def agent(task):
    if task["id"] >= 3:
        await asyncio.Event().wait()
    return {"output": "fine", "reward": 0.5}

tasks = [{"id": n, "responses_create_params": {"input": "x"}} for n in range(10)]
asyncio.run(velo.collect(tasks, agent, out="r.jsonl", parallel=2, progress=False))
"""


def status(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["status", *words])
    return code, capsys.readouterr().out


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run that has three rollouts and waits for ever."""
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([sys.executable, "-c", RUN]) as process:
        try:
            deadline, path = time.monotonic() + DEADLINE_S, tmp_path / "r.progress.json"
            while not path.exists() or orjson.loads(path.read_bytes())["done"] < 3:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_run_in_another_process_is_shown_and_its_death_noticed(
    running: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
):
    code, text = status(capsys, "r.jsonl")
    assert (code, f"r.jsonl: running, process {running.pid}" in text) == (0, True), text
    assert "3/10 (30%)" in text
    assert "reward 0.500, 0 failed, 2 in flight" in text
    running.send_signal(signal.SIGKILL)
    running.wait(DEADLINE_S)
    code, text = status(capsys, "r.jsonl")
    assert (code, "r.jsonl: dead" in text, "3/10" in text) == (1, True, True), text
    assert text.splitlines()[-1] == "3/10 (30%), reward 0.500, 0 failed"  # no rate, nothing in flight, no time left
    code, text = status(capsys, "r.jsonl", "--json")
    state = json.loads(text)
    assert (code, state["alive"], state["done"], state["total"]) == (1, False, 3, 10)
    path = Path("r.progress.json")  # a process that has got the number of the dead run is not taken for it
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "pid": os.getpid()}))
    assert status(capsys, "r.jsonl")[0] == 1


def test_how_a_run_ended_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)

    async def agent(task: Any) -> Any:
        if "bad" in str(task):
            raise ValueError("no")
        return {"output": "fine", "reward": 1.0}

    tasks = ["a", "bad", "c"]
    asyncio.run(velo.collect(tasks, agent, out="a.jsonl", progress=False))
    code, text = status(capsys, "a.jsonl")
    assert (code, "done" in text, "3/3 (100%)" in text, "1 failed" in text) == (0, True, True, True), text
    asyncio.run(velo.collect(tasks, agent, out="b.jsonl", parallel=1, max_failures=0, progress=False))
    code, text = status(capsys, "b.jsonl")
    assert (code, "max_failures=0 reached" in text, "2/3" in text) == (1, True, True), text
