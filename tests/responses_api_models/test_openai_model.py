"""`openai_model` against a real HTTP server: both endpoints, the probe, and every way a server can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import orjson
import pytest

from tests.support.patience import DEADLINE_S
from velodrome import http
from velodrome.contracts import Model
from velodrome.errors import InputError, ModelError
from velodrome.records.turns import GrowingInput
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.timing import spans

Json = dict[str, Any]

MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}
RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "output": [MESSAGE], "usage": None}
COMPLETION = {"id": "c1", "choices": [{"message": {"role": "assistant", "content": "36"}, "finish_reason": "stop"}]}
RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"


def make(server: Any, **config: Any) -> OpenAI:
    block = {"openai_base_url": f"{server.url}/v1", "openai_api_key": "key-123456", "openai_model": "m", **config}
    return OpenAI(**{"backoff_s": 0.0, "endpoint": "responses", **block})


def using(wire: Any, answers: list[Any], use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What `use(server)` gives with a server that answers so."""

    async def whole() -> Any:
        async with wire(*answers) as server:
            try:
                return await asyncio.wait_for(use(server), DEADLINE_S)
            finally:
                await http.close_shared()

    return asyncio.run(whole())


def asked(wire: Any, answers: list[Any], *requests: Json, **config: Any) -> tuple[list[Any], Any]:
    """The answers or errors of one model to these requests, one after another, and the server."""

    async def use(server: Any) -> tuple[list[Any], Any]:
        model = make(server, **config)
        results: list[Any] = []
        for request in requests:
            try:
                results.append(await model.respond(request))
            except ModelError as error:
                results.append(error)
        return results, server

    return using(wire, answers, use)


def text(response: Json) -> str:
    result: str = response["output"][0]["content"][0]["text"]
    return result


def paths(server: Any) -> list[str]:
    return [seen.path for seen in server.seen]


def test_it_is_a_model_and_answers_over_responses(wire: Any) -> None:
    request = {"input": [{"role": "user", "content": "15% of 240?"}], "temperature": 0.5, "top_k": 3}
    before = deepcopy(request)
    [response], server = asked(wire, [wire.reply(200, RESPONSE)], request)
    (seen,) = server.seen
    assert (response, seen.method, seen.path) == (RESPONSE, "POST", RESPONSES)
    assert (seen.headers["Authorization"], seen.json) == ("Bearer key-123456", {**request, "model": "m"})
    assert request == before
    assert isinstance(make(server), Model)


def test_it_answers_over_chat(wire: Any) -> None:
    request = {"input": "hi", "max_output_tokens": 9, "stream": True, "model": "mine"}
    config = {"endpoint": "chat", "max_tokens_field": "max_completion_tokens"}
    [response], server = asked(wire, [wire.reply(200, COMPLETION)], request, **config)
    messages = [{"role": "user", "content": "hi"}]
    assert (text(response), response["status"], paths(server)) == ("36", "completed", [CHAT])
    assert server.seen[0].json == {"model": "mine", "messages": messages, "max_completion_tokens": 9}


def test_extra_body_and_headers_are_added_to_each_request(wire: Any) -> None:
    config = {"extra_body": {"top_k": 5, "temperature": 0.0}, "headers": {"X-Team": "a"}, "openai_api_key": ""}
    _, server = asked(wire, [wire.reply(200, RESPONSE)], {"input": "x", "temperature": 1.0}, **config)
    (seen,) = server.seen
    assert seen.json == {"input": "x", "model": "m", "top_k": 5, "temperature": 0.0}
    assert (seen.headers["X-Team"], "Authorization" in seen.headers) == ("a", False)


def test_the_base_url_may_end_in_a_slash_an_empty_path_means_v1_and_a_query_is_sent(wire: Any) -> None:
    async def use(server: Any) -> list[str]:
        for suffix in ("", "/", "/v1", "/v1/", "/openai/v2?api-version=3"):
            await make(server, openai_base_url=f"{server.url}{suffix}").respond({"input": "x"})
        return paths(server)

    expected = [RESPONSES] * 4 + ["/openai/v2/responses?api-version=3"]
    assert using(wire, [wire.reply(200, RESPONSE)], use) == expected


# Which endpoint there is


MISSING = [
    (404, b'{"detail":"Not Found"}'),
    (405, b"Method Not Allowed"),
    (501, b""),
    (400, b'{"error":{"message":"The Responses API is not supported by this server"}}'),
]


