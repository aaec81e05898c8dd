"""The routes of an agent: `/run` takes a task to its score; the others continue one conversation, as with a model.

`/v1/responses` shows the agent's own tool calls and their results as items. In chat and in Anthropic's messages a call
is a request to the caller, so `TextsOnly` leaves the calls out there: the caller sees what was said.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome.contracts import Agent, Json, Model, Resources, events_of
from velodrome.errors import AgentError, ToolError, blame
from velodrome.records.conversation import TOKEN_FIELDS
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
        *model_routes(ServedModel(server, model, TextsOnly(model), partial(_check, agent))),
        AGGREGATE,
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


_SAID = ("message", "reasoning")
_APART = "\n\n"  # between the texts of two turns


class AgentModel:
    """Answers with all that the agent did. What the agent raises is an `AgentError`."""

    def __init__(self, agent: Agent, name: str = "") -> None:
        self._agent = agent
        self._name = name  # of the model, where a Response has none

    async def respond(self, request: Json) -> Json:
        with blame(AgentError, "respond"):
            return with_items(await self._agent.respond(request), AgentError)

    def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """What the agent streams; from an agent that does not, the events of its finished Response."""
        return events_of(self._agent, request, self._name, fault=AgentError, where="respond")

    async def aclose(self) -> None:
        """The agent belongs to the server."""


class TextsOnly:
    """The answers of a model without its calls and their results; texts of several turns are set apart.

    They come when the model has finished: a stream of them has all of it at its end.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    async def respond(self, request: Json) -> Json:
        return _texts_of(await self._model.respond(request))

    async def aclose(self) -> None:
        """The model belongs to the server."""


def _texts_of(response: Json) -> Json:
    output: list[Json] = []
    said: set[str] = set()
    turns: set[int] = set()  # from which something is said
    turn = 0
    for item in response["output"]:
        kind = item.get("type") or "message"
        if kind in _SAID:
            turns.add(turn)
            has_text = any(map(_text, _parts(item)))
            output.append(_item_apart(item) if has_text and kind in said else item)
            if has_text:
                said.add(kind)
        if item.get("generation_token_ids") or kind == "function_call_output":
            turn += 1
    if len(turns) > 1:  # the ids of one turn are not those of the texts of several
        output = [{name: value for name, value in item.items() if name not in TOKEN_FIELDS} for item in output]
    return {**response, "output": output}


def _parts(item: Json) -> list[Json]:
    content = item.get("content")
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else content or []


def _text(part: Json) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _item_apart(item: Json) -> Json:
    parts = list(_parts(item))
    first = next(index for index, part in enumerate(parts) if _text(part))
    parts[first] = _part_apart(parts[first])
    return {**item, "content": parts}


def _part_apart(part: Json) -> Json:
    return {**part, "text": _APART + _text(part)}
