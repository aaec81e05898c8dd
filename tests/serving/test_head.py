"""The head tells what the supervisor told it; and the sockets, the heads of requests and the probe are bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
import uvicorn

from tests.support.patience import DEADLINE_S
from velodrome.errors import InputError
from velodrome.serving.apps.head_app import head_app
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.apps.web_app import Status
from velodrome.serving.process.listen import head_address, listening, reachable, server_token
from velodrome.serving.process.probe import fetch
from velodrome.serving.web_server import HttpProtocol

STATE = {"name": "m", "type": "responses_api_models", "implementation": "scripted_model", "port": 7001}
STATE |= {"pid": 5, "status": "ok", "start_time": 100.0, "restarts": 0, "last_exit": None}


class Short(HttpProtocol):
    """The same with a small bound."""

    max_head_bytes = 1000


def with_head(act: Callable[[int], Awaitable[Any]], *, token: str | None = None, protocol: Any = HttpProtocol) -> Any:
    """What `act` returns, done while a head serves at a port."""
    status = Status("head_server", "head_server", "head")
    app = head_app(status, lambda: [STATE], "a: 1\n", RequestLimits(token=token))
    sock = listening("test", "127.0.0.1", 0, None)

    async def whole() -> Any:
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, ws="none", log_config=None, access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await act(sock.getsockname()[1])
        finally:
            server.should_exit = True
            await serving

    try:
        return asyncio.run(whole())
    finally:
        sock.close()


def test_the_config_is_yaml_in_a_json_string_and_the_servers_are_a_list():
    async def act(port: int) -> Any:
        paths = ("/global_config_dict_yaml", "/server_instances", "/health", "/nothing")
        return [await fetch("127.0.0.1", port, path, timeout_s=DEADLINE_S) for path in paths]

    config, instances, health, nothing = with_head(act)
    assert config == (200, b'"a: 1\\n"')
    [report] = orjson.loads(instances[1])
    assert report.pop("uptime_s") > 0
    assert report == {**STATE, "server_type": "responses_api_models", "process_name": "m"}
    assert (health[0], nothing[0]) == (200, 404)


def test_a_token_is_wanted_for_all_but_health():
    async def act(port: int) -> Any:
        request = [("/health", None), ("/server_instances", None), ("/server_instances", "wrong"), ("/", "right")]
        answers = [await fetch("127.0.0.1", port, path, timeout_s=DEADLINE_S, token=token) for path, token in request]
        return [answer[0] for answer in answers if answer is not None]

    assert with_head(act, token="right") == [200, 401, 401, 200]


def test_a_head_that_does_not_end_ends_the_connection():
    async def act(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nX: " + b"y" * 2000)
        result = await reader.read()  # until the server closes
        writer.close()
        return result.partition(b"\r\n")[0]

    assert with_head(act, protocol=Short) == b"HTTP/1.1 400 Bad Request"


def test_beyond_loopback_a_token_is_wanted():
    with pytest.raises(InputError, match=r"^a.yaml: m: 0.0.0.0 .*server_token"):
        listening("a.yaml: m", "0.0.0.0", 0, None)
    listening("m", "0.0.0.0", 0, "token").close()
    listening("m", "localhost", 0, None).close()


def test_an_address_that_is_taken_or_is_none_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"^m: .*127.0.0.1:{port}"):
            listening("m", "127.0.0.1", port, None)
    with pytest.raises(InputError, match=r"^m: .*'no such host'"):
        listening("m", "no such host", 0, None)


def test_the_address_of_the_head_has_defaults_and_is_checked():
    assert head_address({}) == ("127.0.0.1", 11000)
    assert head_address({"head_server": {"port": 5}}) == ("127.0.0.1", 5)
    assert [reachable(host) for host in ("0.0.0.0", "::", "::1", "a.b")] == ["127.0.0.1", "[::1]", "[::1]", "a.b"]
    for wrong in (7, {"port": "x"}, {"port": 70000}, {"host": 1}):
        with pytest.raises(InputError, match=r"^head_server"):
            head_address({"head_server": wrong})


def test_the_token_is_the_setting_before_the_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VELODROME_TOKEN", raising=False)
    assert server_token({}) is None
    monkeypatch.setenv("VELODROME_TOKEN", "from-the-environment")
    assert server_token({}) == "from-the-environment"
    assert server_token({"server_token": "mine"}) == "mine"
    with pytest.raises(InputError, match="printable ASCII"):
        server_token({"server_token": "two words"})
