"""The routes of an agent: `/run` takes a task to its score, `/v1/responses` continues one conversation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from velodrome.contracts import Agent
from velodrome.errors import AgentError, blame
from velodrome.records.task import check_task
from velodrome.serving import wire
from velodrome.serving.accounting import accounted
from velodrome.serving.app import App, BadRequest, Json, Limits, json_response, read_json


def add_agent(app: App, agent: Agent, limits: Limits) -> None:
    """All routes of an agent."""

    async def run(request: Request) -> Response:
        task = await read_json(request, limits)
        usable(task)
        verify = request.headers.get(wire.VERIFY) != "no"
        with blame(AgentError, "run"):
            return json_response(await agent.run(task, verify=verify))

    async def respond(request: Request) -> Response:
        body = await read_json(request, limits)
        usable({"responses_create_params": body})
        if body.get("stream"):
            raise BadRequest(422, "an agent does not stream; leave stream out")
        with blame(AgentError, "respond"):
            return json_response(await agent.respond(body))

    app.add("POST", "/run", accounted(app.title, run, always=True))
    app.add("POST", "/v1/responses", respond)


def usable(task: Json) -> None:
    """A row that is no task is the caller's mistake."""
    try:
        check_task(task)
    except ValueError as error:
        raise BadRequest(422, str(error)) from error
