"""Requests that are too large, malformed, slow or uninvited do not stop the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import hosted as hosting
from patience import DEADLINE_S

from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.serving.apps.routes import RequestLimits

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