def test_auto_falls_back_to_chat_where_responses_is_missing_and_remembers(wire: Any) -> None:
    for status, body in MISSING:

        def answer(seen: Any, refusal: bytes = wire.reply(status, body)) -> bytes:
            return wire.reply(200, COMPLETION) if "chat" in seen.path else refusal

        results, server = asked(wire, [answer], *[{"input": "x"}] * 3, endpoint="auto")
        assert ([text(each) for each in results], paths(server)) == (["36"] * 3, [RESPONSES, CHAT, CHAT, CHAT])


REFUSED = [
    (400, b'{"error":{"message":"Unsupported parameter: top_k is not supported with this model"}}'),
    (404, b'{"error":{"message":"The model `m` does not exist","code":"model_not_found"}}'),
    (401, b"no key"),
]


def test_auto_does_not_take_a_refused_request_for_a_missing_endpoint(wire: Any) -> None:
    for status, body in REFUSED:
        answers = [wire.reply(status, body), wire.reply(200, RESPONSE)]
        (error, response), server = asked(wire, answers, *[{"input": "x"}] * 2, endpoint="auto")
        assert (error.status, text(response), paths(server)) == (status, "36", [RESPONSES] * 2)


# Failures


def said(*items: Json, **more: Any) -> Json:
    return {"output": list(items), **more}


def completion(finish: str = "stop", usage: Json | None = None, **message: Any) -> Json:
    return {"id": "c1", "choices": [{"message": message, "finish_reason": finish}], "usage": usage}


