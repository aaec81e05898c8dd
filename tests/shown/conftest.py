"""A folder to work in, as a user has one: configs, tasks, and the commands on the PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from looking import Looking, look_at
from patience import DEADLINE_S
from ray_nodes import SUMS, RayNodes, ray_nodes
from trace_viewer import browser

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

    def scripted(self, *, latency_s: float = 0.0) -> None:
        """An agent with a calculator and a scripted model, found through env.yaml."""
        self.write("agent.yaml", AGENT)
        self.write("model.yaml", SCRIPTED.replace("LATENCY", str(latency_s)))
        self.write("env.yaml", "config_paths: [agent.yaml, model.yaml]\nembedded: true\n")

    def tasks(self, name: str, count: int, *, wrong: int = 0) -> Path:
        """Tasks with the answer 36; the last `wrong` of them expect another."""
        rows = [task(number, "36" if number < count - wrong else "37") for number in range(count)]
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

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


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.fixture(scope="module")  # not longer: while it runs, its event loop is that of the thread
def chromium() -> Iterator[Any]:
    with browser() as result:
        yield result


@pytest.fixture
def looking(chromium: Any) -> Iterator[Callable[..., Looking]]:
    """A viewer of its own over some files."""
    with ExitStack() as stack:
        yield lambda *files: stack.enter_context(look_at(chromium, *files))


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
    agent = workplace.folder / "agent.yaml"
    agent.write_text(agent.read_text().replace("    calculator: {", "    sums: {"))
    workplace.write("resources_servers/sums/app.py", SUMS)
    workplace.write("resources_servers/sums/answer.txt", "36")
    workplace.tasks("tasks.jsonl", 120)
    workplace.environ["HOME"] = str(workplace.folder / "home")
    (workplace.folder / "home").mkdir()
    return workplace
