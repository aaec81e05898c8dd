"""What a connection, a server or the process itself may do to a call, and what is left of the call then."""

from __future__ import annotations

import asyncio
import gzip
import socket
import subprocess
import sys
from contextlib import aclosing
from typing import Any

import pytest

from tests.http.coroutines import in_a_loop
from tests.support.patience import DEADLINE_S
from velodrome import http
from velodrome.errors import Away

ONCE = http.Retry(max_retries=0, timeout_s=DEADLINE_S, total_timeout_s=DEADLINE_S)
TWICE = http.Retry(max_retries=1, backoff_s=0.0, timeout_s=DEADLINE_S, replay=False)
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Breaker:
    """A server that writes `begin` to who asks, then `more` for as long as it is read. `left`: the client has gone."""

    def __init__(self, begin: bytes = b"", more: bytes = b"") -> None:
        self.begin = begin
        self.more = more
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def __aenter__(self) -> Breaker:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.target = http.Target(f"http://127.0.0.1:{self.port}/v1")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked.set()
            writer.write(self.begin)
            while self.more:
                writer.write(self.more)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.left.set()
            writer.close()


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nContent-", HEAD, HEAD + b"3\r\nabc\r\n"])
@in_a_loop
async def test_a_cancelled_call_ends_at_once_and_closes_its_connection(begin: bytes) -> None:
    async with aclosing(http.Http(limit_per_host=1)) as client, Breaker(begin) as server:
        for _ in range(2):  # the second one gets the place of the first
            call = asyncio.create_task(client.post(server.target, b"", ONCE))
            await server.asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await server.left.wait()
            assert server.target.in_flight == 0
            server.asked.clear()
            server.left.clear()


@in_a_loop
async def test_a_stream_that_is_left_early_or_cancelled_closes_its_connection() -> None:
    async with aclosing(http.Http(limit_per_host=1)) as client, Breaker(HEAD + b"3\r\nabc\r\n") as server:
        async with await client.stream(server.target, b"", ONCE) as stream, aclosing(stream.chunks()) as chunks:
            assert await anext(chunks) == b"abc"
        await server.left.wait()

        begun = asyncio.Event()

        async def read() -> None:
            async with await client.stream(server.target, b"", ONCE) as stream:
                async for _ in stream.chunks():
                    begun.set()

        server.left.clear()
        reading = asyncio.create_task(read())
        await begun.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await server.left.wait()
        assert server.target.in_flight == 0


@pytest.mark.parametrize(
    ("begin", "more", "what"),
    [
        (HEAD, b"10000\r\n" + b"x" * 65536 + b"\r\n", "200 OK, but the body is larger than 100000 bytes"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"x" * 65536, "connection lost"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 8192, "connection lost"),
    ],
    ids=["body", "header", "headers"],
)
@in_a_loop
async def test_an_answer_without_end_is_an_error_and_its_connection_is_closed(
    begin: bytes, more: bytes, what: str
) -> None:
    async with aclosing(http.Http(max_body_bytes=100_000)) as client, Breaker(begin, more) as server:
        with pytest.raises(http.CallError, match=what):
            await client.post(server.target, b"", ONCE)
        await server.left.wait()


@in_a_loop
async def test_bodies_of_every_kind_come_whole_and_keep_the_connection_where_they_may(wire: Any) -> None:
    large = b"0123456789" * 300_000
    kept = [
        wire.reply(200, large),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-A: early\r\n\r\n" + wire.reply(200, b"late"),
        HEAD + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX-A: trailer\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        wire.reply(200, gzip.compress(large), Content_Encoding="gzip"),
        wire.reply(200, large),
    ]
    async with aclosing(http.Http()) as client, wire(*kept) as server:
        replies = [await client.post(http.Target(server.url), large, ONCE) for _ in kept]
        assert [reply.body for reply in replies] == [large, b"late", b"abcde", b"", large, large]
        assert not any("X-A" in reply.headers for reply in replies)
        assert ({seen.body for seen in server.seen}, server.most_open) == ({large}, 1)
    closed = [wire.reply(200, b"a", Connection="close"), wire.reply(200, b"b")]
    async with aclosing(http.Http()) as client, wire(*closed) as server:
        assert [(await client.post(http.Target(server.url), b"", ONCE)).body for _ in closed] == [b"a", b"b"]


@pytest.mark.parametrize("value", ["a\r\nX-B: c", "a\nX-B: c", "a\0"])
@in_a_loop
async def test_a_header_cannot_hold_another(value: str, wire: Any) -> None:
    async with aclosing(http.Http()) as client, wire(wire.reply(200)) as server:
        with pytest.raises(ValueError, match="header"):
            await client.post(http.Target(server.url, {"X-A": value}), b"", ONCE)
        assert server.seen == []


@in_a_loop
async def test_a_head_that_never_ends_is_silence() -> None:
    policy = http.Retry(max_retries=0, timeout_s=0.05)
    async with aclosing(http.Http()) as client, Breaker(b"HTTP/1.1 200 OK\r\nContent-") as server:
        for begin in (client.post, client.stream):
            with pytest.raises(http.CallError, match=r"no answer within 0\.05 s"):
                await begin(server.target, b"", policy)
            await server.left.wait()
            server.left.clear()


@in_a_loop
async def test_what_was_not_sent_is_sent_again_and_what_may_have_arrived_is_not(wire: Any) -> None:
    async with aclosing(http.Http()) as client:
        async with wire(wire.RESET, wire.reply(200)) as server:
            with pytest.raises(http.CallError) as lost:
                await client.post(http.Target(server.url), b"", TWICE)
        assert (lost.value.away, len(server.seen)) == (Away(server.url, sent=True), 1)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))  # it does not listen
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
            with pytest.raises(http.CallError, match="after 1 retry") as refused:
                await client.post(http.Target(url), b"", TWICE)
        assert refused.value.away == Away(url, sent=False)


@in_a_loop
async def test_a_server_that_does_not_speak_tls_is_a_mistake_in_the_address_and_not_away() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with aclosing(http.Http()) as client, await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(http.CallError, match=r"connection lost \(.*SSL") as caught:
            await client.post(http.Target(url), b"", ONCE)
        assert caught.value.away is None


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_calls_go_to_the_server_whatever_proxy_the_environment_names(
    name: str, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    async def main() -> int:
        async with aclosing(http.Http()) as client, wire(wire.reply(200)) as server:
            return (await client.post(http.Target(server.url), b"", ONCE)).status

    assert asyncio.run(main()) == 200


PROGRAM = """
import asyncio, os, sys
from velodrome import http

TARGET, SILENT = (http.Target(f"http://127.0.0.1:{port}/") for port in sys.argv[1:])

async def call():
    print((await http.shared().post(TARGET, b"", http.Retry())).body.decode(), flush=True)

async def leave():
    asyncio.get_running_loop().create_task(http.shared().post(SILENT, b"", http.Retry()))
    await call()

for _ in range(2):  # a loop that ends without closing its pool, and another one
    asyncio.run(call())
child = os.fork()
if not child:
    asyncio.run(call())
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
asyncio.run(leave())
"""


@in_a_loop
async def test_loops_one_after_another_a_forked_child_and_an_open_call_hold_nothing_up(wire: Any) -> None:
    async with wire(wire.reply(200, b"ok")) as server, wire(wire.NEVER) as silent:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(server.port), str(silent.port), stdout=subprocess.PIPE
        )
        out, _ = await program.communicate()
    assert (out.split(), program.returncode) == ([b"ok", b"ok", b"ok", b"7", b"ok"], 0)
