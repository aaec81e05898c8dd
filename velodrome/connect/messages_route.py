"""`POST /v1/messages`: Anthropic's dialect, whole or as the events of its streams, made from the finished message."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome.connect.anthropic_messages import message_from_response, request_from_messages
from velodrome.contracts import Json
from velodrome.errors import ModelError, blame
from velodrome.serving.apps.model_app import ServedModel, pop_stream
from velodrome.serving.apps.routes import EVENTS, BadRequest, json_response, read_json
from velodrome.serving.apps.streams import event_bytes

_FILLED = {"text": ("text",), "thinking": ("thinking", "signature")}  # the fields of a block that are sent as deltas


async def answer(served: ServedModel, request: Request) -> Response:
    """Answer for a model server, or for an agent served as a model."""
    body = await read_json(request)
    wants_stream = pop_stream(body)
    if body.get("thread"):  # this code makes the client's tool runner send all messages itself
        problem = "conversations are not kept here; send all messages, without thread"
        raise BadRequest(400, problem, param="thread", code="thread_unsupported_request")
    try:
        converted = await served.usable(request_from_messages(body))
    except ModelError as error:
        raise BadRequest(400, str(error)) from error
    response = served.shown(await served.answer(request, converted))
    with blame(ModelError, "model"):
        message = message_from_response(response, converted, model=served.server)
        if not wants_stream:
            return json_response(message)
        return Response(b"".join(event_bytes(event, event["type"]) for event in events_of(message)), media_type=EVENTS)


def events_of(message: Json) -> Iterator[Json]:
    """The events of a streamed message, block by block."""
    stop = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_start", "message": {**message, "content": [], **dict.fromkeys(stop)}}
    for index, block in enumerate(message["content"]):
        fields = _FILLED.get(block["type"], ())
        deltas = [{"type": f"{name}_delta", name: block[name]} for name in fields if block[name]]
        start = {**block, **dict.fromkeys(fields, "")}
        if block["type"] == "tool_use":
            start["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
    yield {"type": "message_stop"}
