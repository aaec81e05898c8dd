"""The code of docs/mcp.md and docs/theirs.md works as it is written."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages import blocks, read, section
from tests.support.patience import DEADLINE_S
from velodrome.cli.main import main
from velodrome.environments.mcp_tools.app import EXAMPLE_SERVER
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.hosting import served

Json = dict[str, Any]
MODEL = {"policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "answers": ["?"]}}}}


def test_the_client_of_the_page_reads_and_scores_its_session(tmp_path: Path):
    (code,) = blocks(section(read("mcp.md"), "Our tools there"), "python")
    for name in ("mcp.server.lowlevel", "mcp.server.streamable_http_manager"):
        import_module(name)  # else the first request waits for it: on a busy machine longer than the client does

    async def check() -> str:
        async with served(ExampleSessionStateMgmt()) as url:
            script = tmp_path / "client.py"
            script.write_text(code.replace("http://127.0.0.1:11004", url))
            ran = await asyncio.to_thread(
                subprocess.run, [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE_S
            )
            assert ran.returncode == 0, ran.stderr
            return str(ran.stdout)

    assert asyncio.run(check()) == '{"count":2}\n1.0\n'


def test_the_server_of_the_page_is_added_by_its_command_and_the_environment_mixes_its_tools_with_a_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(blocks(section(read("mcp.md"), "Their tools here"), "python")[0])
    assert main(["env", "add", f"mcp:{sys.executable} server.py", "--name", "tiny"]) == 0
    added = json.loads((tmp_path / "resources_servers/tiny/data/example.jsonl").read_text())
    assert added["expected_calls"] == [{"name": "double"}]
    (code,) = blocks(section(read("mcp.md"), "With tools of your own"), "python")
    names: dict[str, Any] = {"__name__": "notes"}
    exec(code, names)  # the page's own
    script = [
        {"tool_calls": [{"name": "count_stock", "arguments": {"item": "bolt"}}]},
        {"tool_calls": [{"name": "note", "arguments": {"text": "40"}}]},
        "noted",
    ]

    async def played() -> Json:
        notes = names["Notes"](command=EXAMPLE_SERVER)
        try:
            agent = SimpleAgent(model=ScriptedModel(answers=script), environment=notes)
            return await agent.run({"responses_create_params": {"input": "How many bolts?"}, "wanted": "40"})
        finally:
            await notes.aclose()

    result = asyncio.run(played())
    items = result["response"]["output"]
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert (result["reward"], outputs) == (1.0, ["40", "1"])


def collect(folder: Path, agent: str, task: Json, *configs: str) -> Json:
    """The one row of a collection."""
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    words = [
        f"+config_paths=[{','.join(configs)}]",
        f"+agent_name={agent}",
        "+input_jsonl_fpath=tasks.jsonl",
        "+output_jsonl_fpath=rollouts.jsonl",
        "+embedded=true",
    ]
    assert main(["collect", *words]) == 0
    row: Json = json.loads((folder / "rollouts.jsonl").read_text())
    return row


def test_the_agent_anywhere_of_the_page_is_collected_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(section(read("theirs.md"), "An agent anywhere"), "yaml")
    script = [{"tool_calls": [{"name": "calculator", "arguments": {"expression": "6*7"}}]}, "It is {tool_result}"]
    there = SimpleAgent(model=ScriptedModel(answers=script), environment=Calculator())
    task: Json = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": 42}

    async def check() -> Json:
        async with served(there) as url:
            (tmp_path / "agent.yaml").write_text(code.replace("http://127.0.0.1:9000", url))
            configs = ("agent.yaml", "resources_servers/calculator/configs/calculator.yaml", "model.yaml")
            (tmp_path / "model.yaml").write_text(yaml.safe_dump(MODEL))
            return await asyncio.to_thread(collect, tmp_path, "calculator_remote_agent", task, *configs)

    row = asyncio.run(check())
    assert row["reward"] == 1.0
    assert [message["role"] for message in row["output"]] == ["assistant", "tool", "assistant"]
