"""Requests that are too large, malformed, slow or uninvited do not stop the others."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from tests.support import hosted as hosting
from tests.support.patience import DEADLINE_S
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.serving.apps.routes import RequestLimits

KIND = "resources_servers"
SUM = b'{"expression": "6 * 7"}'


def post(url: str, body: Any, **headers: str) -> tuple[int, str]:
    reply = httpx2.post(url, content=body, headers={"Content-Type": "application/json", **headers}, timeout=DEADLINE_S)
    if reply.status_code >= 400:
        assert reply.json()["error"]["message"]
    return reply.status_code, reply.text


REFUSED = [
    ("calculator", b"x" * 2000, 413),
    ("calculator", [b"x" * 100] * 20, 413),  # its length is not told
    ("calculator", b"{", 400),
    ("verify", b"[1]", 400),
    ("verify", b"{}", 422),
    ("no/such", b"{}", 404),
]


def test_a_body_that_is_too_large_or_not_json_is_refused_with_a_message() -> None:
    with hosting.hosted(KIND, Calculator, limits=RequestLimits(max_body_bytes=1000)) as url:
        assert [post(f"{url}/{path}", body)[0] for path, body, _ in REFUSED] == [status for _, _, status in REFUSED]
        assert post(f"{url}/calculator", SUM) == (200, "42")


def test_a_body_that_drips_is_given_up_and_holds_up_nobody() -> None:
    async def use(url: str) -> tuple[bytes, tuple[int, str]]:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /calculator HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        quick = await asyncio.to_thread(post, f"{url}/calculator", SUM)
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
            assert post(f"{url}/get_counter_value", b"{}", Cookie=f"velodrome_session={value}")[0] == 401
