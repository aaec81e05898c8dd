"""`/mcp` of an environment's server, with the client of the official SDK and real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import aiohttp
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.support.patience import DEADLINE_S
from velodrome.errors import TaskError
from velodrome.resources_servers.environment import tool
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.serving.apps.resources_app import COOKIE, Sessions, Ticket
from velodrome.serving.apps.routes import BadRequest, Peers, RequestLimits
from velodrome.serving.apps.web_app import Status
from velodrome.serving.hosting import server_app
from velodrome.serving.process.listen import listening
from velodrome.serving.web_server import running

Json = dict[str, Any]


class Counting(ExampleSessionStateMgmt):
    """A counter with a tool that fails; it says when a session was closed."""

    closed: ClassVar[asyncio.Event]

    @tool
    async def fail(self) -> str:
        """Never works."""
        raise RuntimeError("the counter is on fire")

    async def close_session(self, session: Any) -> None:
        self.closed.set()


@asynccontextmanager
async def server(**settings: Any) -> AsyncIterator[str]:
    """The URL of a server of a counter."""
    limits = RequestLimits(token=settings.pop("token", None))
    make = partial(server_app, Status("counter", "resources_servers", "test"), Counting(), limits, **settings)
    with listening("counter", "127.0.0.1", 0, None, way="") as sock:
        async with running(make, [sock], drain_s=1):
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"


async def seeded(url: str, task: Json, **headers: str) -> str:
    """The token of a new session for a task."""
    async with aiohttp.ClientSession(headers=headers) as http, http.post(f"{url}/seed_session", json=task) as reply:
        assert reply.status == 200, await reply.text()
        return reply.cookies[COOKIE].value


@asynccontextmanager
async def connected(url: str, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        headers = {"Authorization": f"Bearer {token}"}
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S))
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        yield await stack.enter_async_context(Client(transport, mode=mode))


async def told(client: Client, name: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    return f"{'wrong: ' if result.is_error else ''}{result.content[0].text}"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_real_client_lists_and_calls_the_tools_of_its_session(mode: str):
    async def check() -> None:
        async with server() as url, connected(url, await seeded(url, {"initial_count": 3}), mode) as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert sorted(tools) == ["fail", "get_counter_value", "increment_counter"]
            counter = tools["increment_counter"]
            assert counter.description == "Add to the counter."
            assert counter.input_schema["properties"]["count"]["type"] == "integer"
            assert (await told(client, "increment_counter", count="many")).startswith("wrong: error: ")
            assert (await told(client, "increment_countr")).startswith("wrong: error: there is no tool")
            with pytest.raises(MCPError, match="the counter is on fire"):
                await client.call_tool("fail", {})
            assert await told(client, "increment_counter", count=4) == '{"success":true}'
            assert await told(client, "get_counter_value") == '{"count":7}'

    asyncio.run(check())


def test_sessions_at_once_do_not_mix_and_are_scored_where_they_were_opened():
    async def one(url: str, start: int) -> tuple[str, float]:
        token = await seeded(url, {"initial_count": start})
        async with connected(url, token) as client:
            for _ in range(3):
                await client.call_tool("increment_counter", {"count": start})
            value = await told(client, "get_counter_value")
        task = {"expected_count": 4 * start, "response": {"output": []}}
        async with (
            aiohttp.ClientSession(cookies={COOKIE: token}) as http,
            http.post(f"{url}/verify", json=task) as reply,
        ):
            return value, (await reply.json())["reward"]

    async def check() -> list[tuple[str, float]]:
        async with server() as url:
            return await asyncio.gather(*(one(url, start) for start in range(1, 7)))

    assert asyncio.run(check()) == [(f'{{"count":{4 * start}}}', 1.0) for start in range(1, 7)]


async def posted(url: str, **headers: str) -> tuple[int, str]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream", **headers}
    async with aiohttp.ClientSession(headers=headers) as http, http.post(f"{url}/mcp", json=message) as reply:
        return reply.status, await reply.text()


@pytest.mark.parametrize("token", [None, "a-token-for-tests"])
def test_a_wrong_token_and_a_foreign_page_are_refused(token: str | None):
    async def check() -> None:
        async with server(token=token) as url:
            opening = {"Authorization": f"Bearer {token}"} if token else {}
            good = await seeded(url, {}, **opening)
            assert (await posted(url, Authorization=f"Bearer {good}"))[0] == 200
            assert (await posted(url, Cookie=f"{COOKIE}={good}"))[0] == 200
            status, text = await posted(url)
            assert status == 401
            assert "seed_session" in text
            handle, worker, start, _ = good.split(".")
            forged = Ticket(handle, int(worker), start).cookie(b"another key")
            for wrong in (forged, good[:-1] + ("0" if good[-1] != "0" else "1"), "x", token or "y"):
                assert (await posted(url, Authorization=f"Bearer {wrong}"))[0] == 401
            if token is None:
                assert (await posted(url, Authorization=f"Bearer {good}", Host="evil.example"))[0] == 421
                assert (await posted(url, Authorization=f"Bearer {good}", Origin="http://evil.example"))[0] == 403

    asyncio.run(check())


def test_idle_sessions_are_closed_and_their_tokens_are_worth_nothing():
    async def check() -> None:
        Counting.closed = asyncio.Event()
        async with server(session_ttl_s=0.05) as url:
            token = await seeded(url, {})
            await asyncio.wait_for(Counting.closed.wait(), DEADLINE_S)
            assert (await posted(url, Authorization=f"Bearer {token}"))[0] == 404

    asyncio.run(check())


def test_the_cap_on_sessions_answers_clearly_and_makes_room_again():
    async def check() -> None:
        async with server(max_sessions=2) as url, aiohttp.ClientSession() as http:
            first, _ = await seeded(url, {}), await seeded(url, {})
            async with http.post(f"{url}/seed_session", json={}) as reply:
                assert (reply.status, "(max_sessions)" in await reply.text()) == (503, True)
            async with http.post(f"{url}/close_session", json={}, headers={"Cookie": f"{COOKIE}={first}"}) as reply:
                assert reply.status == 200
            await seeded(url, {})

    asyncio.run(check())


def test_the_cap_on_sessions_counts_the_sessions_that_are_still_opening():
    class Slow(Counting):
        async def seed_session(self, task: Json) -> Any:
            await asyncio.sleep(0)
            return await super().seed_session({"initial_count": task["count"]})

    async def check() -> None:
        sessions = Sessions(Slow(), b"key", Peers(), ttl_s=60, max_sessions=2)
        tasks: list[Json] = [{"count": "many"}, {"count": 1}, {"count": 2}]
        results = await asyncio.gather(*map(sessions.open, tasks), return_exceptions=True)
        assert [type(result) for result in results] == [TaskError, str, BadRequest]
        await sessions.open({"count": 3})  # the failed one does not hold its place
        assert len(sessions) == 2

    asyncio.run(check())


def test_a_session_of_another_worker_is_reached_through_any():
    async def check() -> str:
        environments = [Counting(), Counting()]
        async with AsyncExitStack() as stack:
            socks = [stack.enter_context(listening("w", "127.0.0.1", 0, None, way="")) for _ in environments]
            urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in socks]
            for worker, (sock, each) in enumerate(zip(socks, environments, strict=True)):
                status = Status("counter", "resources_servers", "test")
                make = partial(server_app, status, each, key=b"shared", peers=urls, worker=worker)
                await stack.enter_async_context(running(make, [sock], drain_s=1))
            token = await seeded(urls[0], {"initial_count": 9})
            async with connected(urls[1], token) as client:
                return await told(client, "get_counter_value")

    assert asyncio.run(check()) == '{"count":9}'
