"""OpenAI's own types take every Response that is made here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.responses import Response

from velodrome.contracts import as_agent, as_model
from velodrome.records.response_fields import complete
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.conversion import response_from_chat
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]

PROMPT = {"input": "15% of 240?", "tools": [{"type": "function", "name": "calculator"}], "tool_choice": "required"}
TASK = {"responses_create_params": PROMPT, "expected_answer": "36"}
CALLS = {
    "reasoning_content": "Two at once.",
    "content": "One moment.",
    "tool_calls": [{"name": "calculator", "arguments": {"expression": text}} for text in ("240 * 0.15", "1 / 0")],
}
BARE: list[Json] = [
    {"type": "reasoning", "summary": "Hm."},
    {"type": "function_call", "id": "c1", "name": "f", "arguments": {"x": 1}},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {"role": "assistant", "content": "36"},
    {
        "type": "message",
        "content": [{"type": "output_text", "text": "36", "logprobs": [{"token": "36", "logprob": 0}]}],
    },
]
CHAT = {
    "choices": [{"message": {"content": "36"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}


class Bare:
    """A model of somebody else, which says as little as it can."""

    async def respond(self, request: Json) -> Json:
        return {"output": [item for item in BARE if item.get("type") != "function_call_output"][-2:]}

    async def aclose(self) -> None: ...


def agent(model: Any, **settings: Any) -> SimpleAgent:
    return SimpleAgent(model=model, environment=Calculator(), **settings)


def run(thing: Any) -> Json:
    result: Json = asyncio.run(as_agent(thing).run(TASK))["response"]
    return result


async def function_agent(task: Json) -> Json:
    return {"reward": 1.0, "output": BARE}


MADE: dict[str, Callable[[], Json]] = {
    "agent": lambda: run(agent(ScriptedModel(answers=[CALLS, "It is {tool_result}"]))),
    "stopped agent": lambda: run(agent(ScriptedModel(answers=[CALLS]), max_steps=2)),
    "agent on a bare model": lambda: run(agent(Bare())),
    "function": lambda: asyncio.run(as_model(lambda text: "36").respond(PROMPT)),
    "function agent": lambda: run(function_agent),
    "chat": lambda: response_from_chat(CHAT, {"input": "x"}),
    "bare items": lambda: complete({"output": BARE}),
    "a reason of its server": lambda: complete(
        {"output": [], "status": "incomplete", "incomplete_details": {"reason": "length"}}
    ),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_openais_types_take_what_is_made_here(make: Callable[[], Json]):
    response = make()
    parsed = Response.model_validate(response)
    ids = [item["id"] for item in response["output"]]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert parsed.created_at is not None


def test_what_a_response_has_is_kept_and_what_it_was_asked_is_echoed():
    item = {"type": "message", "id": "mine", "role": "assistant", "status": "incomplete", "content": []}
    response = complete({"id": "r", "created_at": 7.5, "model": "m", "output": [item], "own": 1}, PROMPT)
    assert (response["id"], response["created_at"], response["model"], response["own"]) == ("r", 7.5, "m", 1)
    assert response["output"] == [item]
    assert (response["tools"], response["tool_choice"]) == (PROMPT["tools"], "required")
    assert complete({"id": "r", "output": BARE})["output"][0]["id"] == "rs_r_0"
    for flawed in (5, {"type": 5}, {"content": 7}):
        assert len(complete({"output": [flawed]})["output"]) == 1  # a flaw is left for those who judge it


@pytest.mark.parametrize("metadata", [{"stop": "my own label", "own": "x"}, "a text"])
def test_a_reason_that_openai_does_not_have_is_the_stop_whatever_the_metadata_was(metadata: Any):
    response = {"output": [], "status": "incomplete", "incomplete_details": {"reason": "abort"}, "metadata": metadata}
    kept = {"own": "x"} if isinstance(metadata, dict) else {}
    assert complete(response)["metadata"] == {**kept, "stop": "abort"}
    assert complete(response)["incomplete_details"] is None
