"""What is taken for a model or an agent, and whose fault it is when it fails."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from velodrome.contracts import Agent, Model, as_agent, as_model, as_resources, ask
from velodrome.errors import AgentError, InputError, ModelError
from velodrome.records.conversation import final_text
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.timing.spans import root

ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}
REQUEST = {"instructions": "x", "input": [{"role": "user", "content": "first"}, {"role": "user", "content": "last"}]}


def said(thing: Any) -> str:
    async def main() -> str:
        model = as_model(thing)
        assert isinstance(model, Model)
        try:
            return final_text((await model.respond(REQUEST))["output"])
        finally:
            await model.aclose()

    return asyncio.run(main())


async def by_request(request):
    return f"{len(request['input'])} items"


async def by_response(request):
    return {"output": [ITEM]}


async def by_text(text: str) -> str:
    return text.upper()


def shout(text):
    return f"{text} {threading.current_thread() is threading.main_thread()}"


class Answering:
    async def __call__(self, request):
        return request["instructions"]


class Plain:
    def respond(self, request):
        return by_request(request)


def test_a_function_is_a_model_of_requests_or_of_texts():
    assert said(by_request) == "2 items"
    assert said(by_response) == "36"
    assert said(by_text) == "LAST"
    assert said(shout) == "last False"
    assert said(lambda text: by_text(text)) == "LAST"
    assert said(Answering()) == "x"
    assert said(Plain()) == "2 items"


def test_a_wrapper_is_called_as_it_is_written_and_not_as_what_it_wraps():
    def plain(request: Any):
        return f"{len(request['input'])} items"

    async def loud(text: str):
        return text.upper()

    @functools.wraps(plain)
    async def in_a_thread(request):
        return await asyncio.to_thread(plain, request)

    @functools.wraps(loud)
    def in_a_loop(text):
        return asyncio.run(loud(text))

    assert (said(in_a_thread), said(in_a_loop)) == ("2 items", "LAST")


class Subclass(ScriptedModel):
    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"output": [ITEM], "usage": {"total_tokens": 3}}


def test_a_rollout_asks_a_model_by_its_own_respond_whoever_has_put_it_there():
    async def own(request: dict[str, Any]) -> dict[str, Any]:
        return {"output": [ITEM]}

    patched = ScriptedModel(answers=["scripted"])
    patched.respond = own  # type: ignore[method-assign]
    for model, text in ((Subclass(answers=["x"]), "36"), (patched, "36"), (ScriptedModel(answers=["x"]), "x")):
        with root("rollout") as spans:
            assert asyncio.run(ask(model, REQUEST)).text == text
        assert [child.name for child in spans.children] == ["model"]


def test_an_object_with_respond_is_a_model_as_it_is():
    model = ScriptedModel(answers=["36"])
    assert as_model(model) is model


@pytest.mark.parametrize("thing", [5, {"type": "responses_api_models"}, Answering, SimpleAgent])
def test_what_is_no_model_and_no_agent_is_refused(thing: Any):
    with pytest.raises(InputError, match="expected a model"):
        as_model(thing)
    with pytest.raises(InputError, match="expected an agent"):
        as_agent(thing)
    with pytest.raises(InputError):
        as_resources(thing)


def fails(request: str) -> Any:
    raise KeyError("no")


@pytest.mark.parametrize("thing", [fails, lambda text: 5, lambda text: {"content": "x"}])
def test_a_model_that_fails_or_returns_something_else_is_to_blame(thing: Any):
    with pytest.raises(ModelError):
        said(thing)


def test_a_component_takes_functions_where_a_model_goes_and_a_text_as_its_task():
    agent = SimpleAgent(model=lambda text: "It is 36", environment=Calculator(), max_steps=1)  # type: ignore[arg-type]
    result = asyncio.run(agent.run("What is 15% of 240?", verify=False))
    assert final_text(result["response"]["output"]) == "It is 36"
    assert result["responses_create_params"]["input"] == "What is 15% of 240?"
    with pytest.raises(InputError, match="model_server: expected a model"):
        SimpleAgent(model_server=5, environment=Calculator())  # type: ignore[call-arg]


def ran(thing: Any, task: Any = "go", *, verify: bool = True) -> Any:
    async def main() -> Any:
        agent = as_agent(thing)
        assert isinstance(agent, Agent)
        return await agent.run(task, verify=verify)

    return asyncio.run(main())


async def scored(task):
    return {"reward": 1.0, "output": task["responses_create_params"]["input"], "note": "kept"}


async def unscored(task):
    return "hello"


class Runner:
    async def run(self, task, verify=True):
        return {"reward": 0.5, "response": {"output": [ITEM]}, "verified": verify}


def test_an_async_function_or_an_object_with_run_is_an_agent():
    result = ran(scored, {"responses_create_params": {"input": "hi"}, "id": 3})
    assert (result["id"], result["reward"], result["note"]) == (3, 1.0, "kept")
    assert final_text(result["response"]["output"]) == "hi"
    unverified = ran(Runner(), verify=False)
    assert (unverified["verified"], "reward" in unverified) == (False, False)
    responses = ran(Runner())["response"], asyncio.run(as_agent(Runner()).respond({"input": "x"}))
    assert [final_text(each["output"]) for each in responses] == ["36", "36"]


def test_a_text_has_no_reward_so_it_is_a_result_only_without_verification():
    assert final_text(ran(unscored, verify=False)["response"]["output"]) == "hello"
    with pytest.raises(AgentError, match="reward"):
        ran(unscored)


async def broken(task):
    raise OSError("gone")


async def nothing(task):
    return {"reward": 1.0}


@pytest.mark.parametrize("thing", [broken, nothing])
def test_an_agent_that_fails_is_to_blame(thing: Any):
    with pytest.raises(AgentError):
        ran(thing)
