"""A body that cannot be used is refused before anything is asked: 400 with the field to blame, on models and agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support import hosted as hosting
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
    (function(name="f", parameters="nope"), "tools[0].parameters"),
    (said(role="alien", content="?"), "input[1].role"),
    (said(role="user"), "input[1]"),
    (said(role="user", content=[{"type": "input_image"}]), "input[1].content[0]"),
    ({"input": "?", "temperature": True}, "temperature"),
    ({"input": "?", "max_output_tokens": 1.5}, "max_output_tokens"),
    ({"input": "?", "metadata": "x"}, "metadata"),
    ({"input": "?", "include": [5]}, "include"),
    ({"input": "?", "stream": "yes"}, "stream"),
    ({"input": "?", "model": 5}, "model"),
    ({"input": "?", "n": 3}, "n"),
    ({"input": "?", "background": True}, "background"),
]
CHAT: list[tuple[Json, str]] = [
    *(({"messages": [USER], "n": n}, "n") for n in (0, 2, 1.5, "1")),
    ({"messages": [USER], "max_tokens": -5}, "max_tokens"),
    ({"messages": [USER], "max_completion_tokens": "many"}, "max_completion_tokens"),
    ({"messages": [USER], "top_p": "x"}, "top_p"),
    ({"messages": [USER], "tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [USER], "include": [["x"]]}, "include"),
    ({"messages": ["?"]}, "messages"),
    ({"messages": [USER], "stream_options": [1]}, "stream_options"),
    ({"messages": [USER], "tools": [5]}, "tools"),
    ({"messages": [USER], "tool_choice": 5}, "tool_choice"),
    ({"messages": [USER], "response_format": "json"}, "response_format"),
]
MESSAGES: list[tuple[Json, str]] = [({"messages": [USER], "max_tokens": 9, "include": [None]}, "include")]
KINDS = {
    "responses_api_models": lambda: ScriptedModel(answers=["Hello."]),
    "responses_api_agents": lambda: SimpleAgent(model=ScriptedModel(answers=["Hello."]), environment=Calculator()),
}


NOT_KNOWN: list[Json] = [
    {"input": [USER], "top_k": "odd", "seed": None, "temperature": None, "tools": None, "max_output_tokens": 9.0},
    {"input": [USER, {"type": "new_kind_of_item", "content": 5}], "n": 1, "background": False, "stream": None},
    {"input": [{"role": "user", "content": [{"type": "new_part", "x": 5}]}], "conversation": None},
]


@pytest.fixture(params=KINDS, scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with hosting.hosted(request.param, KINDS[request.param]) as result:
        yield result


def test_a_body_that_cannot_be_used_is_a_bad_request_that_names_the_field(url: str) -> None:
    bodies = [("/v1/responses", *each) for each in RESPONSES] + [("/v1/chat/completions", *each) for each in CHAT]
    bodies += [("/v1/messages", *each) for each in MESSAGES]
    bodies += [(*each, "tools") for levels in (248, 900) for each in with_schema(levels)]
    with httpx2.Client(base_url=url) as asker:
        for path, body, param in bodies:
            reply = asker.post(path, json=body)
            error = reply.json().get("error", {})
            assert (reply.status_code, error.get("param"), "boundary" in error) == (400, param, False), (path, body)
            assert error["message"].startswith(f'"{param}" '), error["message"]


def test_what_is_not_known_here_and_a_schema_as_deep_as_a_task_may_be_pass(url: str) -> None:
    bodies = [("/v1/responses", body) for body in NOT_KNOWN]
    bodies += [(path, {**body, "stream": stream}) for stream in (False, True) for path, body in with_schema(246)]
    with httpx2.Client(base_url=url) as asker:
        replies = [asker.post(path, json=body) for path, body in bodies]
    assert [(reply.status_code, "Recursion" in reply.text) for reply in replies] == [(200, False)] * len(bodies)
