"""An agent served as a model: its Response, its stream, and what chat shows of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import openai
import pytest

from tests.support import hosted as hosting
from tests.support.patience import DEADLINE_S
from tests.support.staged import Staged, ask_and_leave
from tests.support.streams import BEGUN, added, client, consistent, responses
from velodrome import Environment, http
from velodrome.contracts import as_agent, as_model, prompt_text
from velodrome.errors import ToolError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.remote import HttpModel

Json = dict[str, Any]
AGENT, MODEL = "responses_api_agents", "responses_api_models"
CALLS = [
    {"name": "calculator", "arguments": {"expression": "240 * 0.15"}},
    {"name": "calculator", "arguments": {"expression": "2 + 2"}},
]
SCRIPT = [{"reasoning_content": "Two sums.", "content": "Let me see.", "tool_calls": CALLS}, "It is {tool_result}."]
MESSAGES: Any = [{"role": "user", "content": "15% of 240, and 2 + 2?"}]


class Counted(Calculator):
    """Counts its sessions: opened, closed."""

    def setup(self) -> None:
        super().setup()
        self.opened = 0
        self.closed = threading.Semaphore(0)

    async def open(self, task: Json) -> str:
        self.opened += 1
        return await super().open(task)

    async def close(self, session: str) -> None:
        await super().close(session)
        self.closed.release()


class SecondTurn(Staged):
    """A model that calls once, then stops for ever in the middle of its second turn."""

    def __init__(self) -> None:
        super().__init__(BEGUN, "hang")
        self.first = ScriptedModel(answers=SCRIPT)

    async def respond(self, request: Json) -> Json:
        return await (self.first if len(request["input"]) == 1 else super()).respond(request)


def agent(*answers: Any, environment: type[Environment] = Calculator, **more: Any) -> Callable[[], SimpleAgent]:
    return lambda: SimpleAgent(model=ScriptedModel(answers=list(answers), **more), environment=environment())


KINDS = ["reasoning", "message", *["function_call"] * 2, *["function_call_output"] * 2, "message"]


def test_the_stream_of_an_agent_is_one_response_with_its_turns_that_equals_the_whole() -> None:
    with hosting.hosted(AGENT, agent(*SCRIPT)) as url, client(url) as asker:
        events = responses(url)
        answer: Any = asker.responses.create(model="hosted", input="Go.").to_dict()
        chat = asker.chat.completions.create(model="hosted", messages=MESSAGES).choices[0]
        chunks = list(asker.chat.completions.create(model="hosted", messages=MESSAGES, stream=True))
    final = consistent(events)
    assert [item["type"] for item in final["output"]] == [item["type"] for item in answer["output"]] == KINDS
    assert len({item["id"] for item in final["output"]}) == len(KINDS)
    assert final["usage"] == answer["usage"]
    assert [item["output"] for item in final["output"] if item["type"] == "function_call_output"] == ["36.0", "4"]
    said = {"role": "assistant", "content": "It is 4."}
    assert chat.message.to_dict() == added(chunks) == said  # in chat it makes no calls
    assert chat.finish_reason == chunks[-1].choices[0].finish_reason == "stop"


def test_a_model_that_uses_its_ids_again_still_has_a_stream_whose_items_have_ids_of_their_own() -> None:
    text = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Again."}]}

    async def again(request: Json) -> Json:
        call = {"type": "function_call", "id": "f", "call_id": "c", "name": "calculator", "arguments": "{}"}
        first = len(request["input"]) == 1
        return {"id": "r", "status": "completed", "output": [text, call] if first else [text]}

    agent = SimpleAgent(model=as_model(again), environment=Calculator())
    with hosting.hosted(AGENT, lambda: agent) as url, client(url) as asker:
        final = consistent(responses(url))
        answer = asker.responses.create(model="hosted", input="Go.")
    ids = [item["id"] for item in final["output"]]
    assert (answer.id, [item.id for item in answer.output]) == (final["id"], ids)
    assert (ids[:2], len(set(ids))) == (["m", "f"], 4)


TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.5, -0.25]}


def test_chat_has_the_token_ids_of_the_turn_whose_texts_it_has() -> None:
    async def model(request: Json) -> Json:
        call = {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": '{"expression": "1"}'}
        if len(request["input"]) == 1:
            return {"id": "r", "status": "completed", "output": [{**call, "generation_token_ids": [9]}]}
        text = {"type": "output_text", "text": "It is 1."}
        said = {"type": "message", "role": "assistant", "content": [text], **TOKENS}
        return {"id": "r", "status": "completed", "output": [said]}

    served = SimpleAgent(model=as_model(model), environment=Calculator())
    with hosting.hosted(AGENT, lambda: served) as url, client(url) as asker:
        answer: Any = asker.chat.completions.create(model="hosted", messages=MESSAGES).to_dict()
        *_, last = asker.chat.completions.create(model="hosted", messages=MESSAGES, stream=True)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "It is 1.", **TOKENS}
    assert answer["choices"][0]["token_ids"] == last.choices[0].to_dict()["token_ids"] == [2, 3]
    assert answer["prompt_token_ids"] == last.to_dict()["prompt_token_ids"] == [1]


def test_an_agent_that_does_not_stream_is_told_whole() -> None:
    async def simple(task: Json) -> Json:
        return {"output": "It is " + prompt_text(task["responses_create_params"]), "reward": 1.0}

    with hosting.hosted(AGENT, lambda: as_agent(simple)) as url, client(url) as asker:
        final = consistent(responses(url, input="7"))
        answer = asker.responses.create(model="hosted", input="7")
        chunks = list(asker.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert final["output"][0]["content"][0]["text"] == answer.output_text == "It is 7"
    assert added(chunks)["content"].startswith("It is ")


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_first_turn_has_a_status(stream: bool) -> None:
    make = agent("x", faults=[{"kind": "status", "status": 429}])
    with hosting.hosted(AGENT, make) as url, client(url) as asker:
        with pytest.raises(openai.RateLimitError):
            asker.responses.create(model="m", input="?", stream=stream)
        with pytest.raises(openai.RateLimitError):
            asker.chat.completions.create(model="m", messages=MESSAGES, stream=stream)


class Broken(Calculator):
    async def call(self, session: str, name: str, arguments: Any) -> str:
        raise RuntimeError("the tool broke")


def test_an_error_of_an_agent_is_the_same_error_behind_http() -> None:
    make = agent(*SCRIPT, environment=Broken)

    async def error_of(model: Any) -> tuple[Any, ...]:
        try:
            with pytest.raises(ToolError) as caught:
                await model.respond({"input": "Go."})
        finally:
            await http.close_shared()
        error = caught.value
        partial = [{**item, "id": None, "call_id": None} for item in error.partial or ()]  # new at every call
        return str(error), error.boundary, error.place, partial

    here = asyncio.run(error_of(make()))
    with hosting.hosted(AGENT, make) as url:
        there = asyncio.run(error_of(HttpModel(url)))
    assert there == here
    assert str(there[2]).endswith(" in Broken.call")
    assert [item["type"] for item in there[3]] == ["reasoning", "message", "function_call", "function_call"]


@pytest.mark.parametrize(("route", "stream"), [("responses", False), ("responses", True), ("chat/completions", False)])
def test_a_caller_that_goes_away_stops_agent_and_model_and_the_session_is_closed(route: str, stream: bool) -> None:
    environment, model = Counted(), SecondTurn()
    with hosting.hosted(AGENT, lambda: SimpleAgent(model=model, environment=environment)) as url:
        body = {"input": "Go.", "messages": MESSAGES, "stream": stream}
        ask_and_leave(f"{url}/v1/{route}", body, model, after=None)
        assert model.ended.wait(DEADLINE_S)
        assert environment.closed.acquire(timeout=DEADLINE_S)
    assert environment.opened == 1


def tool_requests(*names: str) -> list[tuple[str, Json]]:
    """A request with tools of these names, in each dialect."""
    functions = [{"name": name, "parameters": {"type": "object"}} for name in names]
    chat = [{"type": "function", "function": each} for each in functions]
    blocks = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return [
        ("/v1/responses", {"input": "?", "tools": [{"type": "function", **each} for each in functions]}),
        ("/v1/chat/completions", {"messages": MESSAGES, "tools": chat}),
        ("/v1/messages", {"messages": MESSAGES, "tools": blocks, "max_tokens": 9}),
    ]


def test_a_callers_own_tool_is_refused_by_name_and_one_of_the_environments_is_offered_alone() -> None:
    offered: list[Any] = []

    async def listening(request: Json) -> str:
        offered.append([tool["name"] for tool in request.get("tools", [])])
        return "Hello."

    make = partial(SimpleAgent, model=as_model(listening), environment=Calculator())
    with hosting.hosted(AGENT, make) as url, httpx2.Client(base_url=url) as asker:
        for path, body in tool_requests("calculator", "mine"):
            reply = asker.post(path, json=body)
            error = reply.json()["error"]
            assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "tools")
            assert "mine" in error["message"]
        assert offered == []
        for path, body in [*tool_requests("calculator"), *tool_requests()]:
            assert asker.post(path, json=body).status_code == 200
    assert offered == [["calculator"]] * 6
