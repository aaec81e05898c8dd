"""64 hostile rollouts at once of the environments that run a model's code: nothing of them remains."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from velodrome.errors import AgentError
from velodrome.resources_servers.code_gen.app import CodeGen
from velodrome.resources_servers.python_tool.app import PythonTool
from velodrome.resources_servers.terminal.app import Terminal
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]

DAEMON = """
import os, signal
for kind in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(kind, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["TOKEN", "3600"])
    os._exit(0)
os.wait()
"""
BOMB = """
import os
while True:
    try:
        if os.fork() == 0:
            os.execvp("sleep", ["TOKEN", "3600"])
    except OSError:
        pass
"""
FILES = """
import os
for n in range(200):
    open(f"TOKEN-{n}", "w").write("x")
    os.symlink("/etc/passwd", f"TOKEN-link-{n}")
"""
COMMANDS = {
    "daemon": "(bash -c 'trap \"\" TERM HUP INT; exec -a TOKEN sleep 3600' </dev/null >/dev/null 2>&1 &)",
    "bomb": "while :; do (exec -a TOKEN sleep 3600) & done",
    "files": "for n in $(seq 200); do echo x > TOKEN-$n; ln -s /etc/passwd TOKEN-link-$n; done",
}


def tasks_and_answers(token: str, number: int) -> tuple[str, Json, list[Any]]:
    """The environment, the task and the hostile answer of one rollout."""
    kind = ["daemon", "bomb", "files"][number // 3 % 3]
    code = {"daemon": DAEMON, "bomb": BOMB, "files": FILES}[kind].replace("TOKEN", token)
    prompt = {"responses_create_params": {"input": f"do {number}"}}
    if number % 3 == 0:
        cases = {"inputs": [f"{number}\n"], "outputs": [f"{number}\n"]}
        return "code_gen", prompt | {"test_cases": cases}, [f"```python\n{code}\nprint(input())\n```"]
    if number % 3 == 1:
        call = {"name": "python", "arguments": {"code": f"x = {number}\n{code}"}}
        show = {"name": "python", "arguments": {"code": f"print({number})"}}
        return (
            "python_tool",
            prompt | {"expected_answer": number},
            [{"tool_calls": [call]}, {"tool_calls": [show]}, "{tool_result}"],
        )
    checks = [{"type": "file_equals", "path": "out", "text": str(number)}]
    given = [COMMANDS[kind].replace("TOKEN", token), f"echo {number} > out"]
    turns = [{"tool_calls": [{"name": "shell", "arguments": {"command": command}}]} for command in given]
    return "terminal", prompt | {"checks": checks}, [*turns, "done"]


def processes(token: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if token in text:
            found.append(text)
    return found


def children() -> set[str]:
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def remains(token: str) -> dict[str, Any]:
    """What could be left over: processes anywhere, children, descriptors, mounts, and files of this name."""
    gc.collect()
    folders = [Path(folder) for folder in ("/tmp", "/dev/shm", "/var/tmp", ".")]
    return {
        "processes": processes(token),
        "children": children(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "files": [path for folder in folders for path in folder.glob(f"*{token}*")],
    }


def run(work: Callable[[dict[str, Any]], Any]) -> Any:
    """What `work` gives, which is given the three environments; they are closed afterwards."""

    async def main() -> Any:
        environments = {"code_gen": CodeGen(), "python_tool": PythonTool(), "terminal": Terminal()}
        try:
            return await work(environments)
        finally:
            for environment in environments.values():
                await environment.aclose()

    return asyncio.run(main())


def test_64_hostile_rollouts_at_once_are_scored_by_what_they_did_and_leave_nothing() -> None:
    token = f"leftover{secrets.token_hex(8)}"

    async def work(environments: dict[str, Any], count: int = 64) -> list[Json]:
        async def rollout(number: int) -> Json:
            name, task, answers = tasks_and_answers(token, number)
            agent = SimpleAgent(model=ScriptedModel(answers=answers), environment=environments[name])
            return await agent.run(task)

        results = await asyncio.gather(*map(rollout, range(count)))
        assert [environment.sessions for environment in environments.values()] == [{}, {}, {}]
        return results

    run(partial(work, count=9))  # what is loaded and opened once is there before it is counted
    before = remains(token)
    results = run(work)
    assert remains(token) == before
    assert before["processes"] == before["files"] == []
    # A program that bombs does not get to its answer; a later call in the same sandbox does.
    expected = [0.0 if n % 3 == 0 and n // 3 % 3 == 1 else 1.0 for n in range(64)]
    assert [result["reward"] for result in results] == expected


def test_rollouts_that_are_given_up_in_the_middle_leave_nothing() -> None:
    token = f"leftover{secrets.token_hex(8)}"
    spin = f"import os\nos.execvp('sleep', ['{token}', '3600'])"
    answers = {
        "code_gen": [f"```python\n{spin}\n```"],
        "python_tool": [
            {
                "tool_calls": [
                    {
                        "name": "python",
                        "arguments": {
                            "code": f"import subprocess\nsubprocess.run(['bash', '-c', 'exec -a {token} sleep 3600'])"
                        },
                    }
                ]
            }
        ],
        "terminal": [{"tool_calls": [{"name": "shell", "arguments": {"command": f"exec -a {token} sleep 3600"}}]}],
    }
    task = {
        "responses_create_params": {"input": "wait"},
        "test_cases": {"inputs": ["1"], "outputs": ["1"]},
        "expected_answer": 1,
        "checks": [{"type": "file_exists", "path": "never"}],
    }

    async def work(environments: dict[str, Any]) -> None:
        for name, environment in environments.items():
            agent = SimpleAgent(model=ScriptedModel(answers=answers[name]), environment=environment)
            rollouts = [asyncio.create_task(agent.run(json.loads(json.dumps(task)))) for _ in range(4)]
            while not processes(token):  # noqa: ASYNC110, it is a process that is waited for
                await asyncio.sleep(0)
            for rollout in rollouts:
                rollout.cancel()
            ends = await asyncio.gather(*rollouts, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError | AgentError) for end in ends)
            assert environment.sessions == {}

    run(work)
    assert processes(token) == []
    assert children() == set()
