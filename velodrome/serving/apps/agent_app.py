"""The routes of an agent: `/run` takes a task to its score; the others continue one conversation, as with a model."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome.contracts import Agent, Json, Resources
from velodrome.errors import AgentError, ToolError, blame
from velodrome.records.task import check_task
from velodrome.serving import wire
from velodrome.serving.apps.agent_model import AgentModel, TextsOnly
from velodrome.serving.apps.aggregate import aggregate_route
from velodrome.serving.apps.model_app import ServedModel, check_flaw, check_request, model_routes
from velodrome.serving.apps.routes import OBJECT, BadRequest, json_response, post, read_json
from velodrome.serving.apps.web_app import timed

_PROMPT: Json = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": OBJECT}]}
_PARAMS: Json = {"type": "object", "required": ["input"], "properties": {"input": _PROMPT}}
_TASK: Json = {
    "type": "object",
    "required": ["responses_create_params"],
    "properties": {"responses_create_params": _PARAMS},
}


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
        post("/run", timed(server, run, always=True), "A task, from its prompt to its score.", body=_TASK),
        *model_routes(ServedModel(server, model, TextsOnly(model), partial(_check, agent))),
        aggregate_route(),
    ]


async def _check(agent: Agent, request: Json) -> None:
    """The same as of a model, but an agent or its environment may bring the prompt, and has the tools."""
    if request.get("input") == []:
        check_flaw(request)
    else:
        await check_request(request)
    if request.get("tools"):
        await _check_tools(agent, request["tools"])
    else:
        request.pop("tools", None)  # the environment's: clients send an empty list for none of their own


async def _check_tools(agent: Agent, tools: list[Json]) -> None:
    """A tool that the environment has may be offered alone; another cannot run. Not every agent tells its tools."""
    environment = getattr(agent, "environment", None)
    if not isinstance(environment, Resources):
        return
    with blame(ToolError, "tools"):
        own = [str(each.get("name")) for each in await environment.tools()]
    functions = [tool.get("function", tool) for tool in tools if tool["type"] == "function"]
    strange = [each["name"] for each in functions if each["name"] not in own]
    if own and strange:
        names, there = ", ".join(strange), ", ".join(own)
        message = f'"tools" has what this agent cannot run: {names:.200}; its environment has {there:.200}'
        raise BadRequest(400, message, param="tools")
