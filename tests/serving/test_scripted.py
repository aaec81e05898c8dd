"""The scripted model on a real socket: HTTP that is just right, and faults that really happen on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.patience import DEADLINE_S
from velodrome.errors import ServerError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.scripted import ScriptedServer

HEADERS = "Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
ASK = {"input": "hi"}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


class Wire:
    """A bare socket to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def rest(self) -> bytes:
        return await self.reader.read()


async def until(met: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's own time limit is the other end."""
    for _ in iter(met, True):
        await asyncio.sleep(0)


def request(body: Any = ASK, path: str = "/v1/responses", method: str = "POST") -> bytes:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return f"{method} {path} HTTP/1.1\r\n{HEADERS}Content-Length: {len(data)}\r\n\r\n".encode() + data


def on_the_wire(config: dict[str, Any], act: Callable[[Wire, ScriptedServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ScriptedServer(ScriptedModel(**config)) as server, asyncio.timeout(DEADLINE_S):
            port = int(server.url.split(":")[2].split("/")[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await act(Wire(reader, writer), server)
            finally:
                writer.close()

    asyncio.run(main())


def test_responses_and_chat_say_the_same():
    message = {"content": "let me", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]}

    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        response = orjson.loads((await wire.answer())[2])
        for byte in request(CHAT, "/v1/chat/completions?x=1"):  # byte by byte
            wire.send(bytes([byte]))
            await wire.writer.drain()
        completion = orjson.loads((await wire.answer())[2])
        assert [item["type"] for item in response["output"]] == ["message", "function_call"]
        (choice,) = completion["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("let me", "tool_calls")
        call = {"id": "call_0_0", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
        assert choice["message"]["tool_calls"] == [call]
        assert completion["usage"]["total_tokens"] == response["usage"]["total_tokens"] == 11

    on_the_wire({"answers": [message]}, act)


SENSELESS = [
    (request(path="/responses"), 404),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    *((request(body), 400) for body in (b"not json", [1], {"input": 5}, {"input": ["text"]})),
    *((request(body, "/v1/chat/completions"), 400) for body in ({"messages": "text"}, {})),
]


ENDLESS = [
    (b"POST /v1/responses HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /v1/responses HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
    (b"POST /v1/responses HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"hello\r\n\r\n", 400),
]


@pytest.mark.parametrize(("last", "status"), ENDLESS)
def test_a_request_that_makes_no_sense_is_answered_and_one_of_unknown_length_ends_the_connection(
    last: bytes, status: int
):
    async def act(wire: Wire, server: ScriptedServer) -> None:
        for data, expected in SENSELESS:
            wire.send(data)
            result, _, body = await wire.answer()
            assert (result, isinstance(orjson.loads(body)["error"]["message"], str)) == (expected, True)
        wire.send(request())
        assert (await wire.answer())[0] == 200
        wire.send(last)
        assert (await wire.answer())[0] == status
        assert await wire.rest() == b""

    on_the_wire({"answers": ["x"]}, act)


def faulty(*faults: dict[str, Any]) -> dict[str, Any]:
    return {"answers": ["a long enough answer"], "faults": [{"times": 1, **fault} for fault in faults]}


STATUSES = [
    ({"kind": "status", "status": 429, "retry_after_s": 1.5, "body": "slow down"}, 429, "1.5", b"slow down"),
    ({"kind": "status"}, 500, None, b'"scripted"'),
    ({"kind": "garbage"}, 200, None, b""),
]


@pytest.mark.parametrize(("fault", "status", "retry_after", "part"), STATUSES)
def test_a_status_has_its_body_and_retry_after_and_garbage_is_not_json(
    fault: Any, status: int, retry_after: str | None, part: bytes
):
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        result, headers, data = await wire.answer()
        assert (result, headers.get("retry-after"), part in data) == (status, retry_after, True)
        if status == 200:
            with pytest.raises(orjson.JSONDecodeError):
                orjson.loads(data)
        wire.send(request())
        assert (await wire.answer())[0] == 200

    on_the_wire(faulty(fault), act)


def test_half_a_body_a_reset_and_silence_happen_on_the_wire_and_others_are_answered():
    async def half(wire: Wire, server: ScriptedServer) -> None:
        head, _, body = (await wire.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert 0 < len(body) < int(head.lower().split(b"content-length: ")[1])

    async def reset(wire: Wire, server: ScriptedServer) -> None:
        with pytest.raises(ConnectionResetError):
            await wire.rest()

    async def never(wire: Wire, server: ScriptedServer) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.reader.read(1), 0.05)
        assert not wire.reader.at_eof()

    for kind, seen in (("half_body", half), ("reset", reset), ("never", never)):

        async def act(wire: Wire, server: ScriptedServer, seen: Any = seen) -> None:
            wire.send(request())
            await until(lambda: server.model.calls == 1)
            async with aiohttp.ClientSession() as session, session.post(f"{server.url}/responses", json=ASK) as reply:
                assert reply.status == 200
            await seen(wire, server)

        on_the_wire(faulty({"kind": kind}), act)


def test_a_client_that_goes_away_ends_its_call_and_closing_the_server_ends_all():
    async def main() -> None:
        before = asyncio.all_tasks()
        async with ScriptedServer(ScriptedModel(answers=["x"], latency_s=3600)) as server:
            port = int(server.url.split(":")[2].split("/")[0])
            wires = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for _, writer in wires:
                writer.write(request())
            await until(lambda: server.model.calls == 2)
            wires[0][1].close()
            await until(lambda: len(server.connections) == 1)
        for reader, _ in wires:
            assert await reader.read() == b""
        await until(lambda: asyncio.all_tasks() == before)
        wires[1][1].close()

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_a_port_that_is_taken_is_said():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        taken = wire.writer.get_extra_info("peername")[1]
        with pytest.raises(ServerError, match=rf"^127\.0\.0\.1:{taken}: "):
            await ScriptedServer(server.model, "127.0.0.1", taken).__aenter__()

    on_the_wire({"answers": ["x"]}, act)
