"""An agent served as a model: its turns are streamed as they happen, and chat shows what it said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import hosted as hosting
import httpx2
import openai
import pytest
from patience import DEADLINE_S
from streams import added, client, collected, consistent, responses, without_ids

from velodrome import Environment, http
from velodrome.contracts import as_agent, as_model, prompt_text
from velodrome.errors import ModelError, ToolError
from velodrome.records.events import whole
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving import wire
from velodrome.serving.apps.agent_model import AgentModel, TextsOnly
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


class Staged:
    """A model that calls once, then stops in the middle of its second turn: it waits for ever, or raises."""

    def __init__(self, then: Exception | None = None) -> None:
        self.then = then
        self.started, self.ended = threading.Event(), threading.Event()
        self.first = ScriptedModel(answers=SCRIPT)

    async def respond(self, request: Json) -> Json:
        if len(request["input"]) == 1:
            return await self.first.respond(request)
        try:
            self.started.set()
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        raise AssertionError

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        if len(request["input"]) == 1:
            for event in await collected(_Whole(self.first), request):
                yield event
            return
        at = {"item_id": "m", "output_index": 0}
        try:
            yield {"type": "response.created", "response": {"id": "second", "output": []}}
            item = {"type": "message", "id": "m", "role": "assistant", "content": []}
            yield {"type": "response.output_item.added", "output_index": 0, "item": item}
            part = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **at, "content_index": 0, "part": part}
            yield {"type": "response.output_text.delta", **at, "content_index": 0, "delta": "Half an", "logprobs": []}
            if self.then is not None:
                raise self.then
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def aclose(self) -> None: ...


class _Whole:
    """A model's finished answers as events."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        for event in whole(await self.model.respond(request)):
            yield event


def agent(*answers: Any, environment: type[Environment] = Calculator, **more: Any) -> Callable[[], SimpleAgent]:
    return lambda: SimpleAgent(model=ScriptedModel(answers=list(answers)), environment=environment(), **more)


def test_an_agent_streams_its_turns_as_one_response_that_equals_the_whole() -> None:
    with hosting.hosted(AGENT, agent(*SCRIPT)) as url, client(url) as asker:
        events = responses(url)
        whole = asker.responses.create(model="hosted", input="Go.").to_dict()
    final = consistent(events)
    kinds = ["reasoning", "message", *["function_call"] * 2, *["function_call_output"] * 2, "message"]
    assert [item["type"] for item in final["output"]] == [item["type"] for item in whole["output"]] == kinds  # type: ignore[attr-defined,index,union-attr]
    assert len({item["id"] for item in final["output"]}) == len(kinds)
    assert final["usage"] == whole["usage"]
    assert [item["output"] for item in final["output"] if item["type"] == "function_call_output"] == ["36.0", "4"]


def test_a_model_that_uses_its_ids_again_still_has_a_stream_whose_items_have_ids_of_their_own() -> None:
    text = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Again."}]}

    async def again(request: Json) -> Json:
        call = {"type": "function_call", "id": "f", "call_id": "c", "name": "calculator", "arguments": "{}"}
        first = len(request["input"]) == 1
        return {"id": "r", "status": "completed", "output": [text, call] if first else [text]}

    agent = SimpleAgent(model=as_model(again), environment=Calculator())
    with hosting.hosted(AGENT, lambda: agent) as url, client(url) as asker:
        final = consistent(responses(url))
        with asker.responses.stream(model="hosted", input="Go.") as stream:
            said = stream.get_final_response().output_text
        whole = asker.responses.create(model="hosted", input="Go.")
    ids = [item["id"] for item in final["output"]]
    assert (whole.id, [item.id for item in whole.output]) == (final["id"], ids)
    assert ids[:2] == ["m", "f"]
    assert len(set(ids)) == 4
    assert said == "Again.Again."


def test_in_chat_an_agent_says_its_texts_and_makes_no_calls() -> None:
    with hosting.hosted(AGENT, agent(*SCRIPT)) as url, client(url) as asker:
        whole = asker.chat.completions.create(model="hosted", messages=MESSAGES)
        chunks = list(asker.chat.completions.create(model="hosted", messages=MESSAGES, stream=True))
    message = whole.choices[0].message.to_dict()
    said = {"role": "assistant", "content": "Let me see.\n\nIt is 4.", "reasoning_content": "Two sums."}
    assert message == added(chunks) == said
    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "stop"


def test_what_is_shown_of_an_agent_in_chat_is_a_consistent_stream() -> None:
    events = asyncio.run(collected(TextsOnly(AgentModel(agent(*SCRIPT)()))))
    final = consistent(events)
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "message"]


TURN = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.5, -0.25]}


