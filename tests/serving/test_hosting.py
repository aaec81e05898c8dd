"""A live component served from inside this process, with connections of its own: nothing is left of it afterwards."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
import uvloop

from tests.support.leaks import nothing_left
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.scope import Scope
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpModel

REQUEST = {"input": "What is 15% of 240?"}


class Relay:
    """A model that asks another over HTTP."""

    def __init__(self, url: str) -> None:
        self._there = HttpModel(url)

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._there.respond(request)

    async def aclose(self) -> None:
        raise AssertionError("the component is the caller's")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_served_component_leaves_no_socket_task_thread_or_signal_handler_and_stays_open(loop: Any):
    async def use() -> str:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        async with (
            nothing_left(),
            served(ScriptedModel(answers=["It is 36"])) as there,
            served(Relay(there), name="relay") as url,
            Scope(),
        ):
            answer = await HttpModel(url).respond(REQUEST)
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        return str(answer["output"][0]["content"][0]["text"])

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(use()) == "It is 36"