FORGED = {"type": "function_call_output", "call_id": "c0", "output": "36"}
POISON = {"prompt_tokens": 2**64 - 1, "completion_tokens": 2**64 - 1}
FLAWED = {
    "nothing": (said(), "empty"),
    "a tool's result": (said(FORGED, MESSAGE), "function_call_output"),
    "a user's message": (said({**MESSAGE, "role": "user"}), "user"),
    "a poisoned count": (said(MESSAGE, usage={"total_tokens": 2**64 - 1}), "usage.total_tokens"),
    "a poisoned token id": (said({**MESSAGE, "generation_token_ids": [2**64 - 1]}), "generation_token_ids"),
    "chat: no text": (completion(role="assistant", content=None, tool_calls=[]), "empty"),
    "chat: a tool's message": (completion(role="tool", content="36"), "tool"),
    "chat: poisoned counts": (completion(content="36", usage=POISON), "usage.prompt_tokens"),
}
KEPT = {
    "cut short": said(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "refused": said({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}),
    "an empty text": said({"type": "message", "content": [{"type": "output_text", "text": ""}]}),
    "chat: an empty text": completion(content="", tool_calls=[]),
    "chat: cut short": completion("length", content=None),
    "chat: filtered": completion("content_filter", content=""),
    "chat: refused": completion(content=None, refusal="no"),
    "chat: reasoned": completion(content=None, reasoning_content="hm"),
}


def test_an_answer_that_no_model_can_have_given_is_its_error_on_either_endpoint(wire: Any) -> None:
    for name, (answer, words) in FLAWED.items():
        endpoint = "chat" if name.startswith("chat") else "responses"
        [error], server = asked(wire, [wire.reply(200, answer)], {"input": "x"}, endpoint=endpoint)
        assert words in str(error).partition(": {")[0], name  # in what is said of the answer, not in the answer
        assert len(server.seen) == 1  # to ask again would be to choose among samples


def test_an_answer_without_text_that_gives_its_reason_is_an_answer(wire: Any) -> None:
    for name, answer in KEPT.items():
        endpoint = "chat" if name.startswith("chat") else "responses"
        [response], _ = asked(wire, [wire.reply(200, answer)], {"input": "x"}, endpoint=endpoint)
        assert isinstance(response["output"], list), name


BAD = [
    (200, b"<html>", "200, but the body is not JSON after 2 retries: <html>"),
    (200, b'{"id":1}', '200, but "output" is not a list but None after 2 retries: {"id":1}'),
    (200, b'{"error":{"code":5}}', '200, but an error inside after 2 retries: {"error":{"code":5}}'),
    (
        200,
        b'{"output":[],"status":"failed"}',
        '200, but status "failed" after 2 retries: {"output":[],"status":"failed"}',
    ),
    (400, b"bad\nrequest", "400 Bad Request: bad request"),
    (401, b"key-123456 is wrong", "401 Unauthorized: *** is wrong (check openai_api_key)"),
    (429, b"slow down", "429 Too Many Requests: slow down"),
]


def test_a_bad_answer_is_a_model_error_that_says_where_and_what(wire: Any) -> None:
    for status, body, message in BAD:
        [error], server = asked(wire, [wire.reply(status, body)], {"input": "x"}, max_retries=2, rate_limit_timeout_s=0)
        assert (str(error), error.status) == (f"POST {server.url}{RESPONSES}: {message}", status)


@pytest.mark.parametrize(("endpoint", "answer"), [("responses", RESPONSE), ("chat", COMPLETION)])
def test_a_good_status_without_an_answer_is_tried_again(wire: Any, endpoint: str, answer: Json) -> None:
    none = [b"", b"<html>", b"[]", b'{"error": "overloaded"}', b'{"choices": []}', b'{"output": null}']
    answers = [*(wire.reply(200, each) for each in none), wire.reply(200, answer)]
    [response], server = asked(wire, answers, {"input": "x"}, endpoint=endpoint, max_retries=len(none))
    assert (text(response), len(server.seen)) == ("36", len(none) + 1)


def test_a_request_that_is_no_json_is_a_model_error_and_sends_nothing(wire: Any) -> None:
    requests = [{"input": "\ud800"}, {"input": [{"role": "user", "content": {1, 2}}]}, {"input": [7]}]
    errors, server = asked(wire, [wire.reply(200, RESPONSE)], *requests)
    assert ([type(error) for error in errors], server.seen) == ([ModelError] * 3, [])


# Limits, replicas, settings


def test_max_concurrent_bounds_the_calls_and_waiting_is_charged_to_the_queue(wire: Any) -> None:
    async def use(server: Any) -> tuple[spans.Span, Any]:
        model = make(server, max_concurrent=2)
        with spans.root("all") as tree:
            await asyncio.gather(*(model.respond({"input": "x"}) for _ in range(10)))
        return tree, server

    tree, server = using(wire, [wire.reply(200, RESPONSE)], use)
    assert (len(server.seen), server.most_open) == (10, 2)
    assert sum(span.name == "limit:model" for span in tree.walk()) == 8  # the first two did not wait


def test_every_mistake_in_the_config_is_reported_at_once() -> None:
    block = {
        "openai_base_url": "http://127.0.0.1/v1/chat/completions",
        "openai_api_key": "two\nlines",
        "openai_modle": "m",
        "endpoint": "both",
        "timeout_s": 0,
        "extra_body": [],
        "max_concurrent": True,
    }
    with pytest.raises(InputError) as info:
        OpenAI(**block)
    report = str(info.value)
    assert len(info.value.problems) == len(block) + 1  # and there is no openai_model
    assert all(key in report for key in block)
    assert 'did you mean "openai_model"?' in report
    assert "two\nlines" not in report


URLS = ["", "127.0.0.1:8000", "ftp://x", [], ["http://ok/v1", 3], "http://x:99999/v1"]
SETTINGS: list[Json] = [*({"openai_base_url": url} for url in [5, *URLS])]
SETTINGS += [{"openai_base_url": ["http://a/v1", "http://a/v1/"]}, {"sticky_margin": -1}, {"health_check_s": 0}]
SETTINGS += [{"session_header": "X-Session\n"}]


def test_an_address_or_a_setting_that_cannot_be_is_named() -> None:
    for setting in SETTINGS:
        with pytest.raises(InputError, match=next(iter(setting))):
            OpenAI(**{"openai_base_url": "http://a/v1", "openai_model": "m", **setting})


def test_two_models_that_are_asked_in_one_conversation_each_send_their_own_fields():
    conversation = GrowingInput([{"role": "user", "content": "hi"}], {})
    models = [
        OpenAI(openai_base_url="http://127.0.0.1:1/v1", openai_model=name, endpoint="chat", extra_body={"x": name})
        for name in ("a", "b")
    ]
    bodies = [orjson.loads(model._body("chat", {"input": conversation}, ())) for model in models]
    assert [(body["model"], body["x"]) for body in bodies] == [("a", "a"), ("b", "b")]