@pytest.mark.parametrize(("first", "ids"), [("Let me see.", False), ("", True)], ids=["two turns", "one turn"])
def test_chat_has_the_ids_of_a_turn_only_if_the_texts_are_of_that_turn(first: str, ids: bool) -> None:
    async def model(request: Json) -> Json:
        call = {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": '{"expression": "1"}'}
        begun = len(request["input"]) > 1
        text = {"type": "output_text", "text": "It is 1." if begun else first}
        said = [{"type": "message", "role": "assistant", "content": [text]}] if text["text"] else []
        output = said if begun else [*said, call]
        output[-1] = {**output[-1], **TURN}
        return {"id": "r", "status": "completed", "output": output}

    served = SimpleAgent(model=as_model(model), environment=Calculator())
    with hosting.hosted(AGENT, lambda: served) as url, client(url) as asker:
        whole = asker.chat.completions.create(model="hosted", messages=MESSAGES).to_dict()
        chunks = list(asker.chat.completions.create(model="hosted", messages=MESSAGES, stream=True))
    assert ("token_ids" in whole["choices"][0]) == ids  # type: ignore[index,operator]
    assert ("prompt_token_ids" in whole) == ids
    assert any("token_ids" in chunk.choices[0].to_dict() for chunk in chunks if chunk.choices) == ids
    assert TURN.keys().isdisjoint(whole["choices"][0]["message"]) != ids  # type: ignore[index]


def test_an_agent_that_does_not_stream_is_told_whole() -> None:
    async def simple(task: Json) -> Json:
        return {"output": "It is " + prompt_text(task["responses_create_params"]), "reward": 1.0}

    with hosting.hosted(AGENT, lambda: as_agent(simple)) as url, client(url) as asker:
        final = consistent(responses(url, input="7"))
        whole = asker.responses.create(model="hosted", input="7").to_dict()
        chunks = list(asker.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert final["output"][0]["content"][0]["text"] == "It is 7"
    assert without_ids(final)["output"][0]["content"][0]["text"] == whole["output"][0]["content"][0]["text"]  # type: ignore[index]
    assert added(chunks)["content"].startswith("It is ")


def test_an_agent_streams_through_a_model_server() -> None:
    with hosting.hosted(MODEL, lambda: ScriptedModel(answers=SCRIPT)) as there:
        events = asyncio.run(_streamed_through(there))
    kinds = [item["type"] for item in consistent(events)["output"]]
    assert kinds == ["reasoning", "message", *["function_call"] * 2, *["function_call_output"] * 2, "message"]


def test_the_error_of_a_model_server_keeps_its_status_in_a_stream() -> None:
    def failing() -> ScriptedModel:
        return ScriptedModel(answers=["x"], faults=[{"kind": "status", "status": 400}])

    with hosting.hosted(MODEL, failing) as there, pytest.raises(ModelError, match="scripted fault") as caught:
        asyncio.run(_streamed_through(there))
    assert (caught.value.status, caught.value.partial) == (400, [])


async def _streamed_through(url: str) -> list[Json]:
    try:
        return await collected(SimpleAgent(model=HttpModel(url), environment=Calculator()))
    finally:
        await http.close_shared()


def test_a_second_turn_that_breaks_off_is_the_last_event_and_the_session_is_closed() -> None:
    environment, model = Counted(), Staged(ModelError("the model broke", status=503))
    with (
        hosting.hosted(AGENT, lambda: SimpleAgent(model=model, environment=environment)) as url,
        client(url) as asker,
        pytest.raises(openai.APIError, match="the model broke") as caught,
    ):
        list(asker.responses.create(model="hosted", input="Go.", stream=True))
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["boundary"] == "model"
    assert [item["type"] for item in caught.value.body["partial"]][-1] == "function_call_output"
    assert environment.closed.acquire(timeout=DEADLINE_S)


class Broken(Calculator):
    async def call(self, session: str, name: str, arguments: Any) -> str:
        raise RuntimeError("the tool broke")


def test_an_error_in_the_middle_of_a_stream_is_the_same_error_behind_http() -> None:
    make = agent(*SCRIPT, environment=Broken)

    async def error_of(model: Any) -> tuple[Any, ...]:
        try:
            with pytest.raises(ToolError) as caught:
                await collected(model)
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


def test_an_error_of_the_first_turn_has_a_status() -> None:
    def make() -> SimpleAgent:
        model = ScriptedModel(answers=["x"], faults=[{"kind": "status", "status": 429}])
        return SimpleAgent(model=model, environment=Calculator())

    with hosting.hosted(AGENT, make) as url, client(url) as asker:
        ways: list[Callable[[], Any]] = [
            lambda: asker.responses.create(model="m", input="?", stream=True),
            lambda: asker.chat.completions.create(model="m", messages=MESSAGES),
            lambda: asker.chat.completions.create(model="m", messages=MESSAGES, stream=True),
        ]
        for way in ways:
            with pytest.raises(openai.RateLimitError) as caught:
                way()
            assert isinstance(caught.value.body, dict)
            assert caught.value.body["boundary"] == "model"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["responses", "chat/completions"])
def test_a_caller_that_goes_away_stops_agent_and_model_and_the_session_is_closed(route: str, stream: bool) -> None:
    environment, model = Counted(), Staged()
    body = {"input": "Go.", "messages": MESSAGES, "stream": stream}

    async def read(url: str) -> None:
        async with (
            httpx2.AsyncClient(timeout=DEADLINE_S) as plain,
            plain.stream("POST", f"{url}/v1/{route}", json=body) as reply,
        ):
            async for line in reply.aiter_lines():
                if "Half an" in line:
                    return

    async def leave(url: str) -> None:
        call = asyncio.create_task(read(url))
        if not stream:
            assert await asyncio.to_thread(model.started.wait, DEADLINE_S)
            call.cancel()
        await asyncio.wait([call])

    with hosting.hosted(AGENT, lambda: SimpleAgent(model=model, environment=environment)) as url:
        asyncio.run(leave(url))
        assert model.ended.wait(DEADLINE_S)
        assert environment.closed.acquire(timeout=DEADLINE_S)
    assert environment.opened == 1


def test_the_times_in_an_error_are_for_our_clients_alone() -> None:
    def failing() -> ScriptedModel:
        return ScriptedModel(answers=["x"], faults=[{"kind": "status", "status": 400}])

    traced = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
    asked = {
        "/run": {"responses_create_params": {"input": "?"}},
        "/v1/responses": {"input": "?"},
        "/v1/chat/completions": {"messages": MESSAGES},
    }
    with (
        hosting.hosted(MODEL, failing) as there,
        hosting.hosted(AGENT, lambda: SimpleAgent(model=HttpModel(there), environment=Calculator())) as url,
    ):
        errors = [httpx2.post(url + path, json=body, headers=traced).json()["error"] for path, body in asked.items()]
        ours = httpx2.post(f"{url}/run", json=asked["/run"], headers=traced | {wire.SPANS: "yes"}).json()["error"]
    assert [("scripted fault" in error["message"], "spans" in error) for error in errors] == [(True, False)] * 3
    assert "@hosted" in ours["spans"]


def asked_with(*names: str) -> list[tuple[str, Json]]:
    """A request with tools of these names, in each dialect."""
    schema = {"type": "object"}
    functions = [{"type": "function", "name": name, "parameters": schema} for name in names]
    chat = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
    blocks = [{"name": name, "input_schema": schema} for name in names]
    return [
        ("/v1/responses", {"input": "?", "tools": functions}),
        ("/v1/chat/completions", {"messages": MESSAGES, "tools": chat}),
        ("/v1/messages", {"messages": MESSAGES, "tools": blocks, "max_tokens": 9}),
    ]


def test_a_callers_own_tool_is_refused_by_name_and_one_of_the_environments_is_offered_alone() -> None:
    offered: list[Any] = []

    async def listening(request: Json) -> str:
        offered.append([tool["name"] for tool in request.get("tools", [])])
        return "Hello."

    whole = {"input": "?"}
    make = partial(SimpleAgent, model=as_model(listening), environment=Calculator())
    with hosting.hosted(AGENT, make) as url, httpx2.Client(base_url=url) as asker:
        refused = [asker.post(path, json=body) for path, body in asked_with("calculator", "mine")]
        assert offered == []
        for path, body in [*asked_with("calculator"), *asked_with(), ("/v1/responses", {**whole, "tools": None})]:
            assert asker.post(path, json=body).status_code == 200
    errors = [reply.json()["error"] for reply in refused]
    assert [(reply.status_code, error["type"]) for reply, error in zip(refused, errors, strict=True)] == [
        (400, "invalid_request_error")
    ] * 3
    assert all("cannot run: mine;" in error["message"] and error["param"] == "tools" for error in errors)
    assert offered == [["calculator"]] * 7


def test_an_agent_that_does_not_tell_its_tools_is_given_the_callers() -> None:
    async def simple(task: Json) -> Json:
        return {"output": str(len(task["responses_create_params"]["tools"])), "reward": 1.0}

    with hosting.hosted(AGENT, lambda: as_agent(simple)) as url, httpx2.Client(base_url=url) as asker:
        path, body = asked_with("mine")[0]
        assert asker.post(path, json=body).json()["output"][0]["content"][0]["text"] == "1"
