"""Answers of models, which take time: whole, or as server-sent events in the form of either OpenAI endpoint.

The work is given up if the caller disconnects. A streamed answer begins with its first event, so an error before that
has its own status; a later one is the last event, in the form of the dialect. `/v1/responses` passes the events of a
streamed Response on with numbers, `/v1/chat/completions` turns them into chunks. For a model that does not stream they
are made from its finished answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from velodrome.contracts import Json, Model, events_of
from velodrome.errors import ModelError, VelodromeError, blame
from velodrome.records.conversation import TOKEN_FIELDS
from velodrome.records.events import ENDS, EventConverter
from velodrome.responses_api_models.conversion import chat_from_response
from velodrome.serving.apps.routes import EVENTS, BadRequest, RequestLimits, encoded, limits_of
from velodrome.serving.apps.web_app import error_response

Event = tuple[str | None, Json | None]
Failure = Callable[[Json, int, int], Event]
"""An error as the last event: from the body and the status of a whole answer, and the number of the event."""

_CLIENT_CLOSED = 499
_UNWATCHED_S = 0.1  # watching costs as much as a short call itself
_Got = TypeVar("_Got")


async def while_wanted(request: Request, work: Awaitable[_Got]) -> _Got:
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


async def streamed(request: Request, events: AsyncGenerator[Event, None], failure: Failure) -> Response:
    """Server-sent events, once there is a first one."""
    async with AsyncExitStack() as failed:
        failed.push_async_callback(events.aclose)
        event = await while_wanted(request, anext(events))
        with blame(ModelError, "model"):
            first = _encoded(event)
        failed.pop_all()
    return _EventStream(first, events, failure, limits_of(request))


class _EventStream(StreamingResponse):
    """Closes its events however it ends; an error in the middle is the last of them."""

    def __init__(
        self, first: bytes, events: AsyncGenerator[Event, None], failure: Failure, limits: RequestLimits
    ) -> None:
        super().__init__(self._body(first, events), headers={"Cache-Control": "no-cache"}, media_type=EVENTS)
        self._events = events
        self._failure = failure
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def _body(self, first: bytes, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
        number = 1
        yield first
        try:
            with blame(ModelError, "model"):
                async for event in events:
                    yield _encoded(event)
                    number += 1
        except VelodromeError as error:
            whole = error_response(error, self._limits)
            yield _encoded(self._failure(orjson.loads(whole.body), whole.status_code, number))


def _encoded(event: Event) -> bytes:
    name, data = event
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + (b"[DONE]" if data is None else encoded(data)) + b"\n\n"


async def response_events(model: Model, request: Json, *, name: str = "") -> AsyncGenerator[Event, None]:
    """(name, data) of each event of `/v1/responses`; `name` is the model's if its answer has none."""
    number = 0
    async with aclosing(events_of(model, request, name)) as events:
        async for event in events:
            yield event["type"], {**event, "sequence_number": number}
            number += 1


async def chat_events(model: Model, request: Json, *, counted: bool, name: str = "") -> AsyncGenerator[Event, None]:
    """(None, chunk) of `/v1/chat/completions`, and (None, None) for its [DONE]."""
    chunks = ChatChunks(counted=counted)
    async with aclosing(events_of(model, request, name)) as events:
        with blame(ModelError, "model"):
            async for event in events:
                for chunk in chunks.of(event):
                    yield None, chunk
    if counted:
        yield None, {**chunks.head, "choices": [], "usage": chunks.usage}
    yield None, None


class ChatChunks(EventConverter):
    """Turns events into chunks. What only arrives whole is sent whole. `head` and `usage` are those of the answer."""

    def __init__(self, *, counted: bool) -> None:
        self.head: Json = {}
        self.usage: Json | None = None
        self._counted = counted  # every chunk has a usage, which is null before the last
        self._calls: dict[int, int] = {}  # place of an item -> number of its call
        convert: dict[str, Callable[[Json], Iterator[Json]]] = {
            "response.created": self._begin,
            "response.output_text.delta": lambda event: self._text(event, "content"),
            "response.refusal.delta": lambda event: self._text(event, "refusal"),
            "response.reasoning_text.delta": lambda event: self._text(event, "reasoning_content"),
            "response.reasoning_summary_text.delta": self._summary,
            "response.output_item.added": self._item,
            "response.output_item.done": self._late,
            "response.function_call_arguments.delta": self._arguments,
            **dict.fromkeys(ENDS, self._end),
        }
        super().__init__(convert)

    def _begin(self, event: Json) -> Iterator[Json]:
        response = event["response"]
        if not self.head:
            self.head |= {
                "id": response.get("id"),
                "object": "chat.completion.chunk",
                "created": int(response.get("created_at") or 0),
                "model": response.get("model"),
            }
        yield self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: Json, finish: str | None = None, logprobs: list[Json] | None = None) -> Json:
        tokens = {"content": logprobs} if logprobs else None
        choice = {"index": 0, "delta": delta, "logprobs": tokens, "finish_reason": finish}
        chunk = {**self.head, "choices": [choice]}
        return chunk | {"usage": None} if self._counted else chunk

    def _text(self, event: Json, name: str) -> Iterator[Json]:
        self._shown[event["output_index"]] = event["type"]
        yield self._chunk({name: event["delta"]}, logprobs=event.get("logprobs"))

    def _summary(self, event: Json) -> Iterator[Json]:
        piece = self.summary(event)
        if piece is not None:
            yield from self._text(piece, "reasoning_content")

    def _item(self, event: Json) -> Iterator[Json]:
        item = event["item"]
        if item["type"] == "function_call":
            number = self._calls[event["output_index"]] = len(self._calls)
            function = {"name": item["name"], "arguments": ""}
            call = {"index": number, "id": item.get("call_id"), "type": "function", "function": function}
            yield self._chunk({"tool_calls": [call]})

    def _arguments(self, event: Json) -> Iterator[Json]:
        self._shown[event["output_index"]] = event["type"]
        call = {"index": self._calls[event["output_index"]], "function": {"arguments": event["delta"]}}
        yield self._chunk({"tool_calls": [call]})

    def _late(self, event: Json) -> Iterator[Json]:
        place, item = event["output_index"], event["item"]
        if place in self._shown:
            return
        if place in self._calls:
            yield from self._arguments({**event, "delta": item.get("arguments") or ""})
            return
        message = chat_from_response({"output": [item]})["choices"][0]["message"]
        for name in ("reasoning_content", "content", "refusal"):
            if message.get(name):
                yield self._chunk({name: message[name]})

    def _end(self, event: Json) -> Iterator[Json]:
        completion = chat_from_response(event["response"])
        choice = completion["choices"][0]
        message = choice["message"]
        late = {name: message[name] for name in (*TOKEN_FIELDS, "annotations") if name in message}
        chunk = self._chunk(late, finish=choice["finish_reason"])
        if "token_ids" in choice:
            chunk["choices"][0]["token_ids"] = choice["token_ids"]
        if "prompt_token_ids" in completion:
            chunk["prompt_token_ids"] = completion["prompt_token_ids"]
        self.usage = completion["usage"]
        yield chunk
