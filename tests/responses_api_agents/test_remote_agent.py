"""`remote_agent` against agents behind real HTTP: ours, served, and one that takes the tools of the session by MCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import orjson
import pytest
from aiohttp import web
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from velodrome.environments.word_guess.app import WordGuess
from velodrome.errors import AgentError, InputError, TaskError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.responses_api_agents.remote_agent.app import RemoteAgent
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpResources

Json = dict[str, Any]
SUM: Json = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}
SCRIPT = [{"tool_calls": [{"name": "calculator", "arguments": {"expression": "6*7"}}]}, "It is {tool_result}."]


def at(url: str, **settings: Any) -> OpenAI:
    return OpenAI(f"{url}/v1", "there", **{"is_agent": True, "max_retries": 0, **settings})


@asynccontextmanager
async def answering(answer: Callable[[Json], Any]) -> AsyncIterator[str]:
    """The URL of a server whose `/v1/responses` answers as a function says."""

    async def respond(request: web.Request) -> web.Response:
        made = answer(orjson.loads(await request.read()))
        body = await made if asyncio.iscoroutine(made) else made
        return web.json_response(body, status=200 if "output" in body else 500)

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


def said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize("endpoint", ["chat", "auto"])
def test_an_agent_behind_http_solves_the_task_with_its_own_tools_and_our_environment_verifies(endpoint: str):
    async def check() -> Json:
        there = SimpleAgent(model=ScriptedModel(answers=SCRIPT), environment=Calculator())
        async with served(there) as url:
            agent = RemoteAgent(agent_server=at(url, endpoint=endpoint), environment=Calculator())
            return await agent.run(SUM)

    result = asyncio.run(check())
    assert (result["reward"], result["extracted_answer"]) == (1.0, "42")
    kinds = [item["type"] for item in result["response"]["output"]]
    calls = [] if endpoint == "chat" else ["function_call", "function_call_output"]
    assert kinds == [*calls, "message"]


def test_it_reaches_the_tools_of_its_session_by_mcp():
    async def solved(request: Json) -> Json:
        (tool,) = request["tools"]
        assert (tool["type"], tool["require_approval"]) == ("mcp", "never")
        async with AsyncExitStack() as stack:
            headers = {"Authorization": f"Bearer {tool['authorization']}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers))
            client = await stack.enter_async_context(
                Client(streamable_http_client(tool["server_url"], http_client=http))
            )
            await client.call_tool("increment_counter", {"count": 4})
        return {"output": [said("done")]}

    async def check() -> list[float]:
        async with served(ExampleSessionStateMgmt()) as environment_url, answering(solved) as url:
            environment = HttpResources(environment_url)
            agent = RemoteAgent(agent_server=at(url), environment=environment, offer_mcp=True)
            tasks = [
                {"responses_create_params": {"input": "Add 4."}, "initial_count": start, "expected_count": 9}
                for start in (5, 6)
            ]
            return [result["reward"] for result in await asyncio.gather(*(agent.run(task) for task in tasks))]

    assert asyncio.run(check()) == [1.0, 0.0]


WRONG: list[tuple[Json, str]] = [
    ({"error": {"message": "out of order"}}, "500"),
    ({"output": []}, "the answer is empty"),
    ({"output": [{"type": "message", "role": "user", "content": "42"}]}, "may not speak as 'user'"),
    ({"output": "42"}, '"output" is not a list'),
]


def test_whatever_goes_wrong_there_is_a_fault_of_the_agent():
    async def check(answer: Json) -> None:
        async with answering(lambda request: answer) as url:
            await RemoteAgent(agent_server=at(url), environment=Calculator()).run(SUM)

    for answer, line in WRONG:
        with pytest.raises(AgentError, match=line):
            asyncio.run(check(answer))
    with pytest.raises(AgentError) as caught:
        asyncio.run(RemoteAgent(agent_server=at("http://127.0.0.1:9"), environment=Calculator()).run(SUM))
    assert caught.value.away is not None
    assert "127.0.0.1:9" in caught.value.away.address


def test_it_is_given_the_conversation_and_not_the_tools_nor_an_environment_of_turns():
    seen: list[Json] = []

    def answer(request: Json) -> Json:
        seen.append(request)
        return {"output": [said("42")], "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}}

    async def check() -> Json:
        async with answering(answer) as url:
            params = {**SUM["responses_create_params"], "tools": await Calculator().tools(), "temperature": 0.5}
            agent = RemoteAgent(agent_server=at(url), environment=Calculator())
            return await agent.run({**SUM, "responses_create_params": params})

    result = asyncio.run(check())
    assert [(each["input"], each.get("tools"), each["temperature"]) for each in seen] == [("What is 6 * 7?", None, 0.5)]
    assert (result["reward"], result["response"]["usage"]["total_tokens"]) == (1.0, 7)
    nowhere = at("http://127.0.0.1:9")
    turns = {"responses_create_params": {"input": "go"}, "secret": "apple"}
    with pytest.raises(InputError, match="offer_mcp: the environment runs in this process"):
        RemoteAgent(agent_server=nowhere, environment=Calculator(), offer_mcp=True)
    with pytest.raises(TaskError, match="the environment takes turns"):
        asyncio.run(RemoteAgent(agent_server=nowhere, environment=WordGuess()).run(turns))
