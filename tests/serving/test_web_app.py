"""An app answers each route and method, with CORS and without; and an answer leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

import hosted as hosting
import httpx2
import orjson
import pytest
from starlette.middleware.cors import CORSMiddleware

from velodrome.resources_servers.calculator.app import Calculator
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.apps.web_app import Status
from velodrome.serving.hosting import server_app
from velodrome.serving.web_server import Corked

SUM = {"expression": "1 + 2"}
TOKEN = [(b"authorization", b"Bearer a-token-for-tests")]
REQUESTS = [
    ("POST", "/calculator", SUM, TOKEN, 200),
    ("POST", "/calculator", SUM, [], 401),
    ("POST", "/calculator", SUM, [(b"authorization", b"Bearer wrong")], 401),
    ("POST", "/calculater", SUM, TOKEN, 200),  # the model is told that there is no such tool
    ("POST", "/calculator/more", SUM, TOKEN, 404),
    ("POST", "/verify", {"response": 1}, TOKEN, 422),
    ("POST", "/verify", {"expected_answer": "3", "response": {"output": "x"}}, TOKEN, 422),
    ("POST", "/verify", {"expected_answer": "3", "response": {"output": [5]}}, TOKEN, 422),
    (
        "POST",
        "/verify",
        {"expected_answer": "3", "response": {"output": [{"type": "message", "content": 5}]}},
        TOKEN,
        422,
    ),
    ("GET", "/calculator", None, TOKEN, 405),
    ("GET", "/tools", None, TOKEN, 200),
    ("GET", "/tools", None, [], 401),
    ("GET", "/health", None, [], 200),
    ("HEAD", "/health", None, [], 200),
    ("POST", "/health", {}, [], 401),
    ("PUT", "/health", {}, [], 401),
    ("GET", "/docs", None, TOKEN, 200),
    ("PUT", "/verify", {}, TOKEN, 405),
    ("POST", "/", {}, TOKEN, 405),
]


@pytest.mark.parametrize("cors", [False, True], ids=["plain", "cors"])
@pytest.mark.parametrize(("method", "path", "body", "headers", "expected"), REQUESTS)
def test_every_route_has_its_status_and_an_error_is_json(
    method: str, path: str, body: Any, headers: Any, expected: int, cors: bool
) -> None:
    async def run() -> tuple[int, bytes]:
        status = Status("calculator", "resources_servers", "calculator")
        app = await server_app(status, Calculator(), RequestLimits(token="a-token-for-tests"))
        if cors:
            app = CORSMiddleware(app, allow_origins=["https://a.test"])
        return await hosting.ask(app, method, path, body, headers)

    status, answer = asyncio.run(run())
    assert status == expected
    assert b"a-token-for-tests" not in answer
    assert status < 400 or method == "HEAD" or orjson.loads(answer)["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "kind", "says"),
    [
        ("GET", "/tools", {}, 401, "unauthorized", "a bearer token is required"),
        ("GET", "/tools", {"authorization": "Bearer no"}, 401, "unauthorized", "the token is wrong"),
        ("GET", "/tools", {"x-api-key": "no"}, 401, "unauthorized", "the token is wrong"),
        ("DELETE", "/tools", {"x-api-key": "yes"}, 405, "invalid_request_error", "DELETE /tools: only with GET, HEAD"),
        ("PUT", "/verify", {"x-api-key": "yes"}, 405, "invalid_request_error", "PUT /verify: only with POST"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_which_methods_there_are(
    method: str, path: str, headers: dict[str, str], status: int, kind: str, says: str
) -> None:
    with hosting.hosted("resources_servers", Calculator, limits=RequestLimits(token="yes")) as url:
        reply = httpx2.request(method, url + path, headers=headers)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["message"].partition(" (")[0]) == (status, kind, says)
    assert reply.headers.get("allow") == (says.partition("only with ")[2] or None)


def test_without_a_token_only_a_body_must_be_json_and_that_is_no_matter_of_permission() -> None:
    with hosting.hosted("resources_servers", Calculator) as url:
        form, deleted = httpx2.post(f"{url}/calculator", data={"a": "b"}), httpx2.request("DELETE", f"{url}/tools")
    assert (form.status_code, form.json()["error"]["type"]) == (415, "invalid_request_error")
    assert deleted.status_code == 405


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
