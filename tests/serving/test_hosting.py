"""A live component served from inside this process: it answers, and nothing is left of it afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
import uvloop

from velodrome import http
from velodrome.errors import InputError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpModel

REQUEST = {"input": "What is 15% of 240?"}


class Relay:
    """A model that asks another over HTTP, so that a served component has connections of its own."""

    def __init__(self, url: str) -> None:
        self._there = HttpModel(url)
        self.closed = False

    async def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._there.respond(request)

    async def aclose(self) -> None:
        self.closed = True


def sockets() -> int:
    return sum(os.readlink(f"/proc/self/fd/{each}").startswith("socket:") for each in _descriptors())


def _descriptors() -> list[str]:
    return [each for each in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{each}")]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest):
    with asyncio.Runner(loop_factory=request.param) as made:
        yield made


def test_a_served_component_leaves_no_socket_task_thread_or_signal_handler_and_stays_open(runner: asyncio.Runner):
    async def use() -> str:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        before = sockets(), len(asyncio.all_tasks()), threading.active_count()
        model = ScriptedModel(answers=["It is 36"])
        async with served(model) as there:
            relay = Relay(there)
            async with served(relay, name="relay") as url, http.owned():
                answer = await HttpModel(url).respond(REQUEST)
                assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
        assert not relay.closed
        await asyncio.sleep(0)  # a transport closes on the next turn of the loop
        assert (sockets(), len(asyncio.all_tasks()), threading.active_count()) == before
        return str(answer["output"][0]["content"][0]["text"])

    assert runner.run(use()) == "It is 36"


def test_a_served_component_ends_when_its_block_is_cancelled(runner: asyncio.Runner):
    async def use() -> None:
        up = asyncio.Event()

        async def hold() -> None:
            async with served(ScriptedModel(answers=["x"])):
                up.set()
                await asyncio.Event().wait()

        before = sockets()
        task = asyncio.create_task(hold())
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert sockets() == before

    runner.run(use())


def test_what_is_not_a_component_is_refused():
    async def use() -> None:
        async with served(object()):
            pass

    with pytest.raises(InputError, match="object"):
        asyncio.run(use())
