"""The routes of a model: `/v1/responses` and `/v1/chat/completions`, streamed on request.

A streamed answer begins with its first event, so an error before that has a status of its own. A caller that
disconnects stops the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from velodrome.contracts import Json, Model
from velodrome.errors import ModelError, RolloutError, blame
from velodrome.responses_api_models.conversion import chat_from_response, responses_request
from velodrome.serving import wire
from velodrome.serving.apps.event_stream import Event, chat_events, response_events
from velodrome.serving.apps.routes import (
    EVENTS,
    JSON,
    OBJECT,
    BadRequest,
    get,
    json_response,
    limits_of,
    post,
    read_json,
)
from velodrome.serving.apps.web_app import timed

_INPUT: Json = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": OBJECT}]}
REQUEST: Json = {"type": "object", "required": ["input"], "properties": {"input": _INPUT}}
_MESSAGES: Json = {
    "type": "object",
    "required": ["messages"],
    "properties": {"messages": {"type": "array", "minItems": 1, "items": OBJECT}},
}

_CLIENT_CLOSED = 499
_UNWATCHED_S = 0.1  # watching costs as much as a short call itself
_Got = TypeVar("_Got")


def model_routes(server: str, model: Model) -> list[Route]:
    async def respond(request: Request) -> Response:
        body = await read_json(request)
        prompt = body.get("input")
        if not isinstance(prompt, str) and not _is_objects(prompt):
            raise BadRequest(400, '"input" must be a text or a list of objects')
        if not prompt and not body.get("instructions"):
            raise BadRequest(400, '"input" is empty')
        wants_stream = body.pop("stream", False)
        _stream_options(body)
        if wants_stream:
            return await streamed(request, response_events(model, body))
        with blame(ModelError, "model"):
            return json_response(await _while_wanted(request, model.respond(body)))

    async def chat(request: Request) -> Response:
        body = await read_json(request)
        if not body.get("messages") or not _is_objects(body["messages"]):
            raise BadRequest(400, '"messages" must be a list of objects that is not empty')
        wants_stream = body.pop("stream", False)
        options = _stream_options(body)
        try:
            converted = responses_request(body)
        except ModelError as error:
            raise BadRequest(400, str(error)) from error
        if wants_stream:
            events = chat_events(model, converted, usage=bool(options.get("include_usage")))
            return await streamed(request, events)
        with blame(ModelError, "model"):
            return json_response(chat_from_response(await _while_wanted(request, model.respond(converted))))

    async def models(request: Request) -> Response:
        return json_response({"object": "list", "data": [{"id": server, "object": "model", "owned_by": "velodrome"}]})

    call, kinds = "One model call, in OpenAI's Responses shape.", (JSON, EVENTS)
    return [
        get("/v1/models", models, "The model there is."),
        post("/v1/responses", timed(server, respond), call, body=REQUEST, kinds=kinds),
        post("/v1/chat/completions", chat, "One model call, in chat shape.", body=_MESSAGES, kinds=kinds),
    ]


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _stream_options(body: Json) -> Json:
    options = body.pop("stream_options", None) or {}
    if not isinstance(options, dict):
        raise BadRequest(400, '"stream_options" must be an object')
    return options


async def _while_wanted(request: Request, work: Awaitable[_Got]) -> _Got:
    """The result of some work, which is cancelled if the caller disconnects first."""
    task = asyncio.current_task()
    assert task is not None
    watch: asyncio.Task[None] | None = None
    gone = False

    async def watching() -> None:
        nonlocal gone
        await request.receive()  # the body has been read: all that can come is the end
        gone = True
        task.cancel()

    def begin() -> None:
        nonlocal watch
        watch = asyncio.create_task(watching())

    timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, begin)
    try:
        return await work
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise BadRequest(_CLIENT_CLOSED, "the caller disconnected") from None
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()


async def streamed(request: Request, events: AsyncGenerator[Event, None]) -> Response:
    """Server-sent events, once there is a first one."""
    async with AsyncExitStack() as failed:
        failed.push_async_callback(events.aclose)
        first = await _while_wanted(request, anext(events))
        failed.pop_all()
    return _EventStream(first, events, limits_of(request).secrets)


class _EventStream(StreamingResponse):
    """Closes its events however it ends; an error in the middle is the last of them."""

    def __init__(self, first: Event, events: AsyncGenerator[Event, None], secrets: frozenset[str]) -> None:
        super().__init__(self._body(first, events), headers={"Cache-Control": "no-cache"}, media_type=EVENTS)
        self._events = events
        self._secrets = secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def _body(self, first: Event, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
        name, data = first
        number = 1
        yield _encoded(name, data)
        try:
            async for name, data in events:
                yield _encoded(name, data)
                number += 1
        except RolloutError as error:
            yield _failure(error, None if name is None else number, self._secrets)


def _failure(error: RolloutError, number: int | None, secrets: frozenset[str]) -> bytes:
    """An error as an event that clients raise; one of a Response has a number and a type, a chunk's has neither."""
    body: Json = orjson.loads(wire.error_body(error, secrets))
    if number is None:
        return _encoded(None, body)
    about = {"code": type(error).__name__, "message": body["error"]["message"], "param": None}
    return _encoded("error", {"type": "error", "sequence_number": number, **about, **body})


def _encoded(name: str | None, data: Json | None) -> bytes:
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + (b"[DONE]" if data is None else orjson.dumps(data)) + b"\n\n"
