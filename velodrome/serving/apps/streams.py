"""Slow answers of models: complete, or as server-sent events of either OpenAI endpoint.

The work is cancelled if the caller disconnects. `/v1/responses` numbers and forwards the events of a streamed Response:
an error before the first event is an HTTP error, a later one is the last event. In other dialects the events are made
from the finished answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack, aclosing
from typing import TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from velodrome.contracts import Json, Model, events_of
from velodrome.errors import ModelError, VelodromeError, blame
from velodrome.records.conversation import TOKEN_FIELDS
from velodrome.serving.apps.routes import EVENTS, BadRequest, RequestLimits, encoded, limits_of
from velodrome.serving.apps.web_app import error_response

_CLIENT_CLOSED = 499
_UNWATCHED_S = 0.1  # watching costs as much as a short call
_Result = TypeVar("_Result")


async def until_disconnect(request: Request, work: Awaitable[_Result]) -> _Result:
    """The result of some work, which is cancelled if the caller disconnects first."""
    task = asyncio.current_task()
    assert task is not None
    watch: asyncio.Task[None] | None = None
    disconnected = False

    async def wait_for_disconnect() -> None:
        nonlocal disconnected
        await request.receive()  # the body has been read, so the next message is the disconnect
        disconnected = True
        task.cancel()

    def begin() -> None:
        nonlocal watch
        watch = asyncio.create_task(wait_for_disconnect())

    timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, begin)
    try:
        return await work
    except asyncio.CancelledError:
        if not disconnected:
            raise
        task.uncancel()
        raise BadRequest(_CLIENT_CLOSED, "the caller disconnected") from None
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()


async def streamed_response(request: Request, model: Model, body: Json, name: str) -> Response:
    """The events of `/v1/responses`, after the first has arrived; `name` is for answers without a model name."""
    events = _response_events(model, body, name)
    async with AsyncExitStack() as failed:
        failed.push_async_callback(events.aclose)
        event = await until_disconnect(request, anext(events))
        with blame(ModelError, "model"):
            first = event_bytes(event, event["type"])
        failed.pop_all()
    return _EventStream(first, events, limits_of(request))


async def _response_events(model: Model, request: Json, name: str) -> AsyncGenerator[Json, None]:
    number = 0
    async with aclosing(events_of(model, request, name)) as events:
        async for event in events:
            yield {**event, "sequence_number": number}
            number += 1


class _EventStream(StreamingResponse):
    """Always closes its events. An error in the middle becomes the last event."""

    def __init__(self, first: bytes, events: AsyncGenerator[Json, None], limits: RequestLimits) -> None:
        super().__init__(self._body(first, events), headers={"Cache-Control": "no-cache"}, media_type=EVENTS)
        self._events = events
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def _body(self, first: bytes, events: AsyncGenerator[Json, None]) -> AsyncGenerator[bytes, None]:
        number = 1
        yield first
        try:
            with blame(ModelError, "model"):
                async for event in events:
                    yield event_bytes(event, event["type"])
                    number += 1
        except VelodromeError as failure:
            body = orjson.loads(error_response(failure, self._limits).body)
            error = body["error"]
            about = {"code": error["type"], "message": error["message"], "param": None}
            yield event_bytes({"type": "error", "sequence_number": number, **about, **body}, "error")


def event_bytes(data: Json, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encoded(data) + b"\n\n"


def chat_stream(completion: Json, *, with_usage: bool) -> Response:
    """A finished chat completion as the chunks of a stream: message, end, and usage if `with_usage`."""
    choice = completion["choices"][0]
    message = {name: value for name, value in choice["message"].items() if value is not None}
    end_fields = {name: message.pop(name) for name in (*TOKEN_FIELDS, "annotations") if name in message}
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(message["tool_calls"])]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    usage = {"usage": None} if with_usage else {}
    ids = {name: completion[name] for name in ("prompt_token_ids",) if name in completion}
    begin = {"index": 0, "delta": message, "logprobs": choice["logprobs"], "finish_reason": None}
    end = {**choice, "delta": end_fields, "logprobs": None}
    del end["message"]
    chunks = [{**head, "choices": [begin], **usage}, {**head, "choices": [end], **usage, **ids}]
    if with_usage:
        chunks.append({**head, "choices": [], "usage": completion["usage"]})
    return Response(b"".join([*map(event_bytes, chunks), b"data: [DONE]\n\n"]), media_type=EVENTS)
