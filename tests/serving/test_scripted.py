"""The scripted model on a real socket: HTTP that is just right, and faults that really happen on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from patience import DEADLINE_S

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


def said(data: bytes) -> str:
    text: str = orjson.loads(data)["output"][0]["content"][0]["text"]
    return text


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


def over_http(config: dict[str, Any], act: Callable[[aiohttp.ClientSession, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            ScriptedServer(ScriptedModel(**config)) as server,
            aiohttp.ClientSession() as session,
            asyncio.timeout(DEADLINE_S),
        ):
            await act(session, server.url)

    asyncio.run(main())


def test_responses_and_chat_say_the_same():
    message = {"content": "let me", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]}

    async def act(session: aiohttp.ClientSession, url: str) -> None:
        async with session.post(f"{url}/responses", json=ASK) as reply:
            response = await reply.json()
        async with session.post(f"{url}/chat/completions?x=1", json=CHAT) as reply:
            completion = await reply.json()
        assert [item["type"] for item in response["output"]] == ["message", "function_call"]
        (choice,) = completion["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("let me", "tool_calls")
        assert choice["message"]["tool_calls"] == [
            {"id": "call_0_0", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
        ]
        assert completion["usage"]["total_tokens"] == response["usage"]["total_tokens"] == 11

    over_http({"answers": [message]}, act)


def test_requests_sent_without_waiting_are_answered_one_after_the_other_in_order():
    conversations = [
        [{"role": "user", "content": "q"}] + [{"role": "assistant", "content": "a"}] * turns for turns in (0, 1)
    ]

    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(b"".join(request({"input": each}) for each in conversations * 3))
        result = [said((await wire.answer())[2]) for _ in range(6)]
        assert result == ["one", "two"] * 3

    on_the_wire({"answers": ["one", "two"], "latency_s": 0.001}, act)


def test_a_request_may_arrive_byte_by_byte():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        for byte in request():
            wire.send(bytes([byte]))
            await wire.writer.drain()
        assert (await wire.answer())[0] == 200

    on_the_wire({"answers": ["x"]}, act)


SENSELESS = [
    (request(path="/responses"), 404),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    *((request(body), 400) for body in (b"not json", [1], {"input": 5}, {"input": ["text"]})),
    *((request(body, "/v1/chat/completions"), 400) for body in ({"messages": "text"}, {})),
]


def test_a_request_that_makes_no_sense_is_answered_and_the_connection_goes_on():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        for data, status in SENSELESS:
            wire.send(data)
            result, _, body = await wire.answer()
            assert (result, isinstance(orjson.loads(body)["error"]["message"], str)) == (status, True)
        wire.send(request())
        assert (await wire.answer())[0] == 200

    on_the_wire({"answers": ["x"]}, act)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /v1/responses HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/responses HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /v1/responses HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"hello\r\n\r\n", 400),
    ],
)
def test_a_body_whose_length_is_not_known_is_refused_and_the_connection_closed(data: bytes, status: int):
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(data)
        assert (await wire.answer())[0] == status
        assert await wire.rest() == b""

    on_the_wire({"answers": ["x"]}, act)


def test_a_script_that_breaks_is_answered_with_an_error(tmp_path: Path):
    path = tmp_path / "s.py"
    path.write_text("def f(request):\n    return {}[request['input']]\n")

    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        status, _, body = await wire.answer()
        assert status == 400
        assert orjson.loads(body)["error"]["message"] == "no answer to this request: KeyError: 'hi'"

    on_the_wire({"function": f"{path}:f"}, act)


def faulty(**fault: Any) -> dict[str, Any]:
    return {"answers": ["a long enough answer"], "faults": [{"times": 1, **fault}]}


def test_a_status_comes_with_its_body_and_its_retry_after():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        status, headers, body = await wire.answer()
        assert (status, headers["retry-after"], body) == (429, "1.5", b"slow down")
        wire.send(request())
        status, headers, _ = await wire.answer()
        assert (status, "retry-after" in headers) == (200, False)

    on_the_wire(faulty(kind="status", status=429, retry_after_s=1.5, body="slow down"), act)


def test_a_status_that_is_not_described_is_500_with_a_body_that_says_so_and_no_retry_after():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        status, headers, body = await wire.answer()
        assert (status, "retry-after" in headers, orjson.loads(body)["error"]["type"]) == (500, False, "scripted")

    on_the_wire(faulty(kind="status"), act)


def test_garbage_is_a_success_that_is_not_json():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        status, _, body = await wire.answer()
        assert status == 200
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(body)

    on_the_wire(faulty(kind="garbage"), act)


def test_half_a_body_is_fewer_bytes_than_promised_and_then_the_end():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        head, _, body = (await wire.rest()).partition(b"\r\n\r\n")
        promised = int(head.lower().split(b"content-length: ")[1])
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert 0 < len(body) < promised

    on_the_wire(faulty(kind="half_body"), act)


def test_after_a_reset_a_new_connection_is_served():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        with pytest.raises(ConnectionResetError):
            await wire.rest()
        assert server.connections == set()
        async with aiohttp.ClientSession() as session, session.post(f"{server.url}/responses", json=ASK) as reply:
            assert reply.status == 200

    on_the_wire(faulty(kind="reset"), act)


def test_never_is_silence_on_an_open_connection_while_others_are_answered():
    async def act(wire: Wire, server: ScriptedServer) -> None:
        wire.send(request())
        port = wire.writer.get_extra_info("peername")[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        other = Wire(reader, writer)
        await until(lambda: server.model.calls == 1)
        other.send(request())
        assert (await other.answer())[0] == 200
        writer.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.reader.read(1), 0.05)
        assert not wire.reader.at_eof()

    on_the_wire(faulty(kind="never"), act)


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
    async def main() -> None:
        async with ScriptedServer(ScriptedModel(answers=["x"])) as server:
            taken = int(server.url.rpartition(":")[2].removesuffix("/v1"))
            with pytest.raises(ServerError, match=rf"^127\.0\.0\.1:{taken}: cannot listen there: "):
                await ScriptedServer(server.model, "127.0.0.1", taken).__aenter__()

    asyncio.run(main())
