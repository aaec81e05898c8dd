"""What the wire must not add: other meanings of a tool's name, lost rollouts, told secrets, somebody else's session."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import hosted as hosting
import pytest

from velodrome import http
from velodrome.errors import ToolError
from velodrome.resources_servers.environment import Environment, tool
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.process.worker_main import Masked
from velodrome.serving.remote import HttpResources

KIND = "resources_servers"
ROUTES = ["verify", "close_session", "seed_session", "aggregate_metrics", "tools", "health", "", ".", "..", "a/b"]
NEARLY = ["increment_counter?x", "increment_counter#y", "../increment_counter", "%69ncrement_counter"]
NAMES = [*ROUTES, *NEARLY, "ünïcode ☃", "x" * 300]


def over_http(url: str, use: Callable[[HttpResources], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        try:
            return await use(HttpResources(url))
        finally:
            await http.close_shared()

    return asyncio.run(whole())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_reaches_nothing_but_tools_whatever_it_calls(workers: int) -> None:
    async def use(counters: Any) -> list[str]:
        result = []
        for name, arguments in [
            *((name, {}) for name in NAMES),
            ("increment_counter", [1]),
            ("increment_counter", None),
        ]:
            session = await counters.open({"initial_count": 7})
            result.append(await counters.call(session, name, arguments))
            result.append(await counters.call(session, "get_counter_value", {}))
            await counters.close(session)
        return result

    with hosting.hosted(KIND, ExampleSessionStateMgmt, workers=workers) as url:
        served = over_http(url, use)
    assert served == asyncio.run(use(ExampleSessionStateMgmt()))
    assert set(served[1::2]) == {'{"count":7}'}


def test_a_cookie_from_before_a_restart_closes_nobody_elses_session() -> None:
    async def seeded(session: aiohttp.ClientSession, url: str) -> dict[str, str]:
        async with session.post(f"{url}/seed_session", json={"initial_count": 3}) as reply:
            return {"Cookie": reply.headers["Set-Cookie"].partition(";")[0]}

    async def use(before: str, after: str) -> str:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            old, new = await seeded(session, before), await seeded(session, after)  # both handles are the first
            async with session.post(f"{after}/close_session", json={}, headers=old) as reply:
                assert reply.status == 200
            async with session.post(f"{after}/get_counter_value", json={}, headers=new) as reply:
                return await reply.text()

    with (
        hosting.hosted(KIND, ExampleSessionStateMgmt) as before,
        hosting.hosted(KIND, ExampleSessionStateMgmt) as after,
    ):
        assert asyncio.run(use(before, after)) == '{"count":3}'


class Talkative(Environment):
    @tool
    def act(self) -> str:
        raise RuntimeError("no luck with hunter2-hunter2")

    def verify(self, task: Any, response: Any) -> Any:
        return {"reward": 1.0}


class Stranger:
    """Has the contract's methods and none of its manners."""

    async def open(self, task: Any) -> str:
        return "1"

    async def call(self, session: str, name: str, arguments: Any) -> str:
        raise KeyError("lost")

    async def score(self, session: str, task: Any, response: Any) -> Any:
        return {"reward": object()}

    async def close(self, session: str) -> None: ...

    async def tools(self) -> list[Any]:
        return []

    async def deferrable(self) -> bool:
        return True

    async def aclose(self) -> None: ...


def test_a_secret_of_the_config_is_not_told_in_an_error() -> None:
    with (
        hosting.hosted(KIND, Talkative, limits=RequestLimits(secrets=frozenset(("hunter2-hunter2",)))) as url,
        pytest.raises(ToolError) as caught,
    ):
        over_http(url, lambda there: there.call("", "act", {}))
    assert str(caught.value).endswith("no luck with ***")


def test_a_component_that_raises_what_it_should_not_is_blamed_in_its_own_words() -> None:
    async def use(url: str) -> list[tuple[int, str]]:
        result = []
        async with aiohttp.ClientSession() as session:
            for path, body in (("act", {}), ("verify", {"response": {"output": []}})):
                async with session.post(f"{url}/{path}", json=body) as reply:
                    result.append((reply.status, (await reply.json())["error"]["boundary"]))
        return result

    with hosting.hosted(KIND, Stranger) as url:
        assert asyncio.run(use(url)) == [(502, "tool"), (502, "verify")]


def test_an_environment_that_cannot_be_asked_for_its_tools_is_not_one_without_tools(wire: Any) -> None:
    async def use(status: int) -> Any:
        async with wire(wire.reply(status)) as server:
            try:
                return await HttpResources(server.url).tools()
            finally:
                await http.close_shared()

    assert asyncio.run(use(404)) == []
    with pytest.raises(ToolError):
        asyncio.run(use(501))


def test_a_full_disk_behind_the_log_of_a_server_costs_its_lines_alone():
    with io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as full:
        output = Masked(full, ["hunter2-hunter2"])
        assert output.write("a line\nhalf a") == 13
        assert output.write(" line\n") == 6


def test_whatever_a_component_does_with_its_output_works_in_a_worker() -> None:
    below = io.StringIO()
    output = Masked(below, ["hunter2-hunter2"])
    output.writelines(["the key is hunter2", "-hunter2\n", "and on\n"])
    assert (below.getvalue(), output.writable(), output.encoding) == ("the key is ***\nand on\n", True, "utf-8")


class Lasting(ExampleSessionStateMgmt):
    """Could take turns, and takes none."""

    async def begin(self, session: str, task: dict[str, Any]) -> None:
        """None: there are no turns."""

    async def advance(self, session: str, action: str) -> dict[str, Any]:
        raise AssertionError("nobody takes turns here")


def test_an_environment_that_takes_no_turns_after_all_says_so_over_http_too() -> None:
    async def use(counters: Any) -> Any:
        session = await counters.open({})
        return await counters.begin(session, {}), await counters.call(session, "get_counter_value", {})

    with hosting.hosted(KIND, Lasting) as url:
        assert over_http(url, use) == (None, '{"count":0}')


def test_arguments_that_no_request_can_hold_are_told_to_the_model() -> None:
    async def use(counters: Any) -> str:
        text: str = await counters.call(await counters.open({}), "increment_counter", {"count": 10**30})
        return text

    with hosting.hosted(KIND, ExampleSessionStateMgmt) as url:
        assert over_http(url, use).startswith("error: increment_counter: the arguments cannot be sent")
