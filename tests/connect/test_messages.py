"""`/v1/messages`: events that add up to the message, one block at a time, and errors in Anthropic's shape."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import hosted as hosting
from velodrome.connect.anthropic_messages import message_from_response
from velodrome.connect.messages_route import events_of
from velodrome.responses_api_models.conversion import response_from_chat
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.apps.web_app import Status
from velodrome.serving.hosting import server_app

Json = dict[str, Any]
BODY = {"max_tokens": 9, "messages": [{"role": "user", "content": "Go."}]}


class Whole:
    """Answers with one Response."""

    def __init__(self, response: Json) -> None:
        self._response = response

    async def respond(self, request: Json) -> Json:
        return self._response

    async def aclose(self) -> None: ...


def added(events: list[Json]) -> Json:
    """The message that the events are the pieces of; each block ends before the next begins."""
    kinds = [event["type"] for event in events]
    assert [kind for kind in kinds if kind.startswith("message")] == [kinds[0], *kinds[-2:]]
    assert kinds[:1] + kinds[-2:] == ["message_start", "message_delta", "message_stop"]
    message: Json = {**events[0]["message"], "content": []}
    assert (message["stop_reason"], events[0]["message"]["content"]) == (None, [])
    inside = False
    for event in events[1:-2]:
        kind = event["type"].removeprefix("content_block_")
        assert inside == (kind != "start")
        inside = kind != "stop"
        if kind == "start":
            assert event["index"] == len(message["content"])
            message["content"].append({**event["content_block"], "input": ""})
        assert event["index"] == len(message["content"]) - 1
        if kind == "delta":
            block, delta = message["content"][-1], dict(event["delta"])
            kind = delta.pop("type")
            name = {"input_json_delta": "input"}.get(kind, kind.removesuffix("_delta"))
            (piece,) = delta.values()
            assert piece
            block[name] += piece
    assert not inside
    for block in message["content"]:
        text = block.pop("input")
        if block["type"] == "tool_use":
            block["input"] = orjson.loads(text)
    return {**message, **events[-2]["delta"], "usage": events[-2]["usage"]}


def message(content: list[Json]) -> Json:
    return {"type": "message", "role": "assistant", "content": content}


def reasoning(content: Sequence[str], summary: Sequence[str], hidden: str | None) -> Json:
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "content": [{"type": "reasoning_text", "text": text} for text in content],
        "encrypted_content": hidden,
    }


texts = st.text(max_size=9)
names = st.text(st.characters(categories=["L"]), min_size=1, max_size=9)


items = st.one_of(
    st.builds(
        lambda texts, refused: message([*({"type": "output_text", "text": text} for text in texts), *refused]),
        st.lists(texts, max_size=3),
        st.lists(texts.map(lambda text: {"type": "refusal", "refusal": text}), max_size=1),
    ),
    st.builds(reasoning, st.lists(names, max_size=2), st.lists(names, max_size=3), st.none() | names),
    st.builds(
        lambda i, name, arguments: {"type": "function_call", "call_id": i, "name": name, "arguments": arguments},
        names,
        names,
        texts | st.just('{"a": 1}'),
    ),
    st.just({"type": "web_search_call", "status": "completed"}),
)


@settings(max_examples=50)
@given(st.lists(items, max_size=5))
def test_events_add_up_to_the_message(output: list[Json]) -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}
    response = {"id": "resp_1", "model": "m", "status": "completed", "output": output, "usage": usage}
    message = message_from_response(response)
    assert added(list(events_of(message))) == message


@pytest.mark.parametrize("met", ["END", 2, None])
def test_a_stop_sequence_that_the_models_server_tells_of_is_told(met: Any) -> None:
    """As vLLM has it: a text, the id of a token, or nothing."""
    choice = {"message": {"content": "Hi. "}, "finish_reason": "stop", "stop_reason": met}
    message = message_from_response(response_from_chat({"choices": [choice]}, {"metadata": {"user_id": "u"}}))
    expected = ("stop_sequence", "END") if met == "END" else ("end_turn", None)
    assert (message["stop_reason"], message["stop_sequence"]) == expected


def test_a_label_of_the_users_that_comes_back_is_not_a_stop_sequence() -> None:
    answer = {"output": [{"type": "message", "content": "Hi."}], "metadata": {"user_id": "u", "stop_sequence": "mine"}}
    for stream in (False, True):
        body = {**BODY, "metadata": answer["metadata"], "stream": stream}
        status, reply = asked(body, model=ScriptedModel(answers=[{"id": "r", **answer}]))
        assert (status, b'"stop_reason":"end_turn"' in reply) == (200, True)


# Errors


def asked(
    body: Any, *, path: str = "/v1/messages", model: Any = None, headers: Any = (), **limits: Any
) -> tuple[int, bytes]:
    async def run() -> tuple[int, bytes]:
        status = Status("model", "responses_api_models", "test")
        app = await server_app(status, model or ScriptedModel(answers=["Hi."]), RequestLimits(**limits))
        return await hosting.ask(app, "POST", path, body, headers)

    return asyncio.run(run())


def failing(status: int) -> ScriptedModel:
    return ScriptedModel(answers=["x"], faults=[{"kind": "status", "status": status}])


ERRORS: list[tuple[Json, int, str]] = [
    ({"body": {}}, 400, "invalid_request_error"),
    ({"body": BODY, "token": "t"}, 401, "authentication_error"),
    ({"body": BODY, "headers": [(b"origin", b"http://evil.example")]}, 403, "permission_error"),
    ({"body": BODY, "path": "/v1/messages/count_tokens"}, 404, "not_found_error"),
    ({"body": BODY, "max_body_bytes": 9}, 413, "invalid_request_error"),
    ({"body": BODY, "model": failing(429)}, 429, "rate_limit_error"),
    ({"body": BODY, "model": failing(503)}, 503, "api_error"),
    ({"body": BODY, "model": failing(529)}, 529, "overloaded_error"),
    ({"body": {**BODY, "stream": True}, "model": Whole({"output": 7})}, 502, "api_error"),
]


def test_an_error_has_its_status_and_anthropics_shape() -> None:
    for request, status, kind in ERRORS:
        answered, body = asked(**request)
        error = orjson.loads(body)
        assert (answered, error["type"], error["error"]["type"]) == (status, "error", kind)
        assert error["error"]["message"]
    status, body = asked({**BODY, "thread": {"type": "create"}})
    assert (status, orjson.loads(body)["error"]["details"]) == (400, {"error_code": "thread_unsupported_request"})
    status, body = asked({}, path="/v1/chat/completions")  # other routes keep their shape
    assert (status, list(orjson.loads(body))) == (400, ["error"])
    for header in ((b"x-api-key", b"t"), (b"authorization", b"Bearer t")):
        assert asked(BODY, headers=[header], token="t")[0] == 200
        assert asked(BODY, headers=[(header[0], header[1] + b"x")], token="t")[0] == 401
