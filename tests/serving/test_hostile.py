"""Requests that are too large, malformed, slow or uninvited do not stop the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import hosted as hosting
import pytest
from patience import DEADLINE_S

from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.serving.apps.web_app import RequestLimits

KIND = "resources_servers"
JSON = {"Content-Type": "application/json"}


async def ask(url: str, body: Any, **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession(headers=JSON) as session, session.post(url, data=body, **options) as reply:
        return reply.status, await reply.text()


def post(url: str, body: Any, **options: Any) -> tuple[int, str]:
    return asyncio.run(ask(url, body, **options))


def message(reply: tuple[int, str]) -> tuple[int, str]:
    return reply[0], json.loads(reply[1])["error"]["message"]


def test_a_body_that_is_too_large_or_not_json_is_refused_with_a_message() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    with hosting.hosted(KIND, Calculator, limits=RequestLimits(max_body_bytes=1000)) as url:
        assert message(post(f"{url}/calculator", b"x" * 2000))[0] == 413
        assert message(post(f"{url}/calculator", pieces()))[0] == 413
        assert message(post(f"{url}/calculator", b"{"))[0] == 400
        assert message(post(f"{url}/verify", b"[1]"))[0] == 400
        assert message(post(f"{url}/verify", b"{}"))[0] == 422
        assert message(post(f"{url}/no/such", b"{}"))[0] == 404
        assert post(f"{url}/calculator", b'{"expression": "6 * 7"}') == (200, "42")


def test_a_body_that_drips_is_given_up_and_holds_up_nobody() -> None:
    async def use(url: str) -> tuple[bytes, tuple[int, str]]:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /calculator HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        quick = await ask(f"{url}/calculator", b'{"expression": "6 * 7"}')
        slow = await asyncio.wait_for(reader.read(1000), DEADLINE_S)
        writer.close()
        return slow, quick

    for limit_s in (0.3, 3, 30):  # a busy machine may need more for the quick one's body too
        with hosting.hosted(KIND, Calculator, limits=RequestLimits(body_timeout_s=limit_s)) as url:
            slow, quick = asyncio.run(use(url))
        if quick[0] != 408:
            break
    assert quick == (200, "42")
    assert slow.startswith(b"HTTP/1.1 408")


def test_a_session_cookie_that_was_made_up_is_refused() -> None:
    with hosting.hosted(KIND, ExampleSessionStateMgmt) as url:
        for value in ("1.0.abc.def", "x", ""):
            headers = {"Cookie": f"velodrome_session={value}"}
            assert post(f"{url}/get_counter_value", b"{}", headers=headers)[0] == 401


@pytest.mark.slow
def test_a_thousand_rollouts_leave_no_session_in_any_worker() -> None:
    """Each seeds, counts, verifies and closes; 64 are in flight; each sees its own counter only."""

    async def rollout(session: aiohttp.ClientSession, url: str, number: int) -> None:
        task = {"responses_create_params": {"input": "x"}, "initial_count": number, "expected_count": number + 2}
        async with session.post(f"{url}/seed_session", json=task) as reply:
            headers = {"Cookie": reply.headers["Set-Cookie"].partition(";")[0]}
        async with session.post(f"{url}/increment_counter", json={"count": 2}, headers=headers) as reply:
            assert reply.status == 200
        body = {**task, "response": {"output": []}}
        async with session.post(f"{url}/verify", json=body, headers=headers) as reply:
            assert (await reply.json())["reward"] == 1.0
        async with session.post(f"{url}/close_session", json={}, headers=headers) as reply:
            assert reply.status == 200

    async def use(url: str) -> set[int]:
        numbers = iter(range(1000))
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(cookie_jar=jar, connector=aiohttp.TCPConnector(limit=64)) as session:

            async def worker() -> None:
                for number in numbers:
                    await rollout(session, url, number)

            await asyncio.gather(*(worker() for _ in range(64)))
        counts = set()
        for _ in range(12):  # a new connection each time, so that every worker is met
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                counts.add((await reply.json())["open_sessions"])
        return counts

    with hosting.hosted(KIND, ExampleSessionStateMgmt, workers=3) as url:
        assert asyncio.run(use(url)) == {0}
