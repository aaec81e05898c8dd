"""One suite for every component, called here and over HTTP, with one worker and with several.

The same calls must give the same answers, the same errors and the same blame, wherever the component lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.support import hosted as hosting
from velodrome import Environment, TurnEnvironment, http, tool
from velodrome.errors import ModelError, RolloutError, ToolError, VerifyError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.apps import web_app
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.remote import HttpAgent, HttpModel, HttpResources


class Faulty(Environment):
    """Fails in every way, by the task's word."""

    def seed_session(self, task: dict[str, Any]) -> dict[str, Any]:
        if task.get("how") == "seed":
            raise RuntimeError("no session today")
        return {"how": task.get("how"), "calls": 0}

    @tool
    def act(self, session: dict[str, Any]) -> object:
        """Act."""
        session["calls"] += 1
        if session["how"] == "raise":
            raise RuntimeError("the tool broke")
        if session["how"] == "mistake":
            raise ValueError("not like this")
        return {"calls": session["calls"], "text": "ünïcode ☃"}

    def verify(self, task: dict[str, Any], response: Any, session: dict[str, Any]) -> object:
        if task.get("how") == "verify raises":
            raise KeyError("expected")
        if task.get("how") == "verify lies":
            return {"reward": float("nan")}
        return {"reward": 0.5, "calls": session["calls"], "text": response.text}


def here(make: Callable[[], Any], use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What `use(component)` gives."""

    async def whole() -> Any:
        component = make()
        try:
            return await use(component)
        finally:
            await component.aclose()

    return asyncio.run(whole())


def there(kind: str, client: Any, make: Callable[[], Any], use: Callable[[Any], Awaitable[Any]], **how: Any) -> Any:
    """The same behind HTTP, with three workers."""

    async def whole(url: str) -> Any:
        try:
            return await use(client(url))
        finally:
            await http.close_shared()

    with hosting.hosted(kind, make, workers=3, **how) as url:
        return asyncio.run(whole(url))


def same(kind: str, client: Any, make: Callable[[], Any], use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What it gives behind HTTP, which is what it gives here."""
    result = there(kind, client, make, use)
    assert result == here(make, use)
    return result


def resources(make: Callable[[], Any], use: Callable[[Any], Awaitable[Any]]) -> Any:
    return same("resources_servers", HttpResources, make, use)


async def outcome(work: Awaitable[Any]) -> Any:
    """The result, or the error as (class, boundary, message)."""
    try:
        return await work
    except RolloutError as error:
        return type(error), error.boundary, str(error)


def answer(text: str) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"id": "r", "object": "response", "output": [message]}


def test_a_fault_has_the_same_place_wherever_the_code_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def use(faulty: Any) -> list[str | None]:
        places = []
        for how in ("raise", "verify raises", "verify lies", "seed"):
            try:
                session = await faulty.open({"how": how})
                await faulty.call(session, "act", {})
                await faulty.score(session, {"how": how}, answer("x"))
            except RolloutError as error:
                places.append(error.place)
        return places

    expected = here(Faulty, use)
    assert [str(place).partition(":")[0] for place in expected] == ["tests/serving/test_conformance.py"] * 4
    assert [str(place).rpartition(" in ")[2] for place in expected] == [
        f"Faulty.{name}" for name in ("act", "verify", "verify", "seed_session")
    ]
    for tracebacks in (False, True):
        web_app._logged.clear()
        caplog.clear()
        limits = RequestLimits(tracebacks=tracebacks)
        assert there("resources_servers", HttpResources, Faulty, use, limits=limits) == expected
        logged = "\n".join(record.getMessage() for record in caplog.records)
        assert logged.count("failed: ") == 4
        assert logged.count('raise RuntimeError("the tool broke")') == (1 if tracebacks else 0)
        assert logged.count("Traceback (most recent call last)") == (3 if tracebacks else 0)


