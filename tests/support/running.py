"""A `velo run` in a process of its own, and what its servers answer. Every wait is bounded; none is a sleep."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson

from tests.support.patience import DEADLINE_S

LIMIT_S = float(DEADLINE_S)
CALCULATOR = "resources_servers/calculator/configs/calculator.yaml"
MODEL = """
policy_model:
  responses_api_models:
    scripted_model:
      answers: ["It is 36"]
"""
TASK = {"expected_answer": "36", "responses_create_params": {"input": "15% of 240?"}}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        result: int = sock.getsockname()[1]
        return result


def http(url: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
    """Status and JSON (or text) of one request."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, None if body is None else orjson.dumps(body), headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            status, data = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, data = error.code, error.read()
    try:
        return status, orjson.loads(data)
    except orjson.JSONDecodeError:
        return status, data.decode()


def gone(pid: int) -> bool:
    """Whether a process ends within the limit."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], LIMIT_S)[0])
    finally:
        os.close(handle)


class Session:
    """One `velo run`: what it says, its servers, its end."""

    def __init__(self, cwd: Path, *argv: str, env: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.cwd = cwd
        self.head = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "velodrome.cli.main", "run", f"+head_server.port={self.port}", *argv]
        self.process = subprocess.Popen(
            command, cwd=cwd, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}), start_new_session=True
        )
        self.said = ""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                with self._news:
                    self.said += line
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def expect(self, text: str, times: int = 1) -> None:
        """Wait until it has said this."""
        deadline = time.monotonic() + LIMIT_S
        with self._news:
            while self.said.count(text) < times:
                alive = self._reader.is_alive()
                report = self._news.wait(deadline - time.monotonic()) if alive else False
                assert report or self.said.count(text) >= times, f"never said {text!r}:\n{self.said}"

    def up(self) -> Session:
        """Wait until all servers are ready."""
        self.expect("all ready in")
        return self

    def instances(self, token: str | None = None) -> dict[str, dict[str, Any]]:
        """The servers by name, as the head tells it."""
        status, result = http(f"{self.head}/server_instances", token=token)
        assert status == 200, result
        return {each["name"]: each for each in result}

    def pids(self) -> list[int]:
        """Of all workers."""
        result: list[int] = []
        for each in self.instances().values():
            result += each["pids"]
        return result

    def ends(self, number: signal.Signals | None = None) -> int:
        """Its exit code, after a signal if one is given."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ends()


def calculator(cwd: Path) -> str:
    """The config of three servers, written to a folder."""
    (cwd / "model.yaml").write_text(MODEL)
    return f"+config_paths=[{CALCULATOR},model.yaml]"


def write_component(cwd: Path, kind: str, implementation: str, code: str) -> Path:
    path = cwd / kind / implementation / "app.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return path
