"""verl reads our prompts: every message as the model was given it, its images, and a reward from our environment."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import velodrome as velo
from tests.interop.corpus import BLUE, CASES, RED, Case, Event, chat_events
from tests.interop.law import exported, hold
from tests.interop.programs import ROOT, run
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_models.conversion import nested

HERE = Path(__file__).parent
TEMPLATES = ("qwen2_5", "qwen3", "llama3_1", "glm4moe")  # files in TRL


def ask(tmp_path: Path, **order: Any) -> Any:
    """What verl makes of it, all in one process: importing it takes longer than everything else."""
    (tmp_path / "order.json").write_text(json.dumps(order))
    printed = run("verl", HERE / "verl_read.py", tmp_path / "order.json", OMP_NUM_THREADS="1", HF_HOME=str(tmp_path))
    [line] = [line for line in printed.splitlines() if line.startswith("RESULT ")]
    return json.loads(base64.b64decode(line.removeprefix("RESULT ")))


def expected(case: Case) -> list[Event]:
    return [("told", "system", event[2]) if event[:2] == ("told", "developer") else event for event in case.prompt]


def messages(case: Case) -> list[dict[str, Any]]:
    """The prompt as a chat template takes it, from what happened and not from the export."""
    made: list[dict[str, Any]] = []
    for kind, *what in expected(case):
        if kind == "told":
            made.append({"role": what[0], "content": what[1]})
        elif kind == "said":
            made.append({"role": "assistant", "content": what[0]})
        elif kind == "called":
            call = {"id": what[0], "type": "function", "function": {"name": what[1], "arguments": what[2]}}
            made.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "got":
            made.append({"role": "tool", "tool_call_id": what[0], "content": what[1]})
    return made


def reward_function(folder: Path) -> Path:
    """The file that docs/export.md shows."""
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(# verl_reward\.py\n.*?)```", page, re.DOTALL)
    path = folder / "verl_reward.py"
    path.write_text(code)
    return path


def collected(folder: Path) -> Path:
    """A collection of the demo's tasks, whose prompts have an example with a call."""
    tasks = [json.loads(line) for line in (ROOT / "examples" / "demo_tasks.jsonl").read_text().splitlines()[:3]]
    output = folder / "demo.jsonl"
    agent = velo.SimpleAgent(model=lambda request: "The answer is 36.", environment=Calculator())
    asyncio.run(velo.collect(tasks, agent, out=output))
    return output


async def asked_with_a_server(tmp_path: Path, **order: Any) -> Any:
    async with velo.serve(environment=Calculator()) as url:
        rewards = {**order.pop("rewards"), "url": url}
        return await asyncio.to_thread(ask, tmp_path, **order, rewards=rewards)


def test_verl_gets_what_the_model_was_given(tmp_path: Path):
    path, names, unfit = exported("verl", tmp_path, "corpus.parquet")
    demo = tmp_path / "demo.parquet"
    assert sum(velo.export("verl", collected(tmp_path), demo).records.values()) == 3
    cases = {name: {"messages": messages(case), "tools": list(map(nested, case.tools))} for name, case in CASES.items()}
    [trl] = importlib.util.find_spec("trl").submodule_search_locations
    templates = {name: f"{trl}/chat_templates/{name}.jinja" for name in TEMPLATES}
    pictures = [{"role": "user", "content": [{"type": "image", "image": url} for url in (RED, BLUE)]}]
    answers = {"path": str(demo), "function": str(reward_function(tmp_path)), "answers": ["It is 36.", "It is 35."]}
    read = asyncio.run(
        asked_with_a_server(
            tmp_path,
            prompts={"path": str(path), "templates": templates, "cases": cases},
            images={"messages": pictures},
            rewards=answers,
        )
    )
    rows = dict(zip(names, read["prompts"], strict=True))
    hold("verl", {name: chat_events(row["raw_prompt"]) for name, row in rows.items()}, unfit, expected)
    for name, row in rows.items():
        assert json.loads(row["extra_info"]["tools"] or "[]") == cases[name]["tools"]
        assert row["extra_info"]["task"] == name
        assert row["agent_name"] == ("tool_agent" if CASES[name].tools else "single_turn_agent")
        if "image" not in CASES[name].feature:  # these templates are for texts
            for got, wanted in row["rendered"].values():
                assert got == wanted
                assert "Error: " not in got
    assert read["images"] == [[255, 0, 0], [0, 0, 255]]
    assert read["rewards"] == [1.0, 0.0]
