"""Rollouts of the environments that run a model's code, given up in the middle: nothing of them remains."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from velodrome.environments.code_gen.app import CodeGen
from velodrome.environments.python_tool.app import PythonTool
from velodrome.environments.terminal.app import Terminal
from velodrome.errors import AgentError
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

TASK = {
    "responses_create_params": {"input": "do it"},
    "test_cases": {"inputs": ["7\n"], "outputs": ["7\n"]},
    "expected_answer": 7,
    "checks": [{"type": "file_exists", "path": "out"}],
}


def answer(owner: Any, token: str) -> Any:
    """Code that waits in a process of this name."""
    command = f"exec -a {token} sleep 3600"
    code = f"import subprocess\nsubprocess.run(['bash', '-c', '{command}'])"
    if owner is CodeGen:
        return f"```python\n{code}\n```"
    call = ("python", {"code": code}) if owner is PythonTool else ("shell", {"command": command})
    return {"tool_calls": [{"name": call[0], "arguments": call[1]}]}


def processes(token: str) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("owner", [CodeGen, PythonTool, Terminal])
def test_rollouts_that_are_given_up_in_the_middle_leave_nothing(owner: Any):
    token = f"leftover{secrets.token_hex(8)}"

    async def give_up():
        async with aclosing(owner()) as environment:
            agent = SimpleAgent(model=ScriptedModel(answers=[answer(owner, token)]), environment=environment)
            rollouts = [asyncio.create_task(agent.run(TASK)) for _ in range(4)]
            while not processes(token):  # noqa: ASYNC110, it is a process that is waited for
                await asyncio.sleep(0)
            for rollout in rollouts:
                rollout.cancel()
            ends = await asyncio.gather(*rollouts, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError | AgentError) for end in ends)
            assert environment.sessions == {}

    asyncio.run(give_up())
    children = {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}
    assert (processes(token), children) == ([], set())
