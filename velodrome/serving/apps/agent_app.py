"""The routes of an agent: `/run` takes a task to its score; the others continue one conversation, as with a model.

`/v1/responses` shows the agent's own tool calls and their results as items. In chat and in Anthropic's messages a call
is a request to the caller, so there the answer is the agent's last turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome.contracts import Agent, Json, Resources, events_of
from velodrome.errors import AgentError, ToolError, blame
from velodrome.records.events import with_items
from velodrome.records.task import check_task
from velodrome.serving import wire
from velodrome.serving.apps.model_app import ServedModel, check_flaw, check_request, model_routes
from velodrome.serving.apps.routes import AGGREGATE, BadRequest, json_response, post, read_json
from velodrome.serving.apps.web_app import timed


def agent_routes(server: str, agent: Agent) -> list[Route]:
    async def run(request: Request) -> Response:
        task = await read_json(request)
        try:
            check_task(task)
        except ValueError as error:
            raise BadRequest(422, str(error)) from error
        verify = request.headers.get(wire.VERIFY) != "no"
        with blame(AgentError, "run"):
            return json_response(await agent.run(task, verify=verify))

    model = AgentModel(agent, server)
    return [
        post("/run", timed(server, run, always=True)),
        *model_routes(ServedModel(server, model, partial(_check, agent), last_turn)),
        AGGREGATE,
    ]


async def _check(agent: Agent, request: Json) -> None:
    """The check of a model, but an agent or its environment may supply the prompt and the tools."""
    if request.get("input") == []:
        check_flaw(request)
    else:
        await check_request(request)
    if request.get("tools"):
        await _check_tools(agent, request["tools"])
    else:
        request.pop("tools", None)  # an empty list from the client means the tools of the environment


async def _check_tools(agent: Agent, tools: list[Json]) -> None:
    """Refuse tools that the environment does not have. A subset of its tools is allowed."""
    environment = getattr(agent, "environment", None)
    if not isinstance(environment, Resources):
        return
    with blame(ToolError, "tools"):
        own = [str(each.get("name")) for each in await environment.tools()]
    functions = [tool.get("function", tool) for tool in tools if tool["type"] == "function"]
    unknown = [each["name"] for each in functions if each["name"] not in own]
    if own and unknown:
        unknown_names, own_names = ", ".join(unknown), ", ".join(own)
        message = f'"tools" has what this agent cannot run: {unknown_names:.200}; its environment has {own_names:.200}'
        raise BadRequest(400, message, param="tools")


class AgentModel:
    """An agent as a model: answers with all its items. An exception of the agent becomes an `AgentError`."""

    def __init__(self, agent: Agent, name: str = "") -> None:
        self._agent = agent
        self._name = name  # the model name for a Response without one

    async def respond(self, request: Json) -> Json:
        with blame(AgentError, "respond"):
            return with_items(await self._agent.respond(request), AgentError)

    def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The events that the agent streams, or those of its finished Response if it does not stream."""
        return events_of(self._agent, request, self._name, fault=AgentError, where="respond")

    async def aclose(self) -> None:
        """Nothing to close: the agent belongs to the server."""


def last_turn(response: Json) -> Json:
    """The Response of an agent with only the texts and reasoning of its last turn."""
    output: list[Json] = []
    for item in response["output"]:
        if item["type"] == "function_call_output" or item.get("role", "assistant") != "assistant":
            output.clear()
        elif item["type"] in ("message", "reasoning"):
            output.append(item)
    return {**response, "output": output}
