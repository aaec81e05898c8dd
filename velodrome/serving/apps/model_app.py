"""The routes of a model, or of an agent served as one: the endpoints of OpenAI and Anthropic, and the models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome.contracts import Json, Model
from velodrome.errors import ModelError, blame
from velodrome.records.response_fields import complete
from velodrome.records.task import request_flaw
from velodrome.responses_api_models.conversion import chat_from_response, responses_request
from velodrome.serving import wire
from velodrome.serving.apps.routes import BadRequest, get, json_response, post, read_json
from velodrome.serving.apps.streams import chat_stream, streamed_response, until_disconnect
from velodrome.serving.apps.web_app import timed
from velodrome.wings import wing


async def check_request(request: Json) -> None:
    """Raise a `BadRequest` if a model cannot answer this request."""
    prompt = request.get("input")
    if not isinstance(prompt, str) and not is_objects(prompt):
        raise BadRequest(400, '"input" must be a text or a list of objects', param="input")
    if not prompt and not request.get("instructions"):
        raise BadRequest(400, '"input" is empty', param="input")
    check_flaw(request)


def check_flaw(request: Json, conversation: str = "input") -> None:
    flaw = request_flaw(request, conversation)
    if flaw is not None:
        raise BadRequest(400, str(flaw), param=flaw.param)


@dataclass(frozen=True)
class ServedModel:
    """The model behind the routes of a server, in any dialect.

    `shown` selects the part of an answer for chat and messages. `check` raises for a request that cannot be used.
    """

    server: str
    model: Model
    check: Callable[[Json], Awaitable[None]] = check_request
    shown: Callable[[Json], Json] = lambda response: response

    async def usable(self, request: Json) -> Json:
        """The checked request. The name of the server, or no name, means the model of the config."""
        await self.check(request)
        if request.get("model") in (None, "", self.server):
            request.pop("model", None)
        return request

    def _complete(self, answer: Any, request: Json) -> Json:
        if not isinstance(answer, dict) or not isinstance(answer.get("output"), list):
            raise ModelError('response: no "output" list')
        return complete(answer, {"model": self.server, **request})

    async def respond(self, request: Request) -> Response:
        body = await read_json(request)
        wants_stream = pop_stream(body)
        _stream_options(body)
        _check_unsupported(body)
        await self.usable(body)
        if wants_stream:
            return await streamed_response(request, self.model, body, self.server)
        response = await self.answer(request, body)
        with blame(ModelError, "model"):
            return json_response(response)

    async def answer(self, request: Request, body: Json) -> Json:
        """The model's whole answer to a Responses request."""
        with blame(ModelError, "model"):
            return self._complete(await until_disconnect(request, self.model.respond(body)), body)

    async def messages(self, request: Request) -> Response:
        """Anthropic's dialect."""
        answer: Response = await wing("connect.messages_route").answer(self, request)
        return answer

    async def chat(self, request: Request) -> Response:
        body = await read_json(request)
        if not body.get("messages") or not is_objects(body["messages"]):
            raise BadRequest(400, '"messages" must be a list of objects that is not empty', param="messages")
        _check_chat(body)
        wants_stream = pop_stream(body)
        with_usage = bool(_stream_options(body).get("include_usage"))
        try:
            converted = await self.usable(responses_request(body))
        except ModelError as error:
            raise BadRequest(400, str(error)) from error
        response = self.shown(await self.answer(request, converted))
        with blame(ModelError, "model"):
            completion = chat_from_response(response)
            return chat_stream(completion, with_usage=with_usage) if wants_stream else json_response(completion)


def model_routes(served: ServedModel) -> list[Route]:
    """The routes of every dialect."""
    respond = timed(served.server, served.respond)
    return [
        *_list_routes(served.server),
        post("/v1/responses", respond),
        post("/v1/chat/completions", served.chat),
        post(wire.MESSAGES, served.messages),
    ]


def _list_routes(server: str) -> list[Route]:
    now = datetime.now(UTC).replace(microsecond=0)
    listed = {
        "id": server,
        "object": "model",
        "created": int(now.timestamp()),
        "owned_by": "velodrome",  # OpenAI's fields
        "type": "model",
        "created_at": now.isoformat(),
        "display_name": server,
        "lifecycle": "active",  # Anthropic's
    }
    page = {"first_id": server, "last_id": server, "has_more": False}

    async def models(request: Request) -> Response:
        return json_response({"object": "list", "data": [listed], **page})

    async def model(request: Request) -> Response:
        name = request.path_params["model"]
        if name != server:
            message = f"the model {name!r:.100} does not exist; there is {server!r}"
            raise BadRequest(404, message, param="model", code="model_not_found")
        return json_response(listed)

    return [
        get("/v1/models", models),
        get("/v1/models/{model:path}", model),
    ]


def is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _check_chat(body: Json) -> None:
    shape = body.get("response_format")
    if shape is not None and not isinstance(shape, dict):
        raise BadRequest(400, '"response_format" must be an object', param="response_format")
    if body.pop("n", None) not in (None, 1):
        raise BadRequest(400, '"n" must be 1: a request has one answer, so send several', param="n")
    check_flaw(body, "messages")
    for index, message in enumerate(body["messages"]):
        if message.get("role") == "tool" and not isinstance(message.get("tool_call_id"), str):
            param = f"messages[{index}].tool_call_id"
            raise BadRequest(400, f'"{param}" must be the id of the call that this answers', param=param)


def _check_unsupported(body: Json) -> None:
    """Refuse fields of a Responses request that are not supported."""
    if body.get("n") not in (None, 1):
        raise BadRequest(400, '"n" must be 1: a request has one answer, so send several', param="n")
    if body.get("background"):
        raise BadRequest(400, '"background" is not possible: responses are not stored', param="background")


def pop_stream(body: Json) -> bool:
    """Remove the field `stream`. Returns whether the answer should be streamed."""
    wants = body.pop("stream", None)
    if not isinstance(wants, bool | None):
        raise BadRequest(400, f'"stream" must be true or false, not {wants!r:.40}', param="stream")
    return bool(wants)


def _stream_options(body: Json) -> Json:
    options = body.pop("stream_options", None) or {}
    if not isinstance(options, dict):
        raise BadRequest(400, '"stream_options" must be an object', param="stream_options")
    return options
