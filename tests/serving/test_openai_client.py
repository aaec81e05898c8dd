"""The real `openai` client against model and agent servers: conversations, choices, and which model a name means."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support import hosted as hosting
from tests.support.streams import client, scripted
from velodrome.errors import InputError, ModelError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.apps.routes import RequestLimits

Json = dict[str, Any]
MODEL, AGENT = "responses_api_models", "responses_api_agents"
MESSAGES: Any = [{"role": "user", "content": "Go."}]
SUMS = ["240 * 0.15", "2 + 2"]
CALLS = [{"name": "calculator", "arguments": {"expression": each}} for each in SUMS]
SCRIPT = [{"reasoning_content": "Two sums.", "tool_calls": CALLS}, "It is {tool_result}."]
TOOL: Any = {"type": "function", "name": "calculator", "parameters": {"type": "object"}, "strict": False}


def test_a_conversation_with_parallel_calls() -> None:
    with hosting.hosted(MODEL, scripted(*SCRIPT)) as url, client(url) as asker:
        first = asker.responses.create(model="m", input=MESSAGES, tools=[TOOL], parallel_tool_calls=True)
        reasoning, *calls = (item.to_dict() for item in first.output)
        assert (reasoning["type"], first.status) == ("reasoning", "completed")
        assert [json.loads(call["arguments"])["expression"] for call in calls] == SUMS
        results: Any = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": result}
            for call, result in zip(calls, ("36.0", "4"), strict=True)
        ]
        second = asker.responses.create(model="m", input=[*MESSAGES, *first.output, *results], tools=[TOOL])
    assert second.output_text == "It is 4."
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.input_tokens + 3


@pytest.mark.parametrize(("status", "expected"), [(429, openai.RateLimitError), (503, openai.InternalServerError)])
def test_a_models_error_is_the_clients_error_of_that_status_on_every_way(status: int, expected: Any) -> None:
    make = scripted("x", faults=[{"kind": "status", "status": status}])
    with hosting.hosted(MODEL, make) as url, client(url) as asker:
        for stream in (False, True):
            with pytest.raises(expected) as by_responses:
                asker.responses.create(model="m", input="?", stream=stream)
            with pytest.raises(expected) as by_chat:
                asker.chat.completions.create(model="m", messages=MESSAGES, stream=stream)
            report = {"message": f"scripted fault: status {status}", "type": "ModelError"}
            report |= {"boundary": "model", "code": status}
            assert by_responses.value.body == by_chat.value.body == report


def test_the_clients_key_is_the_servers_token() -> None:
    with hosting.hosted(MODEL, scripted("Hello."), limits=RequestLimits(token="right")) as url:
        with client(url).with_options(api_key="right") as asker:
            assert asker.responses.create(model="m", input="?").output_text == "Hello."
        with (
            client(url).with_options(api_key="wrong") as asker,
            pytest.raises(openai.AuthenticationError, match="server_token"),
        ):
            asker.responses.create(model="m", input="?", stream=True)


class Recording:
    """Answers with how many calls came before, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[Json] = []

    async def respond(self, request: Json) -> Json:
        number = len(self.requests)
        self.requests.append(request)
        usage = {"input_tokens": 3, "output_tokens": 1 + number, "total_tokens": 4 + number}
        content = [{"type": "output_text", "text": f"answer {number}"}]
        message = {"type": "message", "role": "assistant", "content": content}
        return {"id": f"resp_{number}", "status": "completed", "output": [message], "usage": usage}

    async def aclose(self) -> None: ...


def served(kind: str, model: Any) -> Any:
    def make() -> Any:
        return SimpleAgent(model=model, environment=Calculator()) if kind == AGENT else model

    return hosting.hosted(kind, make)


class Failing:
    """Each call raises the next of these errors."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = iter(errors)

    async def respond(self, request: Json) -> Json:
        raise next(self.errors)

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_whatever_a_model_raises_is_the_error_of_the_call_and_the_server_continues(stream: bool) -> None:
    model = Failing(ModelError("no more", status=429), SystemExit(3), InputError("wrong"))
    with served(MODEL, model) as url, client(url) as asker:
        for status, message in ((429, "no more"), (502, "model: SystemExit: 3"), (503, "wrong")):
            with pytest.raises(openai.APIStatusError) as caught:
                asker.chat.completions.create(model="m", messages=MESSAGES, stream=stream)
            error: Any = caught.value
            assert (error.status_code, error.body["message"]) == (status, message)


@pytest.mark.parametrize("kind", [MODEL, AGENT])
def test_the_listed_id_and_no_model_mean_the_model_of_the_config_and_other_names_are_passed_on(kind: str) -> None:
    model = Recording()
    with served(kind, model) as url, client(url) as asker:
        (listed,) = asker.models.list()
        for name in (listed.id, "", "another"):
            asker.responses.create(model=name, input="Go.")
            asker.chat.completions.create(model=name, messages=MESSAGES)
    assert [request.get("model") for request in model.requests] == [None] * 4 + ["another"] * 2


@pytest.mark.parametrize("kind", [MODEL, AGENT])
def test_a_stored_response_or_an_unknown_model_is_refused_with_the_way_out(kind: str) -> None:
    with served(kind, ScriptedModel(answers=["x"])) as url, client(url) as asker:
        with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
            asker.responses.create(model="m", input="Go.", previous_response_id="resp_1")
        (listed,) = asker.models.list()
        assert (asker.models.retrieve("hosted"), listed.created > 0) == (listed, True)
        with pytest.raises(openai.NotFoundError, match="'org/another one'") as caught:
            asker.models.retrieve("org/another one")
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
