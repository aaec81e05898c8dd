"""A model's answer as the events of Anthropic's streamed message, made from those of a streamed Response.

A block ends before the next begins, as at Anthropic. Text and thinking are sent as they come, a call once it is whole,
because a client stops at arguments that turn out not to be JSON.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome.connect.anthropic_messages import blocks, message_from_response, request_from_messages
from velodrome.contracts import Json, Model, events_of
from velodrome.errors import ModelError, blame
from velodrome.records.events import ENDS, EventConverter
from velodrome.serving import wire
from velodrome.serving.apps.model_app import ServedModel, takes_stream
from velodrome.serving.apps.routes import BadRequest, json_response, read_json
from velodrome.serving.apps.streams import Event, streamed, while_wanted

# Kind of block -> the field that its deltas fill, and what they are called.
_FILLED = {
    "text": {"text": "text_delta"},
    "thinking": {"thinking": "thinking_delta", "signature": "signature_delta"},
}


async def answer(served: ServedModel, request: Request) -> Response:
    """The answer to `POST /v1/messages`."""
    body = await read_json(request)
    wants_stream = takes_stream(body)
    if body.get("thread"):  # by this code the client's tool runner knows that it has to send all messages itself
        message = "conversations are not kept here; send all messages, without thread"
        raise BadRequest(400, message, param="thread", code="thread_unsupported_request")
    try:
        converted = await served.usable(request_from_messages(body))
    except ModelError as error:
        raise BadRequest(400, str(error)) from error
    if wants_stream:
        return await streamed(request, message_events(served.spoken, converted, name=served.server), _failed)
    with blame(ModelError, "model"):
        response = await while_wanted(request, served.spoken.respond(converted))
        return json_response(message_from_response(response, converted, model=served.server))


def _failed(body: Json, status: int, number: int) -> Event:
    return "error", wire.messages_error(body, status)


async def message_events(model: Model, request: Json, *, name: str = "") -> AsyncGenerator[Event, None]:
    """(name, data) of each event of `/v1/messages`; `name` is the model's if its answer has none."""
    message = _MessageEvents(name, request)
    async with aclosing(events_of(model, request, name)) as events:
        with blame(ModelError, "model"):
            async for event in events:
                for made in message.of(event):
                    yield made["type"], made


class _MessageEvents(EventConverter):
    """Turns events into events. What only arrives whole is sent whole."""

    def __init__(self, name: str, request: Json) -> None:
        self._name = name
        self._request = request
        self._index = -1  # of the last block
        self._open: tuple[Any, ...] | None = None  # the part of an item that the open block holds
        convert: dict[str, Callable[[Json], Iterator[Json]]] = {
            "response.created": self._begin,
            "response.output_text.delta": lambda event: self._piece(event, "text"),
            "response.refusal.delta": lambda event: self._piece(event, "text"),
            "response.reasoning_text.delta": lambda event: self._piece(event, "thinking"),
            "response.reasoning_summary_text.delta": self._summary,
            "response.output_item.done": self._done,
            **dict.fromkeys(ENDS, self._end),
        }
        super().__init__(convert)

    def _begin(self, event: Json) -> Iterator[Json]:
        message = message_from_response({**event["response"], "output": []}, model=self._name)
        yield {"type": "message_start", "message": {**message, "stop_reason": None}}

    def _piece(self, event: Json, kind: str) -> Iterator[Json]:
        if not event["delta"]:
            return
        place = event["output_index"]
        self._shown[place] = event["type"]
        part = (place, kind, event.get("content_index") if kind == "text" else None)
        if self._open != part:
            yield from self._start({"type": kind, **dict.fromkeys(_FILLED[kind], "")})
            self._open = part
        yield self._delta({"type": _FILLED[kind][kind], kind: event["delta"]})

    def _summary(self, event: Json) -> Iterator[Json]:
        piece = self.summary(event)
        if piece is not None:
            yield from self._piece(piece, "thinking")

    def _done(self, event: Json) -> Iterator[Json]:
        """What of an item has not been sent: all of it, or its signature."""
        made = blocks(event["item"])
        if event["output_index"] not in self._shown:
            for block in made:
                yield from self._whole(block)
        elif made and made[0].get("signature"):
            signature = made[0]["signature"]
            if self._open is not None and self._open[:2] == (event["output_index"], "thinking"):
                yield self._delta({"type": "signature_delta", "signature": signature})
            else:  # its block has ended
                yield from self._whole({"type": "redacted_thinking", "data": signature})

    def _whole(self, block: Json) -> Iterator[Json]:
        kind = block["type"]
        fields = _FILLED.get(kind, {})
        yield from self._start({**block, "input": {}} if kind == "tool_use" else {**block, **dict.fromkeys(fields, "")})
        if kind == "tool_use":
            yield self._delta({"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()})
        for name, delta in fields.items():
            if block[name]:
                yield self._delta({"type": delta, name: block[name]})
        yield from self._stop()

    def _start(self, block: Json) -> Iterator[Json]:
        yield from self._stop()
        self._index += 1
        self._open = ()
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _stop(self) -> Iterator[Json]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}

    def _end(self, event: Json) -> Iterator[Json]:
        yield from self._stop()
        message = message_from_response(event["response"], self._request)
        stop = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
        yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
        yield {"type": "message_stop"}
