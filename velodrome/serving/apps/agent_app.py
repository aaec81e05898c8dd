"""The routes of an agent: `/run` takes a task to its score, `/v1/responses` continues one conversation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome.contracts import Agent, Json
from velodrome.errors import AgentError, blame
from velodrome.records.task import check_task
from velodrome.serving import wire
from velodrome.serving.apps.model_app import REQUEST
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

    async def respond(request: Request) -> Response:
        body = await read_json(request)
        try:
            check_task({"responses_create_params": body})
        except ValueError as error:  # the body is what a task has there
            message = str(error).replace('"responses_create_params": ', "").replace('"responses_create_params.', '"')
            raise BadRequest(422, message) from error
        if body.get("stream"):
            raise BadRequest(422, "an agent does not stream; leave stream out")
        with blame(AgentError, "respond"):
            return json_response(await agent.respond(body))

    return [
        post("/run", timed(server, run, always=True), "A task, from its prompt to its score.", body=_TASK),
        post("/v1/responses", respond, "Continue one conversation.", body=REQUEST),
    ]
