"""The short way to a server's routes answers as FastAPI's own does, and an answer leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from starlette.middleware.cors import CORSMiddleware

from velodrome.resources_servers.calculator.app import Calculator
from velodrome.serving.app import Limits, Status
from velodrome.serving.hosting import server_app
from velodrome.serving.web_server import Corked

SUM = {"expression": "1 + 2"}
TOKEN = [(b"authorization", b"Bearer a-token-for-tests")]
REQUESTS = [
    ("POST", "/calculator", SUM, TOKEN),
    ("POST", "/calculator", SUM, []),
    ("POST", "/calculator", SUM, [(b"authorization", b"Bearer wrong")]),
    ("POST", "/calculater", SUM, TOKEN),
    ("POST", "/health", SUM, TOKEN),
    ("POST", "/calculator/more", SUM, TOKEN),
    ("POST", "/verify", {"response": 1}, TOKEN),
    ("GET", "/calculator", None, TOKEN),
    ("GET", "/tools", None, TOKEN),
    ("GET", "/tools", None, []),
    ("PUT", "/verify", {}, TOKEN),
    ("POST", "/", {}, TOKEN),
]


async def answer(app: Any, method: str, path: str, body: Any, headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Status and body of one request."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"" if body is None else orjson.dumps(body), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize(("method", "path", "body", "headers"), REQUESTS)
def test_the_short_way_answers_as_the_long_one(method: str, path: str, body: Any, headers: Any) -> None:
    async def both() -> list[tuple[int, bytes]]:
        found = []
        for cors in (False, True):
            status = Status("calculator", "resources_servers", "calculator")
            app = await server_app(status, Calculator({}, {}), Limits(token="a-token-for-tests"))
            if cors:
                app.add_middleware(CORSMiddleware, allow_origins=["https://a.test"])
            found.append(await answer(app, method, path, body, headers))
        return found

    short, long = asyncio.run(both())

    assert short == long


class Transport:
    """Writes down what is sent through it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def corked(use: Any) -> list[list[bytes]]:
    """What had been sent after `use`, and what a turn of the loop later."""

    async def run() -> list[list[bytes]]:
        transport: Any = Transport()
        use(Corked(transport, asyncio.get_running_loop()))
        first = list(transport.sent)
        await asyncio.sleep(0)
        return [first, transport.sent]

    return asyncio.run(run())


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def test_a_head_leaves_with_its_body() -> None:
    def use(transport: Corked) -> None:
        transport.write(HEAD)
        transport.write(b"body")
        transport.write(b"more")

    assert corked(use) == [[HEAD + b"body", b"more"]] * 2


def test_a_head_without_a_body_leaves_by_itself() -> None:
    assert corked(lambda transport: transport.write(HEAD)) == [[], [HEAD]]


def test_a_head_is_sent_before_its_connection_is_closed() -> None:
    def use(transport: Corked) -> None:
        transport.write(HEAD)
        transport.close()

    assert corked(use) == [[HEAD]] * 2
