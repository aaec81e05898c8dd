"""What the wire must not add: other meanings of a tool's name, lost rollouts, told secrets, somebody else's session."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from tests.support import hosted as hosting
from tests.support.patience import DEADLINE_S
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


def test_a_model_reaches_nothing_but_tools_whatever_it_calls() -> None:
    calls: list[tuple[str, Any]] = [(name, {}) for name in NAMES]
    calls += [("increment_counter", [1]), ("increment_counter", None)]
    unsendable = ("increment_counter", {"count": 10**30})

    async def use(counters: Any) -> list[str]:
        result = []
        for name, arguments in calls:
            session = await counters.open({"initial_count": 7})
            result.append(await counters.call(session, name, arguments))
            result.append(await counters.call(session, "get_counter_value", {}))
            await counters.close(session)
        return result

    async def send(counters: Any) -> str:
        text: str = await counters.call(await counters.open({}), *unsendable)
        return text

    with hosting.hosted(KIND, ExampleSessionStateMgmt, workers=2) as url:
        served = over_http(url, use)
        assert over_http(url, send).startswith("error: increment_counter: the arguments cannot be sent")
    assert served == asyncio.run(use(ExampleSessionStateMgmt()))
    assert set(served[1::2]) == {'{"count":7}'}


def test_a_cookie_from_before_a_restart_closes_nobody_elses_session() -> None:
    def seeded(url: str) -> dict[str, str]:
        cookie = httpx2.post(f"{url}/seed_session", json={"initial_count": 3}, timeout=DEADLINE_S).headers["Set-Cookie"]
        return {"Cookie": cookie.partition(";")[0]}

    with (
        hosting.hosted(KIND, ExampleSessionStateMgmt) as before,
        hosting.hosted(KIND, ExampleSessionStateMgmt) as after,
    ):
        old, new = seeded(before), seeded(after)  # both handles are the first
        assert httpx2.post(f"{after}/close_session", json={}, headers=old, timeout=DEADLINE_S).status_code == 200
        assert httpx2.post(f"{after}/get_counter_value", json={}, headers=new, timeout=DEADLINE_S).text == '{"count":3}'


class Talkative(Environment):
    @tool
    def act(self) -> str:
        raise RuntimeError("no luck with hunter2-hunter2")

    def verify(self, task: Any, response: Any) -> Any:
        return {"reward": 1.0}


def test_a_secret_of_the_config_is_not_told_in_an_error() -> None:
    with (
        hosting.hosted(KIND, Talkative, limits=RequestLimits(secrets=frozenset(("hunter2-hunter2",)))) as url,
        pytest.raises(ToolError) as caught,
    ):
        over_http(url, lambda there: there.call("", "act", {}))
    assert str(caught.value).endswith("no luck with ***")


class Stranger(Talkative):
    """Has the contract's methods and none of its manners."""

    async def call(self, session: str, name: str, arguments: Any) -> str:
        raise KeyError("lost")

    async def score(self, session: str, task: Any, response: Any) -> Any:
        return {"reward": object()}


def test_a_component_that_raises_what_it_should_not_is_blamed_in_its_own_words() -> None:
    with hosting.hosted(KIND, Stranger) as url:
        asked = {"act": {}, "verify": {"response": {"output": []}}}
        replies = [httpx2.post(f"{url}/{path}", json=body, timeout=DEADLINE_S) for path, body in asked.items()]
    assert [(each.status_code, each.json()["error"]["boundary"]) for each in replies] == [
        (502, "tool"),
        (502, "verify"),
    ]


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
    below = io.StringIO()
    Masked(below, ["hunter2-hunter2"]).writelines(["the key is hunter2", "-hunter2\n", "and on\n"])
    assert below.getvalue() == "the key is ***\nand on\n"
