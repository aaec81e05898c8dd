"""The pooled client against a real server that misbehaves in every way it may."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import aclosing
from typing import Any

import pytest

from tests.http.coroutines import in_a_loop
from tests.support.patience import DEADLINE_S
from velodrome import http, scope
from velodrome.timing import spans

QUICK = http.Retry(timeout_s=DEADLINE_S, total_timeout_s=DEADLINE_S)


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def call(
    wire: Any,
    answers: list[Any],
    *,
    policy: http.Retry = QUICK,
    time: FakeTime | None = None,
    read: Any = None,
    **options: Any,
) -> tuple[http.Reply | http.CallError, Any]:
    """What one POST to a server with these answers comes to, and the server."""
    time = time or FakeTime()

    async def main() -> tuple[http.Reply | http.CallError, Any]:
        client = http.Http(sleep=time.sleep, clock=time.clock, jitter=lambda: 1.0, **options)
        async with wire(*answers) as server:
            try:
                target = http.Target(f"{server.url}/v1/responses")
                return await client.post(target, b"{}", policy, read=read), server
            except http.CallError as error:
                return error, server
            finally:
                await client.aclose()

    return asyncio.run(main())


@in_a_loop
async def test_a_call_sends_its_bytes_and_headers_and_reads_the_whole_answer(wire: Any) -> None:
    async with aclosing(http.Http()) as client, wire(wire.reply(200, b"pong", X_Mark="7")) as server:
        target = http.Target(f"{server.url}/v1/x?version=2", {"Authorization": "Bearer secret"})
        reply = await client.post(target, b'{"ping":1}', QUICK)
        assert (reply.status, reply.body, reply.headers["X-Mark"]) == (200, b"pong", "7")
        assert reply.target.label == f"{server.url}/v1/x"
        (seen,) = server.seen
        assert (seen.method, seen.path, seen.body) == ("POST", "/v1/x?version=2", b'{"ping":1}')
        assert seen.headers == {
            "Host": f"127.0.0.1:{server.port}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "velodrome",
            "Authorization": "Bearer secret",
            "Content-Length": "10",
        }


@pytest.mark.parametrize("answer", [408, 429, 500, 529, "RESET", "HALF", "GARBAGE"])
def test_what_may_pass_by_itself_is_tried_again(wire: Any, answer: int | str) -> None:
    time = FakeTime()
    first = wire.reply(answer, b"busy") if isinstance(answer, int) else getattr(wire, answer)
    with spans.root("rollout", time.clock) as tree:
        reply, server = call(wire, [first, wire.reply(200, b"ok")], time=time)
    assert isinstance(reply, http.Reply)
    assert (reply.body, len(server.seen), time.slept) == (b"ok", 2, [0.5])
    assert (tree.total("backoff"), tree.count("retries"), tree.count("rate_limited")) == (0.5, 1, answer == 429)


@pytest.mark.parametrize("status", [308, 400, 422, 501])
def test_what_will_not_pass_is_an_error_at_once(wire: Any, status: int) -> None:
    error, server = call(wire, [wire.reply(status, b"no", Location="http://127.0.0.1:1/")])
    assert isinstance(error, http.CallError)
    assert str(error).startswith(f"POST {server.url}/v1/responses: {status} ")
    assert (error.status, error.excerpt, error.body, len(server.seen)) == (status, "no", b"no", 1)


def test_silence_is_cut_off_after_the_timeout_and_tried_again(wire: Any) -> None:
    policy = http.Retry(timeout_s=0.05, total_timeout_s=DEADLINE_S, max_retries=1000)  # a busy machine needs some
    reply, server = call(wire, [wire.NEVER, wire.reply(200, b"ok")], policy=policy)
    assert isinstance(reply, http.Reply)
    assert reply.body == b"ok"
    assert len(server.seen) >= 2


def test_back_off_is_full_jitter_that_doubles_up_to_its_cap_and_ends_after_max_retries(wire: Any) -> None:
    time = FakeTime()
    policy = http.Retry(max_retries=5, backoff_s=0.5, backoff_cap_s=3.0)
    error, server = call(wire, [wire.reply(503, b"down")], time=time, policy=policy)
    assert time.slept == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert str(error) == f"POST {server.url}/v1/responses: 503 Service Unavailable after 5 retries: down"
    assert [policy.delay_s(2, jitter, None) for jitter in (0.0, 0.25, 1.0)] == [0.0, 0.5, 2.0]
    assert policy.delay_s(5000, 1.0, None) == 3.0


def test_a_rate_limit_is_waited_out_for_a_time_and_not_a_number_of_times(wire: Any) -> None:
    limited, patient = wire.reply(429, b"slow down", Retry_After="1"), http.Retry(max_retries=1, backoff_s=0.0)
    reply, server = call(wire, [*[limited] * 20, wire.reply(500), limited, wire.reply(200, b"ok")], policy=patient)
    assert isinstance(reply, http.Reply)
    assert (reply.body, len(server.seen)) == (b"ok", 23)

    time, bounded = FakeTime(), http.Retry(max_retries=1, backoff_s=0.0, rate_limit_timeout_s=10.0)
    error, _ = call(wire, [limited], policy=bounded, time=time)
    assert str(error).endswith("429 Too Many Requests after 9 retries (no time for another within 10 s): slow down")
    assert time.slept == [1.0] * 9

    error, server = call(wire, [wire.reply(429, b'{"error": {"code": "insufficient_quota"}}')], policy=patient)
    assert (isinstance(error, http.CallError), len(server.seen)) == (True, 1)  # no time gives credit


def test_a_good_status_without_an_answer_is_tried_again_like_a_5xx(wire: Any) -> None:
    def read(reply: http.Reply) -> str:
        if reply.body != b"ok":
            raise http.Unusable("no answer")
        return "read"

    policy = http.Retry(max_retries=2, backoff_s=0.0)
    reply, server = call(wire, [wire.reply(200, b"?"), wire.reply(200, b"ok")], policy=policy, read=read)
    assert isinstance(reply, http.Reply)
    assert (reply.answer, len(server.seen)) == ("read", 2)
    error, server = call(wire, [wire.reply(200, b"?")], policy=policy, read=read)
    assert str(error).endswith("/v1/responses: 200, but no answer after 2 retries: ?")
    assert len(server.seen) == 3


RETRY_AFTER = {"7": 7.5, "0.25": 0.75, "100000": 120.5, "soon": 0.5, "nan": 0.5, "-3": 0.5}
RETRY_AFTER |= {"Thu, 01 Jan 1970 00:16:50 GMT": 10.5, "Thu, 01 Jan 1970 00:00:00 GMT": 0.5}


@pytest.mark.parametrize(("header", "wait_s"), RETRY_AFTER.items())
def test_retry_after_is_honoured_in_both_forms_and_capped(wire: Any, header: str, wait_s: float) -> None:
    time = FakeTime()
    answers = [wire.reply(429, b"", Retry_After=header), wire.reply(200, b"ok")]
    reply, _ = call(wire, answers, time=time, policy=http.Retry(total_timeout_s=1000.0), now=lambda: 1000.0)
    assert isinstance(reply, http.Reply)
    assert time.slept == [wait_s]


def test_no_retry_begins_that_could_not_end_in_time(wire: Any) -> None:
    time = FakeTime()
    policy = http.Retry(total_timeout_s=10.0, backoff_s=4.0, max_retries=50)
    error, server = call(wire, [wire.reply(500, b"oh")], time=time, policy=policy)
    assert "after 1 retry (no time for another within 10 s)" in str(error)
    assert (time.slept, len(server.seen)) == ([4.0], 2)


@pytest.mark.parametrize("name", ["limit_per_host", "limit"])
@in_a_loop
async def test_a_wait_for_a_connection_is_a_span_of_its_own_that_names_the_limit(wire: Any, name: str) -> None:
    async with aclosing(http.Http(**{name: 1})) as client, wire(wire.reply(200)) as server:
        target = http.Target(f"{server.url}/v1/responses")
        with spans.root("rollout") as tree:
            await asyncio.gather(client.post(target, b"{}", QUICK), client.post(target, b"{}", QUICK))
    (wait,) = tree.children
    assert (wait.name, wait.counts, wait.end is not None) == ("connection", {name: 1}, True)


@in_a_loop
async def test_a_call_that_gets_no_connection_in_time_names_the_limit_and_not_the_server(wire: Any) -> None:
    arrived = asyncio.Event()

    def never(seen: Any) -> str:
        arrived.set()
        return str(wire.NEVER)

    async with aclosing(http.Http(limit_per_host=1)) as client, wire(never) as server:
        target = http.Target(f"{server.url}/v1/responses")
        first = asyncio.create_task(client.post(target, b"{}", http.Retry(timeout_s=60.0)))
        await arrived.wait()
        with pytest.raises(http.CallError) as caught:
            await client.post(target, b"{}", http.Retry(timeout_s=0.05, max_retries=0))
        first.cancel()
    message = "all connections were in use for 0.05 s (global_aiohttp_connector_limit_per_host=1)"
    assert str(caught.value).endswith(message)


def test_an_excerpt_is_one_short_line_without_control_characters_or_keys() -> None:
    assert http.excerpt(b" a\r\n\tb \x1b[31m\x00 \xff ") == "a b \\x1b[31m\\x00 \ufffd"
    assert http.excerpt("é".encode() * 500) == "é" * 299 + "…"
    assert http.excerpt(b"your key hunter22 is bad", ["hunter22"]) == "your key *** is bad"
    assert http.excerpt(b"Incorrect API key: sk-abc123DEF, Bearer abcdef123") == "Incorrect API key: ***, ***"


@in_a_loop
async def test_neither_userinfo_nor_query_nor_key_reaches_a_message(wire: Any) -> None:
    async with aclosing(http.Http()) as client:
        echo = wire.reply(400, b"got api-key hunter22hunter and token qwertyqwerty for joe:passpass")
        async with wire(echo) as server:
            url = f"http://joe:passpass@127.0.0.1:{server.port}/v1?key=qwertyqwerty#top"
            target = http.Target(url, {"api-key": "hunter22hunter"})
            with pytest.raises(http.CallError) as info:
                await client.post(target, b"", QUICK)
            message = f"POST {server.url}/v1: 400 Bad Request: got api-key *** and token *** for joe:***"
            assert str(info.value) == message
            assert server.seen[0].path == "/v1?key=qwertyqwerty"
            assert server.seen[0].headers["Authorization"] == "Basic am9lOnBhc3NwYXNz"


@pytest.mark.parametrize("url", ["", "ftp://x/y", "127.0.0.1:8000"])
def test_an_address_that_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected a URL that starts with http"):
        http.Target(url)


def chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


def test_an_answer_over_the_size_limit_is_an_error_and_not_tried_again(wire: Any) -> None:
    bomb = gzip.compress(b"x" * 1001)
    for answer in (
        wire.reply(200, b"x" * 1001),
        chunked(b"x" * 600, b"x" * 600),
        wire.reply(200, bomb, Content_Encoding="gzip"),
    ):
        error, server = call(wire, [answer], max_body_bytes=1000)
        assert str(error) == f"POST {server.url}/v1/responses: 200 OK, but the body is larger than 1000 bytes"
        assert len(server.seen) == 1
    assert call(wire, [wire.reply(200, b"x" * 1000)], max_body_bytes=1000)[0].body == b"x" * 1000


@in_a_loop
async def test_connections_are_kept_and_bounded(wire: Any) -> None:
    async with aclosing(http.Http(limit_per_host=2)) as client, wire(wire.reply(200)) as server:
        target = http.Target(server.url)
        await asyncio.gather(*(client.post(target, b"", QUICK) for _ in range(20)))
        assert (len(server.seen), server.most_open) == (20, 2)


def test_the_shared_pool_is_one_per_loop_and_takes_the_configured_limits(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> tuple[http.Http, int]:
        async with wire(wire.reply(200)) as server:
            pool = http.shared()
            await asyncio.gather(*(http.shared().post(http.Target(server.url), b"", QUICK) for _ in range(9)))
            assert http.shared() is pool
            for _ in range(2):
                await http.close_shared()
            return pool, server.most_open

    monkeypatch.setattr(scope, "connections", scope.PoolLimits(3, 3))
    first, most_open = asyncio.run(use())
    assert asyncio.run(use())[0] is not first
    assert most_open == 3
