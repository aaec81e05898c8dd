"""`POST /v1/messages`: Anthropic's dialect, whole or as the events of its streams, made from the finished message."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome.connect.anthropic_messages import message_from_response, request_from_messages
from velodrome.contracts import Json
from velodrome.errors import ModelError, blame
from velodrome.serving.apps.model_app import ServedModel, takes_stream
from velodrome.serving.apps.routes import EVENTS, BadRequest, json_response, read_json
from velodrome.serving.apps.streams import event_bytes

_FILLED = {"text": ("text",), "thinking": ("thinking", "signature")}  # the fields of a block that are sent as deltas


async def answer(served: ServedModel, request: Request) -> Response:
    """The answer of a model server, or of an agent served as a model."""
    body = await read_json(request)
    wants_stream = takes_stream(body)
    if body.get("thread"):  # by this code the client's tool runner knows that it has to send all messages itself
        message = "conversations are not kept here; send all messages, without thread"
        raise BadRequest(400, message, param="thread", code="thread_unsupported_request")
    try:
        converted = await served.usable(request_from_messages(body))
    except ModelError as error:
        raise BadRequest(400, str(error)) from error
    response = served.shown(await served.answer(request, converted))
    with blame(ModelError, "model"):
        made = message_from_response(response, converted, model=served.server)
        if not wants_stream:
            return json_response(made)
        return Response(b"".join(event_bytes(event, event["type"]) for event in events_of(made)), media_type=EVENTS)


def events_of(message: Json) -> Iterator[Json]:
    """The events of a streamed message, one block after the other."""
    stop = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_start", "message": {**message, "content": [], **dict.fromkeys(stop)}}
    for index, block in enumerate(message["content"]):
        fields = _FILLED.get(block["type"], ())
        deltas = [{"type": f"{name}_delta", name: block[name]} for name in fields if block[name]]
        begun = {**block, **dict.fromkeys(fields, "")}
        if block["type"] == "tool_use":
            begun["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
    yield {"type": "message_stop"}