def test_sessions_are_kept_apart_and_their_faults_blamed_the_same() -> None:
    async def one(faulty: Any, how: str | None) -> list[Any]:
        task = {"responses_create_params": {"input": "x"}, "how": how}
        session = await outcome(faulty.open(task))
        if not isinstance(session, str):
            return [session]
        result = [await outcome(faulty.call(session, "act", {})) for _ in range(3)]
        result.append(await outcome(faulty.score(session, task, answer("done"))))
        await faulty.close(session)
        return result

    async def use(faulty: Any) -> Any:
        hows = [None, "raise", "mistake", "verify raises", "verify lies", "seed"] * 4
        names = [each["name"] for each in await faulty.tools()]
        return await asyncio.gather(*(one(faulty, how) for how in hows)), names, await faulty.deferrable()

    result, names, deferrable = resources(Faulty, use)
    assert (names, deferrable) == (["act"], False)
    assert result[0] == [*(f'{{"calls":{n},"text":"ünïcode ☃"}}' for n in (1, 2, 3)), result[0][3]]
    assert result[0][3] == {"reward": 0.5, "calls": 3, "text": "done"}
    assert result[1][0][:2] == (ToolError, "tool")
    assert result[2][0] == "error: not like this"
    assert result[3][3][:2] == (VerifyError, "verify")
    assert result[4][3][:2] == (VerifyError, "verify")
    assert result[5][0][:2] == (ToolError, "tool")


class Riddle(TurnEnvironment):
    """Turns that go wrong by the task's word."""

    def reset(self, task: dict[str, Any], session: dict[str, Any]) -> object:
        if task.get("how") == "reset":
            raise RuntimeError("no board")
        session["how"] = task.get("how")
        return [{"role": "system", "content": "Play."}, {"role": "user", "content": "Höher ☃"}], {"seed": 1}

    @tool
    def hint(self, session: dict[str, Any]) -> str:
        """A hint."""
        return str(session["how"])

    def step(self, action: str, session: dict[str, Any]) -> object:
        if session["how"] == "step":
            raise RuntimeError("the board fell")
        if session["how"] == "lies":
            return "x", float("nan"), False, False, {}
        if action == "illegal":
            raise ValueError("not there")
        return {"moves": action}, 0.5, action == "end", action == "stop", {"last": action}


def test_turns_are_the_same_and_their_faults_are_blamed_the_same() -> None:
    async def one(riddle: Any, how: str | None) -> list[Any]:
        task = {"responses_create_params": {"input": []}, "how": how}
        session = await riddle.open(task)
        result = [await outcome(riddle.begin(session, task))]
        if isinstance(result[0], dict):
            actions = ("north \ud800", "illegal", "end", "again")
            result += [await outcome(riddle.advance(session, action)) for action in actions]
            result += [await outcome(riddle.call(session, name, {})) for name in ("hint", "step")]
            result.append(await outcome(riddle.score(session, task, answer("x"))))
        await riddle.close(session)
        return result

    async def use(riddle: Any) -> Any:
        hows = [None, "reset", "step", "lies"] * 3
        return await asyncio.gather(*(one(riddle, how) for how in hows)), await riddle.deferrable()

    async def begin(component: Any) -> Any:
        return await component.begin(await component.open({}), {}) if hasattr(component, "begin") else None

    result, deferrable = resources(Riddle, use)
    assert deferrable is False
    first, north, illegal, end, again, hint, wrong, score = result[0]
    assert resources(Calculator, begin) is None
    lost = there("resources_servers", HttpResources, Riddle, lambda riddle: outcome(riddle.begin("", {})))
    assert (lost[0], "/seed_session" in lost[2]) == (ToolError, True)
    assert (first["observation"][1]["content"], first["info"]) == ("Höher ☃", {"seed": 1})
    assert (north["observation"], illegal["observation"]) == ('{"moves":"north ?"}', "error: not there")
    assert (end["terminated"], again[0], hint, score) == (True, ToolError, "None", {"reward": 1.0, "last": "end"})
    assert wrong == 'error: there is no tool "step"; there are: hint'
    assert [each[0][:2] for each in result[1:2]] == [(ToolError, "tool")]
    assert [each[1][:2] for each in result[2:4]] == [(ToolError, "tool")] * 2


