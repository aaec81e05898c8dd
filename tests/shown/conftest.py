"""A folder to work in, as a user has one: configs, tasks, and the commands on the PATH."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from tests.support.ray_nodes import SUMS, RayNodes, ray_nodes
from tests.support.trace_viewer import browser
from velodrome.cli.main import main

BIN = Path(sys.executable).parent

AGENT = """
calculator:
  resources_servers:
    calculator: {entrypoint: app.py}
my_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: calculator}
      model_server: {type: responses_api_models, name: policy_model}
"""

SCRIPTED = """
policy_model:
  responses_api_models:
    scripted_model:
      answers:
        - tool_calls: [{name: calculator, arguments: {expression: "240 * 0.15"}}]
        - "15% of 240 is {tool_result}"
      latency_s: LATENCY
"""


class Workplace:
    """One folder; `run` is a shell in it with the commands on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_rows(self, name: str, rows: Iterable[Any]) -> Path:
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def scripted(self, *, latency_s: float = 0.0) -> None:
        """An agent with a calculator and a scripted model, found through env.yaml."""
        self.write("agent.yaml", AGENT)
        self.write("env.yaml", "config_paths: [agent.yaml, model.yaml]\nembedded: true\n")
        self.calculating(latency_s=latency_s)

    def calculating(self, *, latency_s: float = 0.0, faults: str = "") -> None:
        """A scripted model that calls the calculator."""
        self.write("model.yaml", f"{SCRIPTED.replace('LATENCY', str(latency_s))}      faults: [{faults}]\n")

    def model(self, settings: str) -> None:
        """Another scripted model: `answers: [hi]`."""
        self.write("model.yaml", f"policy_model: {{responses_api_models: {{scripted_model: {{{settings}}}}}}}\n")

    def environment(self, name: str, code: str, settings: str = "") -> None:
        """An environment of the user's own takes the place of the calculator."""
        self.write(f"resources_servers/{name}/app.py", code)
        agent = (self.folder / "agent.yaml").read_text()
        block = f"    {name}: {{entrypoint: app.py{settings}}}"
        self.write("agent.yaml", agent.replace("    calculator: {entrypoint: app.py}", block))

    def tasks(self, name: str, count: int, *, wrong: int = 0) -> Path:
        """Tasks with the answer 36; the last `wrong` of them expect another."""
        return self.write_rows(
            name, (task(number, "36" if number < count - wrong else "37") for number in range(count))
        )

    def run(self, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            **options,
        )

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command that runs while the test continues."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_bytes(self, name: str, process: subprocess.Popen[str], size: int = 0) -> None:
        """Until the file has more than this, or the process has ended."""
        path, deadline = self.folder / name, time.monotonic() + DEADLINE_S
        while process.poll() is None and self.size_of(name) <= size:
            assert time.monotonic() < deadline, f"{path} did not grow"
            time.sleep(0.002)

    def size_of(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

    def rows(self, name: str = "rollouts.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def keys(self, name: str = "rollouts.jsonl") -> list[str]:
        return [row["meta"]["key"] for row in self.rows(name)]


def task(number: int, expected: str = "36") -> dict[str, Any]:
    return {
        "id": f"task-{number}",
        "responses_create_params": {"input": [{"role": "user", "content": f"What is 15% of 240? ({number})"}]},
        "expected_answer": expected,
    }


def numbered(count: int, repeats: int = 1) -> list[str]:
    """The keys of the rollouts of so many tasks, sorted."""
    return sorted(f"task-{number}/{repeat}" for number in range(count) for repeat in range(repeats))


def content(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rollouts by key, without what no two runs share. No key is there twice."""
    by_key = {row["meta"]["key"]: row for row in rows}
    assert len(by_key) == len(rows)
    for row in rows:
        row["meta"] = {
            name: value for name, value in row["meta"].items() if name not in ("timing", "finished_at", "trace")
        }
        row["response"] = {name: value for name, value in row["response"].items() if name != "id"}
    return by_key


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


Typed = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def typed(workplace: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """A command in the folder and in this process, for what needs no process of its own."""
    monkeypatch.chdir(workplace.folder)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        name, *words = shlex.split(command)
        code = main(words if name == "velo" else [name, *words])
        return subprocess.CompletedProcess(command, code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")  # not longer: while it runs, its event loop is that of the thread
def chromium() -> Iterator[Any]:
    with browser() as result:
        yield result


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """A Ray cluster of two nodes."""
    with ray_nodes() as result:
        result.add()
        result.add()
        yield result


@pytest.fixture
def own(workplace: Workplace) -> Workplace:
    """A folder with an environment of the user's own."""
    workplace.scripted(latency_s=0.1)
    workplace.environment("sums", SUMS)
    workplace.write("resources_servers/sums/answer.txt", "36")
    workplace.tasks("tasks.jsonl", 120)
    workplace.environ["HOME"] = str(workplace.folder / "home")
    (workplace.folder / "home").mkdir()
    return workplace
