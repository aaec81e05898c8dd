"""Servers of others that have fewer routes, and echo more or less than ours: what is kept is the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from velodrome import http
from velodrome.errors import VerifyError
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.remote import HttpAgent, HttpResources

TASK = {"responses_create_params": {"input": "Hi", "user": None, "tools": []}, "expected": 3, "own": 1}


class Foreign:
    """As NeMo Gym's servers do: no `/close_session`, the whole request comes back, fields they do not know do not."""

    def __init__(self, **marks: Any) -> None:
        self.asked: list[str] = []
        self.marks = marks

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path not in ("/seed_session", "/verify", "/run"):
            raise web.HTTPNotFound
        body = await request.json()
        params = {**body["responses_create_params"], "temperature": None, "tool_choice": "auto"}
        response = body.get("response", {"output": []})
        echo = {
            "responses_create_params": params,
            "response": response,
            "expected": body["expected"],
            "reward": 1.0,
            **self.marks,
        }
        reply = web.json_response({} if request.path == "/seed_session" else echo)
        reply.set_cookie("session", "s")
        return reply

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await http.close_shared()
            await runner.cleanup()

    async def use(self) -> tuple[dict[str, Any], dict[str, Any]]:
        async with self.served() as url:
            agent = SimpleAgent(model=ScriptedModel(answers=["3"]), environment=HttpResources(url))
            await agent.run(TASK)
            return await agent.run(TASK), await HttpAgent(url).run(TASK)


def test_a_foreign_environment_and_a_foreign_agent_give_whole_rollouts(caplog: pytest.LogCaptureFixture):
    foreign = Foreign()
    with caplog.at_level(logging.WARNING):
        ours, theirs = asyncio.run(foreign.use())
    assert caplog.messages == []
    assert foreign.asked.count("/close_session") == 1  # it has none, so it is not asked again
    assert ours["responses_create_params"] == TASK["responses_create_params"]
    assert ours["response"]["output"][0]["content"][0]["text"] == "3"
    assert theirs["responses_create_params"] == {**TASK["responses_create_params"], "tool_choice": "auto"}
    for each in (ours, theirs):
        assert (each["expected"], each["own"], each["reward"]) == (3, 1, 1.0)


def test_a_score_that_is_marked_as_invalid_is_a_fault_of_verification():
    async def use(**marks: Any) -> None:
        async with Foreign(**marks).served() as url:
            ours = SimpleAgent(model=ScriptedModel(answers=["3"]), environment=HttpResources(url))
            for each in (ours, HttpAgent(url)):
                with pytest.raises(VerifyError, match=r"not valid \(judge_failed\): it is down"):
                    await each.run(TASK)

    asyncio.run(use(mask_sample=True, failure_kind="judge_failed", failure_reason="it is down"))
    asyncio.run(use(_ng_failure_class="judge_failed", _ng_failure_judge_error="it is down"))
