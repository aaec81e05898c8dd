"""An app answers each route and method, with CORS and without."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import orjson
import pytest
from starlette.middleware.cors import CORSMiddleware

from tests.support import hosted as hosting
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.apps.web_app import Status
from velodrome.serving.hosting import server_app

SUM = {"expression": "1 + 2"}
TOKEN = [(b"authorization", b"Bearer a-token-for-tests")]
REQUESTS = [
    ("POST", "/calculator", SUM, TOKEN, 200),
    ("POST", "/calculator", SUM, [(b"x-api-key", b"a-token-for-tests")], 200),
    ("POST", "/calculater", SUM, TOKEN, 200),  # the model is told that there is no such tool
    ("POST", "/calculator/more", SUM, TOKEN, 404),
    ("POST", "/verify", {"response": 1}, TOKEN, 422),
    ("POST", "/verify", {"expected_answer": "3", "response": {"output": "x"}}, TOKEN, 422),
    ("POST", "/verify", {"expected_answer": "3", "response": {"output": [5]}}, TOKEN, 422),
    ("POST", "/verify", {"response": {"output": [{"type": "message", "content": 5}]}}, TOKEN, 422),
    ("GET", "/tools", None, TOKEN, 200),
    ("GET", "/health", None, [], 200),
    ("HEAD", "/health", None, [], 200),
    ("POST", "/health", {}, [], 401),
    ("POST", "/", {}, TOKEN, 405),
]
REFUSALS = [
    ("GET", "/tools", [], 401, "unauthorized", "a bearer token is required"),
    ("GET", "/tools", [(b"authorization", b"Bearer no")], 401, "unauthorized", "the token is wrong"),
    ("POST", "/calculator", [(b"x-api-key", b"no")], 401, "unauthorized", "the token is wrong"),
    ("GET", "/calculator", TOKEN, 405, "invalid_request_error", "GET /calculator: only with POST"),
    ("DELETE", "/tools", TOKEN, 405, "invalid_request_error", "DELETE /tools: only with GET, HEAD"),
    ("PUT", "/verify", TOKEN, 405, "invalid_request_error", "PUT /verify: only with POST"),
]


async def calculator(*, cors: bool) -> Any:
    status = Status("calculator", "resources_servers", "calculator")
    app = await server_app(status, Calculator(), RequestLimits(token="a-token-for-tests"))
    return CORSMiddleware(app, allow_origins=["https://a.test"]) if cors else app


@pytest.mark.parametrize("cors", [False, True], ids=["plain", "cors"])
def test_every_route_has_its_status_and_an_error_is_json(cors: bool) -> None:
    async def run() -> None:
        app = await calculator(cors=cors)
        for method, path, body, headers, expected in REQUESTS:
            status, answer = await hosting.ask(app, method, path, body, headers)
            assert status == expected, (method, path, body)
            assert b"a-token-for-tests" not in answer
            assert status < 400 or orjson.loads(answer)["error"]["message"]
        for method, path, headers, expected, kind, says in REFUSALS:
            status, answer = await hosting.ask(app, method, path, SUM, headers)
            error = orjson.loads(answer)["error"]
            assert (status, error["type"], error["message"].partition(" (")[0]) == (expected, kind, says)

    asyncio.run(run())


def test_without_a_token_only_a_body_must_be_json_and_that_is_no_matter_of_permission() -> None:
    with hosting.hosted("resources_servers", Calculator) as url:
        form, deleted = httpx2.post(f"{url}/calculator", data={"a": "b"}), httpx2.request("DELETE", f"{url}/tools")
    assert (form.status_code, form.json()["error"]["type"]) == (415, "invalid_request_error")
    assert (deleted.status_code, deleted.headers["allow"]) == (405, "GET, HEAD")
