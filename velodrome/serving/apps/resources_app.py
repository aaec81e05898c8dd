"""The routes of an environment: `/seed_session`, `/reset` and `/step`, one for each tool, `/verify`, `/close_session`.

A session lives in the worker that opened it. Its cookie says which one that is; a request that reached another worker
is passed on, so any number of workers can share one port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome import http
from velodrome.contracts import Json, Resources, Turns
from velodrome.errors import CallError, ToolError, VerifyError, blame
from velodrome.records.conversation import flaw
from velodrome.serving import wire
from velodrome.serving.apps.aggregate import aggregate_route
from velodrome.serving.apps.routes import (
    JSON,
    OBJECT,
    TEXT,
    BadRequest,
    Handler,
    get,
    json_response,
    post,
    read_any,
    read_json,
)
from velodrome.serving.apps.sessions import COOKIE, Sessions, Ticket
from velodrome.serving.apps.web_app import timed

_PASS_ON = http.Retry(max_retries=0, timeout_s=3600.0, total_timeout_s=3600.0)
_VERIFY: Json = {"type": "object", "required": ["response"], "properties": {"response": OBJECT}}
_REWARD: Json = {"type": "object", "required": ["reward"], "properties": {"reward": {"type": "number"}}}

_STEP: Json = {"type": "object", "required": ["action"], "properties": {"action": {"type": ["string", "object"]}}}


def resources_routes(server: str, resources: Resources, sessions: Sessions, tools: list[Json]) -> list[Route]:
    async def seed(request: Request) -> Response:
        cookie = await sessions.open(await read_json(request))
        answer = json_response({})
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")
        return answer

    async def call(request: Request, arguments: Any, ticket: Ticket | None) -> Response:
        name = request.path_params["name"]
        with blame(ToolError, name):
            text = await sessions.use(ticket, {}, lambda handle: resources.call(handle, name, arguments))
        return Response(text.encode("utf-8", "replace"), media_type=TEXT)

    async def verify(request: Request, body: Json, ticket: Ticket | None) -> Response:
        response = body.get("response")
        if not isinstance(response, dict):
            raise BadRequest(422, "the body must be a task with its response; it has no response object")
        _check_output(response.get("output"))
        task = {name: value for name, value in body.items() if name != "response"}
        with blame(VerifyError, "verify"):
            score = await sessions.use(ticket, task, lambda handle: resources.score(handle, task, response))
            return json_response(score if wire.BRIEF in request.headers else body | score)

    async def close(request: Request, body: Json, ticket: Ticket | None) -> Response:
        if ticket is not None:
            await sessions.close(ticket)
        return json_response({})

    async def offered(request: Request) -> Response:
        return json_response(tools)

    any_name = timed(server, in_session(sessions, call, read_any))  # wrong arguments are reported to the model
    verified = timed(server, in_session(sessions, verify))
    return [
        get("/tools", offered, "The tools on offer, as OpenAI function tools.", answer={"type": "array"}),
        post("/seed_session", timed(server, seed), "Start a session for a task; its cookie comes back."),
        post("/verify", verified, "A task with its response: the score.", body=_VERIFY, answer=_REWARD),
        post("/close_session", in_session(sessions, close), "Forget the session of the cookie."),
        aggregate_route(),
        *(turn_routes(server, resources, sessions) if isinstance(resources, Turns) else ()),
        post("/{name}", any_name, kinds=(TEXT,)),
    ]


def turn_routes(server: str, turns: Turns, sessions: Sessions) -> list[Route]:
    """The turns of a session, by Gymnasium's names."""
    by_player = bool(getattr(turns, "addresses_players", False))

    async def reset(request: Request, task: Json, ticket: Ticket | None) -> Response:
        with blame(ToolError, "reset"):
            return json_response(await turns.begin(_open(sessions, ticket), task))

    async def step(request: Request, body: Json, ticket: Ticket | None) -> Response:
        action: Any = body.get("action")
        texts = list(action.values()) if isinstance(action, dict) and by_player else [action]
        if not all(isinstance(text, str) for text in texts) or isinstance(action, dict) != by_player:
            what = "texts by player" if by_player else "a text"
            raise BadRequest(422, f'"action" must be {what}, not {action!r:.40}', param="action")
        with blame(ToolError, "step"):
            return json_response(await turns.advance(_open(sessions, ticket), action))

    first = "The first observation of the task, in the session of the cookie."
    then = "What the model did: observation, reward, terminated, truncated, info."
    return [
        post("/reset", timed(server, in_session(sessions, reset)), first),
        post("/step", timed(server, in_session(sessions, step)), then, body=_STEP),
    ]


def _open(sessions: Sessions, ticket: Ticket | None) -> str:
    if ticket is None:
        raise BadRequest(400, "turns belong to a session; send the cookie of /seed_session")
    return sessions.handle(ticket)


def _check_output(output: Any) -> None:
    if output is not None and not isinstance(output, list):
        raise BadRequest(422, f'response: "output" must be a list, not {output!r:.40}', param="response")
    for index, item in enumerate(output or ()):
        problem = flaw(item)
        if problem is not None:
            raise BadRequest(422, f"response: output[{index}]: {problem}", param="response")


def in_session(
    sessions: Sessions,
    handle: Callable[[Request, Any, Ticket | None], Awaitable[Response]],
    read: Callable[[Request], Awaitable[Any]] = read_json,
) -> Handler:
    """The handler of requests that belong to a session; another worker's are passed on to it."""

    async def handler(request: Request) -> Response:
        body = await read(request)
        ticket = sessions.ticket(request)
        other = sessions.elsewhere(ticket)
        return await (handle(request, body, ticket) if other is None else pass_on(request, body, other))

    return handler


async def pass_on(request: Request, body: Any, target: http.Target) -> Response:
    """Let the worker that holds the session answer."""
    passed = ("cookie", "authorization", "x-api-key", "accept", wire.BRIEF, wire.SPANS)
    headers = {name: value for name, value in request.headers.items() if name in passed or name.startswith("mcp-")}
    there = http.Target(target.label.rstrip("/") + quote(request.scope["path"]))
    try:
        reply = await http.shared().post(there, orjson.dumps(body), _PASS_ON, headers=headers)
    except CallError as error:
        if error.status is None or error.status < 400:
            raise ToolError(f"the worker that holds the session does not answer: {error}") from error
        settled = {http.SETTLED: "yes"} if wire.error_in(error.body) else None
        return Response(error.body, error.status, settled, media_type=JSON)
    return Response(reply.body, reply.status, media_type=reply.headers.get("Content-Type"))
