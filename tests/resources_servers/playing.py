"""What the tests of environments share: a response that says one thing, its score, and answers that an agent plays."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from velodrome import TurnEnvironment
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.settings.files import find_file, in_package

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
HOMES = in_package("resources_servers")


def example_tasks(name: str) -> dict[str, Json]:
    """The example tasks of a built-in environment, by id."""
    rows = map(json.loads, example_file(name).read_text().splitlines())
    return {row.get("id", str(at)): row for at, row in enumerate(rows)}


def example_file(name: str) -> Path:
    """The file of its example tasks."""
    path = find_file(f"resources_servers/{name}/data/example.jsonl", ROOT)
    assert path is not None
    return path


def says(text: str, *calls: tuple[str, str, str]) -> Json:
    """An OpenAI Response with tool calls (name, arguments, output) and a final text."""
    items: list[Json] = []
    for at, (name, arguments, output) in enumerate(calls):
        items.append({"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": arguments})
        items.append({"type": "function_call_output", "call_id": f"c{at}", "output": output})
    items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
    return {"output": items}


class Judge:
    """A model that replies as it is told, the last reply for ever after, and keeps the requests."""

    def __init__(self, *replies: Any):
        self.replies = list(replies)
        self.requests: list[Json] = []

    async def respond(self, request: Json) -> Any:
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return says(reply) if isinstance(reply, str) else reply

    async def aclose(self): ...


def closing(environment: Any, work: Awaitable[Any]) -> Any:
    """What the work returns; the environment is closed after it."""

    async def main() -> Any:
        try:
            return await work
        finally:
            await environment.aclose()

    return asyncio.run(main())


def score(environment: Any, task: Any, response: Any = "") -> Json:
    """The score of a response, or of a text."""
    response = says(response) if isinstance(response, str) else response
    return closing(environment, environment.score("1", task, response))


def results(environment: Any, task: Json, answers: dict[str, Any]) -> dict[str, Json]:
    """The rollout of each answer, a text or what is said turn by turn, played through the agent."""

    async def each() -> dict[str, Json]:
        prompt = {"input": [] if isinstance(environment, TurnEnvironment) else "go"}
        row, done = {"responses_create_params": prompt, **task}, {}
        for name, answer in answers.items():
            model = ScriptedModel(answers=answer if isinstance(answer, list) else [answer])
            done[name] = await SimpleAgent(model=model, environment=environment).run(row)
        return done

    return closing(environment, each())


def rewards(environment: Any, task: Json, answers: dict[str, Any]) -> dict[str, float]:
    return {name: result["reward"] for name, result in results(environment, task, answers).items()}


def play(environment: Any, task: Json, *answers: Any) -> Json:
    """The rollout of one answer."""
    return results(environment, task, {"": list(answers)})[""]


def opened(environment: Any, task: Any, *calls: tuple[str, Any]) -> list[str]:
    """What calls of tools return in one session of this task."""

    async def each() -> list[str]:
        session = await environment.open(task)
        try:
            return [await environment.call(session, name, arguments) for name, arguments in calls]
        finally:
            await environment.close(session)

    return closing(environment, each())


def documented(start: str) -> Json:
    """The names that a Python block of docs/environments.md defines, which starts with this text."""
    page = (ROOT / "docs" / "environments.md").read_text()
    (code,) = re.findall(rf"```python\n({re.escape(start)}.*?)```", page, re.DOTALL)
    scope: Json = {"__name__": "documented"}
    exec(compile(code, "docs/environments.md", "exec", dont_inherit=True), scope)
    return scope
