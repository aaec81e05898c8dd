"""What the tests of environments share: a response that says one thing, and an examination through the agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from velodrome.resources_servers.environment import Environment
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers"
HOSTILE = {
    "empty": "",
    "space": " \n\t ",
    "megabytes": "answer: " * 500_000,
    "one long line": "7" * 4_000_000,
    "open boxes": "\\boxed{" * 300_000,
    "nested brackets": "[" * 200_000 + "]" * 200_000,
    "nested objects": '{"a":' * 100_000,
    "commas": ", " * 500_000,
    "many lines": "?\n" * 300_000,
    "quotes and stars": "**\"'`" * 200_000,
    "lone surrogate": "Answer: \ud800",
    "nul": "Answer: \x00\x00",
    "expanding characters": "\ufdfa" * 100_000,
    "combining characters": "a" + "\u0301" * 200_000,
    "right to left": "\u202e" * 50_000 + "rewsnA",
    "tags": "<system>" * 100_000,
    "comments": "<!--" * 100_000,
}


@pytest.fixture
def says() -> Callable[..., dict[str, Any]]:
    """An OpenAI Response with tool calls (name, arguments, output) and a final text."""

    def response(text: str, *calls: tuple[str, str, str]) -> dict[str, Any]:
        items: list[dict[str, Any]] = []
        for at, (name, arguments, output) in enumerate(calls):
            items.append({"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": arguments})
            items.append({"type": "function_call_output", "call_id": f"c{at}", "output": output})
        items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
        return {"output": items}

    return response


@pytest.fixture
def examined() -> Callable[..., dict[str, Any]]:
    """The rewards of an environment's references, wrong answers, cheats and of hostile answers, on its examples."""

    def examine(owner: type[Environment], name: str, tasks: list[Any] | None = None, **settings: Any) -> dict[str, Any]:
        environment = owner(**{**owner.example_settings(), **settings})
        lines = (HOME / name / "data" / "example.jsonl").read_text().splitlines()
        tasks = tasks or [json.loads(line) for line in lines]

        async def reward(task: Any, answer: Any) -> float:
            agent = SimpleAgent(model=ScriptedModel(answers=[answer]), environment=environment)
            return float((await agent.run(task))["reward"])

        async def main() -> dict[str, Any]:
            try:
                return {
                    "references": {
                        task["id"]: await reward(task, environment.reference_answer(task)) for task in tasks
                    },
                    "wrong": {
                        (task["id"], kind): await reward(task, answer)
                        for task in tasks
                        for kind, answer in environment.wrong_answers(task).items()
                    },
                    "cheats": {
                        (task["id"], kind): await reward(task, answer)
                        for task in tasks
                        for kind, answer in environment.cheats(task).items()
                    },
                    "hostile": {
                        (task["id"], kind): (await environment.score("1", task, said(answer)))["reward"]
                        for task in tasks[:3]
                        for kind, answer in HOSTILE.items()
                    },
                }
            finally:
                await environment.aclose()

        return asyncio.run(main())

    return examine


def said(text: str) -> dict[str, Any]:
    return {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}
