"""Runs with worker processes, for tests: an environment with traps, a model that waits for all workers, tasks, rows."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

import velodrome as velo
from tests.support.http_server import Quiet, serving
from tests.support.patience import DEADLINE_S

HERE = int(os.environ.setdefault("VELODROME_TEST_PARENT", str(os.getpid())))  # a worker imports this file again


def collect(*args: Any, **settings: Any) -> Any:
    return asyncio.run(velo.collect(*args, progress=False, **settings))


def verify(*args: Any, **settings: Any) -> Any:
    return asyncio.run(velo.verify(*args, progress=False, **settings))


class Sums(velo.Environment):
    """A task's `trap` is sprung where it says: it ends the process that verifies it."""

    def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        if task.get("trap") == "verify" and os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"reward": float(response.text == task.get("expected_answer")), "pid": os.getpid()}

    @velo.tool
    def look(self, where: str) -> str:
        """Look somewhere."""
        if where == "trap" and os.getpid() != HERE:
            os._exit(3)
        return where


def answer(request: dict[str, Any]) -> Any:
    """Calls the tool if the prompt says where to look, then answers with the last text."""
    first, last = request["input"][0], request["input"][-1]
    if last.get("type") == "function_call_output":
        return last["output"]
    if str(first["content"]).startswith("look "):
        arguments = orjson.dumps({"where": first["content"].removeprefix("look ")}).decode()
        return {"output": [{"type": "function_call", "call_id": "c", "name": "look", "arguments": arguments}]}
    return first["content"]


async def model(request: dict[str, Any]) -> Any:
    return answer(request)


def agent() -> velo.SimpleAgent:
    return velo.SimpleAgent(model=model, environment=Sums())


def together(count: int, folder: Path) -> velo.SimpleAgent:
    """An agent whose first answer waits for as many processes that have been asked."""

    async def model(request: dict[str, Any]) -> Any:
        (folder / f"asked-{os.getpid()}").touch()
        for _ in range(100 * DEADLINE_S):
            if len(list(folder.glob("asked-*"))) >= count:
                break
            await asyncio.sleep(0.01)
        return answer(request)

    return velo.SimpleAgent(model=model, environment=Sums())


def tasks(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"t{number}", "expected_answer": "yes", "responses_create_params": {"input": "yes"}, **more}
        for number in range(count)
    ]


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by key, without what differs from run to run."""
    result = {}
    for line in path.read_bytes().splitlines():
        row = orjson.loads(line)
        meta = row["meta"]
        assert meta["key"] not in result
        for name in ("timing", "finished_at"):
            del meta[name]
        del row["response"]["id"], row["pid"]
        result[meta["key"]] = row
    return result


class Answering(Quiet):
    """Answers model calls."""

    def do_POST(self) -> None:
        self.body()
        text = {"type": "output_text", "text": "yes", "annotations": []}
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
        body = orjson.dumps({"id": "r", "object": "response", "status": "completed", "output": [message]})
        self.reply(200, "application/json", body)


@contextmanager
def model_server(port: int = 0) -> Iterator[str]:
    """A model server on loopback; its URL."""
    with serving(Answering, port) as url:
        yield f"{url}/v1"
