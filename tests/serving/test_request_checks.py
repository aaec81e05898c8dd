"""A body that cannot be used is refused before anything is asked: 400 with the field to blame, on models and agents."""

from __future__ import annotations

from typing import Any

import hosted as hosting
import httpx2
import pytest

from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]
USER = {"role": "user", "content": "?"}


def said(**item: Any) -> Json:
    return {"input": [USER, item]}


def function(**fields: Any) -> Json:
    return {"input": "?", "tools": [{"type": "function", **fields}]}


def nested(levels: int) -> Json:
    schema: Json = {"type": "object"}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def with_schema(levels: int) -> list[tuple[str, Json]]:
    """A request with a tool whose schema has so many levels, in each dialect."""
    schema, name = nested(levels), "calculator"
    chat = {"type": "function", "function": {"name": name, "parameters": schema}}
    return [
        ("/v1/responses", function(name=name, parameters=schema)),
        ("/v1/chat/completions", {"messages": [USER], "tools": [chat]}),
        ("/v1/messages", {"messages": [USER], "max_tokens": 9, "tools": [{"name": name, "input_schema": schema}]}),
    ]


RESPONSES: list[tuple[Json, str]] = [
    ({}, "input"),
    ({"input": 7}, "input"),
    ({"input": "?", "tools": "y"}, "tools"),
    ({"input": "?", "tools": [{"name": "f"}]}, "tools[0].type"),
    (function(), "tools[0].name"),
    (function(name=""), "tools[0].name"),
    (function(name="f", parameters="nope"), "tools[0].parameters"),
    (said(role="alien", content="?"), "input[1].role"),
    (said(role="user", content=5), "input[1].content"),
    (said(role="user"), "input[1]"),
    (said(role="user", content=[{"type": "input_image"}]), "input[1].content[0]"),
    ({"input": "?", "temperature": "hot"}, "temperature"),
    ({"input": "?", "temperature": True}, "temperature"),
    ({"input": "?", "max_output_tokens": -5}, "max_output_tokens"),
    ({"input": "?", "max_output_tokens": 1.5}, "max_output_tokens"),
    ({"input": "?", "metadata": "x"}, "metadata"),
    ({"input": "?", "include": "x"}, "include"),
    ({"input": "?", "include": [5]}, "include"),
    ({"input": "?", "stream": "yes"}, "stream"),
    ({"input": "?", "model": 5}, "model"),
    ({"input": "?", "n": 3}, "n"),
    ({"input": "?", "background": True}, "background"),
]
CHAT: list[tuple[Json, str]] = [
    ({"messages": [USER], "max_tokens": -5}, "max_tokens"),
    ({"messages": [USER], "max_completion_tokens": "many"}, "max_completion_tokens"),
    ({"messages": [USER], "top_p": "x"}, "top_p"),
    ({"messages": [USER], "stream": "yes"}, "stream"),
    ({"messages": [USER], "model": 5}, "model"),
    ({"messages": [USER], "tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"messages": [USER], "tools": [{"type": "function", "function": 5}]}, "tools[0].function"),
    ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [USER], "include": [["x"]]}, "include"),
]
MESSAGES: list[tuple[Json, str]] = [
    ({"messages": [USER], "max_tokens": 9, "include": {"x": 1}}, "include"),
    ({"messages": [USER], "max_tokens": 9, "include": [None]}, "include"),
]
KINDS = {
    "responses_api_models": lambda: ScriptedModel(answers=["Hello."]),
    "responses_api_agents": lambda: SimpleAgent(model=ScriptedModel(answers=["Hello."]), environment=Calculator()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_cannot_be_used_is_a_bad_request_that_names_the_field(kind: str) -> None:
    bodies = [("/v1/responses", *each) for each in RESPONSES] + [("/v1/chat/completions", *each) for each in CHAT]
    bodies += [("/v1/messages", *each) for each in MESSAGES]
    bodies += [(*each, "tools") for levels in (248, 900) for each in with_schema(levels)]
    with hosting.hosted(kind, KINDS[kind]) as url, httpx2.Client() as asker:
        for path, body, param in bodies:
            reply = asker.post(url + path, json=body)
            error = reply.json().get("error", {})
            assert (reply.status_code, error.get("param"), "boundary" in error) == (400, param, False), (path, body)
            assert error["message"].startswith(f'"{param}" '), error["message"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_as_deep_as_a_task_may_be_is_taken(kind: str, stream: bool) -> None:
    with hosting.hosted(kind, KINDS[kind]) as url, httpx2.Client() as asker:
        replies = [asker.post(url + path, json={**body, "stream": stream}) for path, body in with_schema(246)]
    assert [(reply.status_code, "Recursion" in reply.text) for reply in replies] == [(200, False)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_here_passes(kind: str) -> None:
    bodies: list[Json] = [
        {"input": [USER], "top_k": "odd", "seed": None, "temperature": None, "tools": None, "max_output_tokens": 9.0},
        {"input": [USER, {"type": "new_kind_of_item", "content": 5}], "n": 1, "background": False, "stream": None},
        {"input": [{"role": "user", "content": [{"type": "new_part", "x": 5}]}], "conversation": None},
    ]
    with hosting.hosted(kind, KINDS[kind]) as url, httpx2.Client() as asker:
        assert [asker.post(f"{url}/v1/responses", json=body).status_code for body in bodies] == [200] * 3


def test_a_conversation_that_is_kept_elsewhere_is_not_left_out_in_silence() -> None:
    with hosting.hosted("responses_api_models", KINDS["responses_api_models"]) as url:
        replies = [
            httpx2.post(f"{url}/v1/responses", json={"input": "?", name: "id"})
            for name in ("conversation", "previous_response_id")
        ]
    assert [(reply.status_code, "not stored" in reply.text) for reply in replies] == [(400, True)] * 2
