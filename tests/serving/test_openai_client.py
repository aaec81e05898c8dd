"""The real `openai` client against a model server and an agent server, used as somebody who knows only OpenAI would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import hosted as hosting
import openai
import pytest
from patience import DEADLINE_S

from velodrome import Environment
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.apps.routes import RequestLimits

MODEL, AGENT = "responses_api_models", "responses_api_agents"
CALLS = [
    {"name": "calculator", "arguments": {"expression": "240 * 0.15"}},
    {"name": "calculator", "arguments": {"expression": "2 + 2"}},
]
SCRIPT = [{"reasoning_content": "Two sums.", "tool_calls": CALLS}, "It is {tool_result}."]
TOOL: Any = {
    "type": "function",
    "name": "calculator",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    "strict": False,
}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "calculator", "parameters": TOOL["parameters"]}}
ASKED: Any = [{"role": "user", "content": "15% of 240, and 2 + 2?"}]


def model(*answers: Any, **more: Any) -> Callable[[], ScriptedModel]:
    return lambda: ScriptedModel(answers=list(answers), **more)


def agent(*answers: Any, resources: type[Environment] = Calculator, **more: Any) -> Callable[[], SimpleAgent]:
    def make() -> SimpleAgent:
        links = {"model": ScriptedModel(answers=list(answers), **more), "environment": resources()}
        return SimpleAgent(**links)

    return make


def client(url: str, key: str = "none", **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, timeout=DEADLINE_S, **{"max_retries": 0, **more})


@pytest.fixture(scope="module")
def served() -> Iterator[openai.OpenAI]:
    with hosting.hosted(MODEL, model(*SCRIPT)) as url, client(url) as asker:
        yield asker


@pytest.fixture(scope="module")
def agent_served() -> Iterator[openai.OpenAI]:
    with hosting.hosted(AGENT, agent(*SCRIPT)) as url, client(url) as asker:
        yield asker


# A model server


def test_a_conversation_with_parallel_calls_by_responses(served: openai.OpenAI) -> None:
    first = served.responses.create(model="m", input=ASKED, tools=[TOOL], parallel_tool_calls=True)
    reasoning, *calls = first.output
    assert (reasoning.type, first.status) == ("reasoning", "completed")
    assert [(call.type, json.loads(call.arguments)) for call in calls if call.type == "function_call"] == [
        ("function_call", {"expression": "240 * 0.15"}),
        ("function_call", {"expression": "2 + 2"}),
    ]
    results: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": result}
        for call, result in zip(calls, ("36.0", "4"), strict=True)
        if call.type == "function_call"
    ]
    second = served.responses.create(model="m", input=[*ASKED, *first.output, *results], tools=[TOOL])
    assert second.output_text == "It is 4."
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.input_tokens + second.usage.output_tokens
    assert second.usage.output_tokens == 3


def test_the_same_conversation_by_chat_completions(served: openai.OpenAI) -> None:
    first = served.chat.completions.create(model="m", messages=ASKED, tools=[CHAT_TOOL])
    message = first.choices[0].message
    calls = [call for call in message.tool_calls or () if call.type == "function"]
    assert (first.object, first.choices[0].finish_reason, message.content) == ("chat.completion", "tool_calls", None)
    assert message.model_extra == {"reasoning_content": "Two sums."}
    assert [json.loads(call.function.arguments) for call in calls] == [call["arguments"] for call in CALLS]
    assert len({call.id for call in calls}) == 2
    results: Any = [
        {"role": "tool", "tool_call_id": call.id, "content": result}
        for call, result in zip(calls, ("36.0", "4"), strict=True)
    ]
    second = served.chat.completions.create(model="m", messages=[*ASKED, message, *results], tools=[CHAT_TOOL])
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("It is 4.", "stop")
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.completion_tokens


def test_the_model_is_listed(served: openai.OpenAI) -> None:
    assert [each.id for each in served.models.list()] == ["hosted"]


ERRORS = {400: openai.BadRequestError, 429: openai.RateLimitError, 503: openai.InternalServerError}


@pytest.mark.parametrize("status", ERRORS)
def test_a_models_error_is_the_clients_error_of_that_status_on_every_way(status: int) -> None:
    with hosting.hosted(MODEL, model("x", faults=[{"kind": "status", "status": status}])) as url, client(url) as asker:
        ways: list[Callable[[], Any]] = [
            lambda: asker.responses.create(model="m", input="?"),
            lambda: asker.responses.create(model="m", input="?", stream=True),
            lambda: asker.chat.completions.create(model="m", messages=ASKED),
            lambda: asker.chat.completions.create(model="m", messages=ASKED, stream=True),
        ]
        for way in ways:
            with pytest.raises(ERRORS[status]) as caught:
                way()
            assert type(caught.value) is ERRORS[status]
            assert caught.value.status_code == status
            assert caught.value.body == {
                "message": f"scripted fault: status {status}",
                "type": "ModelError",
                "boundary": "model",
                "code": status,
            }


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_callers_mistake_is_a_bad_request_that_says_what_is_wrong(served: openai.OpenAI, stream: bool) -> None:
    def refused(call: Callable[[], Any]) -> str:
        with pytest.raises(openai.BadRequestError) as caught:
            call()
        return str(caught.value.body["message"])  # type: ignore[index]

    responses: Any = served.responses.create
    chat: Any = served.chat.completions.create
    problems = [
        refused(lambda: responses(model="m", input=7, stream=stream)),
        refused(lambda: responses(model="m", input=["a text"], stream=stream)),
        refused(lambda: chat(model="m", messages="?", stream=stream)),
        refused(lambda: chat(model="m", messages=["?"], stream=stream)),
        refused(lambda: chat(model="m", messages=ASKED, stream=stream, stream_options=[1])),
        refused(lambda: chat(model="m", messages=[{"role": "assistant", "tool_calls": [{}]}], stream=stream)),
        refused(lambda: chat(model="m", messages=ASKED, tools=[5], stream=stream)),
        refused(lambda: chat(model="m", messages=ASKED, tool_choice=5, stream=stream)),
        refused(lambda: chat(model="m", messages=ASKED, response_format="json", stream=stream)),
    ]
    fields = ['"input"', '"input"', '"messages"', '"messages"', '"stream_options"', "tool_calls[0]"]
    fields += ['"tools"', '"tool_choice"', '"response_format"']
    assert [name in problem for name, problem in zip(fields, problems, strict=True)] == [True] * 9


def test_the_clients_key_is_the_servers_token() -> None:
    with hosting.hosted(MODEL, model("Hello."), limits=RequestLimits(token="right")) as url:
        with client(url, "right") as asker:
            assert asker.responses.create(model="m", input="?").output_text == "Hello."
        with client(url, "wrong") as asker, pytest.raises(openai.AuthenticationError, match="server_token"):
            asker.responses.create(model="m", input="?", stream=True)


# An agent server


def test_an_agent_runs_its_tools_and_answers(agent_served: openai.OpenAI) -> None:
    response = agent_served.responses.create(model="any", input=ASKED)
    kinds = [item.type for item in response.output]
    assert kinds == ["reasoning", *["function_call"] * 2, *["function_call_output"] * 2, "message"]
    outputs = [item.to_dict()["output"] for item in response.output if item.to_dict()["type"] == "function_call_output"]
    assert (outputs, response.output_text) == (["36.0", "4"], "It is 4.")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_what_an_agent_does_not_do_is_refused_in_words(agent_served: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no such route"):
        agent_served.embeddings.create(model="any", input="x")
    with pytest.raises(openai.UnprocessableEntityError):
        agent_served.responses.create(model="any", input=[])
    with pytest.raises(openai.BadRequestError, match='"input" must') as caught:
        agent_served.responses.create(model="any", input=7)  # type: ignore[arg-type]
    assert "responses_create_params" not in str(caught.value)


def test_the_error_of_an_agents_model_keeps_its_status_and_its_boundary() -> None:
    with hosting.hosted(AGENT, agent("x", faults=[{"kind": "status", "status": 429}])) as url, client(url) as asker:
        with pytest.raises(openai.RateLimitError) as caught:
            asker.responses.create(model="any", input="?")
        assert isinstance(caught.value.body, dict)
        assert (caught.value.body["boundary"], caught.value.body["partial"]) == ("model", [])