SCRIPT = [
    {"tool_calls": [{"name": "calculator", "arguments": {"expression": "240 * 0.15"}}]},
    {"reasoning_content": "so", "content": "15% of 240 is {tool_result}"},
]


def test_a_model_answers_the_same_and_fails_with_the_same_status() -> None:
    make = partial(ScriptedModel, answers=SCRIPT)
    failing = partial(ScriptedModel, answers=["x"], faults=[{"kind": "status", "status": 400}])

    async def use(model: Any) -> Any:
        first = await model.respond({"input": "15% of 240?"})
        args = [{"role": "user", "content": "?"}, *first["output"]]
        args.append({"type": "function_call_output", "call_id": "call_0_0", "output": "36.0"})
        second = await model.respond({"input": args})
        return first["output"], second["output"], first["usage"]

    async def fail(model: Any) -> Any:
        with pytest.raises(ModelError) as caught:
            await model.respond({"input": "x"})
        return caught.value.status, caught.value.boundary, str(caught.value)

    kind = "responses_api_models"
    result = same(kind, HttpModel, make, use)
    assert result[0][0]["name"] == "calculator"
    assert same(kind, HttpModel, failing, fail) == (400, "model", "scripted fault: status 400")


def test_an_agent_runs_the_same_rollout_and_blames_the_same() -> None:
    def make() -> SimpleAgent:
        return SimpleAgent(model=ScriptedModel(answers=SCRIPT), environment=Calculator())

    def broken() -> SimpleAgent:
        model = ScriptedModel(answers=[{"tool_calls": [{"name": "act", "arguments": {}}]}, "done"])
        return SimpleAgent(model=model, environment=Faulty())

    async def use(agent: Any) -> Any:
        task = {"responses_create_params": {"input": "15% of 240?"}, "expected_answer": "36", "own": [1, {"a": None}]}
        whole = await agent.run(task)
        unscored = await agent.run(task, verify=False)
        talk = await agent.respond({"input": "15% of 240?"})
        for response in (whole["response"], unscored["response"], talk):  # ids and times are new at every call
            for made, name in ((response, "created_at"), *((each, "id") for each in (response, *response["output"]))):
                del made[name]
        return whole, unscored, talk, await agent.deferrable()

    async def fail(agent: Any) -> Any:
        result = []
        for how in ("raise", "verify raises", "seed"):
            try:
                await agent.run({"responses_create_params": {"input": "x"}, "how": how})
            except RolloutError as error:
                result.append((type(error), str(error), [item.get("type") for item in error.partial or []]))
        return result

    kind = "responses_api_agents"
    result = same(kind, HttpAgent, make, use)
    assert (result[0]["reward"], "reward" in result[1], result[3]) == (1.0, False, True)
    failed = same(kind, HttpAgent, broken, fail)
    assert [each[0] for each in failed] == [ToolError, VerifyError, ToolError]
    assert failed[0][2] == ["function_call"]


def test_a_failure_that_was_recorded_there_is_not_asked_for_again() -> None:
    calls = []

    class Counting(Environment):
        def verify(self, task: dict[str, Any], response: Any) -> object:
            calls.append("verify")
            raise RuntimeError("not today")

    class Failing(ScriptedModel):
        async def respond(self, request: dict[str, Any]) -> Any:
            calls.append("respond")
            raise ModelError("not today", status=503)

    async def verify(component: Any) -> Any:
        return await outcome(component.score(await component.open({}), {}, answer("x")))

    result = there("resources_servers", HttpResources, Counting, verify)
    assert result[:2] == (VerifyError, "verify")
    make = partial(Failing, answers=["x"])
    result = there("responses_api_models", HttpModel, make, lambda model: outcome(model.respond({"input": "x"})))
    assert result[:2] == (ModelError, "model")
    assert calls == ["verify", "respond"]
