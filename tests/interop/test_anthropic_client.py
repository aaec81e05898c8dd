"""The real `anthropic` client against model servers and an agent server, used by somebody who knows only Anthropic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.programs import run
from tests.support import hosted as hosting
from velodrome.contracts import prompt_text
from velodrome.errors import ModelError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.apps.routes import RequestLimits

Json = dict[str, Any]
MODEL, AGENT = "responses_api_models", "responses_api_agents"
SCRIPT = Path(__file__).with_name("anthropic_client.py")
COUNTED = {"input_tokens": 30, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 20}}
CALLS = [
    {"id": "c0", "name": "calculator", "arguments": {"expression": "240 * 0.15"}},
    {"id": "c1", "name": "calculator", "arguments": {"expression": "2 + 2"}},
]


def response(*parts: Json, **more: Any) -> Json:
    message = {"type": "message", "role": "assistant", "content": list(parts)}
    return {"id": "resp_1", "model": "m", "status": "completed", "output": [message], "usage": COUNTED, **more}


ANSWERS: Json = {
    "text": response({"type": "output_text", "text": "Hello."}),
    "thinking": {"reasoning_content": "Say hello.", "content": "Hello."},
    "calls": {"reasoning_content": "Two sums.", "content": "Let me see.", "tool_calls": CALLS},
    "refusal": response({"type": "output_text", "text": "Well, "}, {"type": "refusal", "refusal": "no."}),
    "cut": response(
        {"type": "output_text", "text": "Hel"},
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    "images": "Two.",
    "parsed": '{"total": 36}',
}


class Speaking:
    """Answers each prompt with its own line."""

    def __init__(self) -> None:
        self.failed = False

    def answer(self, request: Json) -> Any:
        prompt = prompt_text(request)
        if request["input"][-1].get("type") == "function_call_output":
            return "It is {tool_result}."
        if prompt == "failing" or (prompt == "failing once" and not self.failed):
            self.failed = True
            raise ModelError("out of order", status=503)
        return ANSWERS.get(prompt, "Fine.")

    def make(self) -> ScriptedModel:
        return ScriptedModel(function=self.answer)


def results(kind: str, make: Callable[[], Any], *names: str, token: str | None = None) -> Any:
    with hosting.hosted(kind, make, limits=RequestLimits(token=token)) as url:
        return json.loads(run("clients", SCRIPT, url, *names))


def message(content: list[Json], stop: str = "end_turn", model: str = "scripted", **more: Any) -> Json:
    usage: Json = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 20,
        "output_tokens": 9,
    }
    usage |= {"output_tokens_details": {"thinking_tokens": 0}}
    about = {"type": "message", "role": "assistant", "model": model, "stop_sequence": None, "stop_details": None}
    return {**about, "content": content, "stop_reason": stop, "usage": usage, **more}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


USED = [{"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]} for call in CALLS]
TWO_SUMS = [{"type": "thinking", "thinking": "Two sums.", "signature": ""}, text("Let me see."), *USED]
NO = {"type": "refusal", "category": None, "explanation": "no."}


def test_the_client_gets_what_the_model_said() -> None:
    got = results(MODEL, Speaking().make, "answers", "asynchronous", "parsed", "by_hand")
    thought = {"type": "thinking", "thinking": "Say hello.", "signature": ""}
    answers = {
        "text": message([text("Hello.")], model="m"),
        "thinking": message([thought, text("Hello.")]),
        "calls": message(TWO_SUMS, "tool_use"),
        "refusal": message([text("Well, "), text("no.")], "refusal", "m", stop_details=NO),
        "cut": message([text("Hel")], "max_tokens", "m"),
        "images": message([text("Two.")]),
    }
    pairs = {**dict(zip(answers, got["answers"], strict=True)), "asynchronous": got["asynchronous"]}
    for name, (created, streamed) in pairs.items():
        expected = answers["calls" if name == "asynchronous" else name]
        assert created == streamed, name
        if expected["model"] == "scripted":  # which counts words itself
            assert created["usage"]["output_tokens"] > 0
            expected = {**expected, "usage": created["usage"]}
        assert created == expected, name
    assert got["parsed"] == 36
    stop, second = got["by_hand"]
    assert (stop, second["content"], second["stop_reason"]) == ("tool_use", [text("It is error: no.")], "end_turn")


def test_the_clients_own_tool_loop_and_its_errors() -> None:
    got = results(MODEL, Speaking().make, "runner", "taken", "errors", token="right")
    content, stop, streamed, ran = got["runner"]
    assert "out of order" in content
    assert (stop, streamed, ran) == ("end_turn", ["message_stop"] * 2, ["240 * 0.15", "2 + 2"] * 2)
    refused, unavailable = "invalid_request_error", ["ServiceUnavailableError", 503, "api_error"]
    assert got["errors"] == {
        "wrong key": ["AuthenticationError", 401, "authentication_error"],
        "server tool": ["BadRequestError", 400, refused],
        "prefill": ["BadRequestError", 400, refused],
        "failing": unavailable,
        "failing stream": unavailable,
        "counting": ["NotFoundError", 404, "not_found_error"],
    }
    assert got["taken"] == [[text("Hello.")], [text("Fine.")]]


def test_an_agent_is_a_model_whose_own_calls_are_not_shown_and_both_are_listed() -> None:
    turns = [{"reasoning_content": "A sum.", "content": "Let me see.", "tool_calls": CALLS[:1]}, "It is {tool_result}."]

    def make() -> SimpleAgent:
        return SimpleAgent(model=ScriptedModel(answers=turns), environment=Calculator())

    got = results(AGENT, make, "agent", "models", token="right")
    created, streamed = got["agent"]
    assert created == streamed == message([text("It is 36.0.")], usage=created["usage"])
    assert created["usage"]["output_tokens"] > 0
    assert got["models"] == ["hosted", "hosted", "hosted", "active", "model"]
