"""Several addresses: rollouts that stay with theirs, one that dies, hangs and returns."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import pytest
from yarl import URL

from tests.http.coroutines import in_a_loop
from velodrome import http
from velodrome.context import RolloutContext
from velodrome.http.replicas import LOOK_EVERY_S
from velodrome.timing import spans

POLICY = http.Retry(max_retries=3, backoff_s=0.0)
CHECK_S = 30.0


def group(*urls: str, **options: Any) -> http.Replicas:
    return http.Replicas([http.Replica(f"{url}/v1/responses", base=URL(f"{url}/v1")) for url in urls], **options)


def ports(*numbers: int, **options: Any) -> http.Replicas:
    return group(*(f"http://127.0.0.1:{number}" for number in numbers), **options)


class Watchman:
    """A clock that stands still, and sleeps that end when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[asyncio.Future[None]] = []
        self._asleep = asyncio.Event()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if seconds != LOOK_EVERY_S:  # the back-off of a call
            return
        self._sleepers.append(asyncio.get_running_loop().create_future())
        self._asleep.set()
        await self._sleepers[-1]

    async def looks(self, after_s: float = 0.0) -> None:
        """So much later every watch looks, once it sleeps."""
        await self._asleep.wait()
        self._asleep.clear()
        self.now += after_s
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(None)


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[http.Http, Watchman]]:
    time = Watchman()
    async with aclosing(http.Http(sleep=time.sleep, clock=time.clock)) as client:
        yield client, time


def test_calls_outside_of_a_rollout_go_in_turn_to_the_least_busy() -> None:
    replicas = ports(1, 2, 3)
    assert [replicas.choose().url.port for _ in range(4)] == [1, 2, 3, 1]
    replicas.targets[1].in_flight = 1
    replicas.targets[2].strikes = 1
    assert {replicas.choose().url.port for _ in range(6)} == {1}
    assert {replicas.choose(avoid=replicas.targets[0]).url.port for _ in range(6)} == {2, 3}


def test_a_rollout_stays_with_its_endpoint_until_that_is_more_than_the_margin_busier() -> None:
    replicas = ports(1, 2, margin=2)
    first, second = replicas.targets
    with RolloutContext():
        assert replicas.choose() is first
        first.in_flight = 2
        assert [replicas.choose() for _ in range(3)] == [first] * 3
        first.in_flight = 3
        assert replicas.choose() is second
        first.in_flight = 0
        assert replicas.choose() is second  # whose cache has the conversation now
    with RolloutContext():
        second.in_flight = 1
        assert replicas.choose() is first


def test_a_header_of_the_caller_names_the_same_rollout_in_every_process() -> None:
    replicas = ports(1, 2, 3)
    rollout = RolloutContext()
    chosen = set()
    for _ in range(4):
        with RolloutContext(trace=rollout.trace):  # as a server does with each request
            chosen.add(replicas.choose())
        replicas.choose()
    assert len(chosen) == 1


def test_rollouts_that_ended_are_forgotten() -> None:
    replicas = ports(1, 2)
    for _ in range(17_000):
        with RolloutContext():
            replicas.choose()
    assert len(replicas._sessions) == 16_384


def test_an_endpoint_that_is_left_gets_no_calls_unless_all_are() -> None:
    replicas = ports(1, 2)
    first, second = replicas.targets
    with RolloutContext():
        assert replicas.choose() is first
        first.failed(0.0, at_once=True)
        assert {replicas.choose() for _ in range(4)} == {second}
        second.failed(0.0, at_once=True)
        assert replicas.choose() in (first, second)


def test_three_failures_in_a_row_are_too_many_and_back_off_doubles_up_to_its_cap() -> None:
    replica = ports(1, 2).targets[0]
    replica.failed(0.0)
    replica.answered(0.0)
    for _ in range(2):
        replica.failed(0.0)
    assert not replica.is_down
    replica.failed(0.0)
    assert (replica.is_down, replica.again_at) == (True, 8.0)
    waits = []
    for _ in range(4):
        replica.checked(0.0, CHECK_S, alive=False)
        waits.append(replica.again_at)
    assert waits == [16.0, 32.0, 60.0, 60.0]
    replica.checked(0.0, CHECK_S, alive=True)
    assert (replica.is_down, replica.strikes) == (False, 0)


async def until(condition: Callable[[], bool]) -> None:
    """Let everybody else run until it is so."""
    while not condition():  # noqa: ASYNC110 - nobody sets an event for it
        await asyncio.sleep(0)


@contextmanager
def held_port() -> Iterator[int]:
    """A port that nobody else gets while no server listens there: connections to it are refused."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@in_a_loop
async def test_an_endpoint_that_dies_is_left_and_returns_when_it_answers(wire: Any) -> None:
    with held_port() as port:
        async with watched() as (client, time), wire(wire.reply(200, b"ok")) as alive:
            async with wire(wire.reply(200, b"ok"), port=port) as other:
                replicas = group(other.url, alive.url)
                assert (await client.post(replicas, b"", POLICY)).target is replicas.targets[0]
            dead = replicas.targets[0]
            for _ in range(6):
                assert (await client.post(replicas, b"", POLICY)).target is replicas.targets[1]
            assert (dead.is_down, dead.strikes, len(alive.seen)) == (True, 1, 6)
            await time.looks(1.0)
            await time.looks(2.0)  # it is asked, and still dead
            await time.looks(0.0)
            assert (dead.is_down, dead.strikes, dead.again_at) == (True, 2, time.now + 4.0)
            async with wire(wire.reply(200, b"back"), port=port) as again:
                await time.looks(4.0)
                await until(lambda: not dead.is_down)
                assert [seen.path for seen in again.seen] == ["/v1/models"]
                assert {(await client.post(replicas, b"", POLICY)).body for _ in range(2)} == {b"ok", b"back"}


@in_a_loop
async def test_an_endpoint_that_hangs_is_left_its_calls_go_elsewhere_and_it_returns(wire: Any) -> None:
    hangs = True
    released = asyncio.Event()

    async def answer(seen: Any) -> Any:
        if hangs:
            await released.wait()
        return wire.reply(200, b"back")

    async with watched() as (client, time), wire(answer) as hung, wire(wire.reply(200, b"ok")) as alive:
        replicas = group(hung.url, alive.url, check_s=0.2)
        sick = replicas.targets[0]
        with spans.root("rollout") as root:
            call = asyncio.create_task(client.post(replicas, b"", POLICY))
            await time.looks(0.1)  # not silent for long enough
            await time.looks(0.1)
            assert (await call).body == b"ok"
        assert (sick.is_down, sick.in_flight, len(sick.waiting)) == (True, 0, 0)
        assert [seen.path for seen in hung.seen] == ["/v1/responses", "/v1/models"]
        assert [(node.name, node.count("failed")) for node in root.children if node.name != "backoff"] == [
            (f"endpoint:{hung.url}/v1", 1),
            (f"endpoint:{alive.url}/v1", 0),
        ]
        hangs = False
        released.set()
        await time.looks(2.0)
        await until(lambda: not sick.is_down)
        bodies = {(await client.post(replicas, b"", POLICY)).body for _ in range(2)}
        assert bodies == {b"ok", b"back"}


@in_a_loop
async def test_a_slow_answer_is_waited_for_while_the_endpoint_answers_health_checks(wire: Any) -> None:
    slow = asyncio.Event()

    async def answer(seen: Any) -> Any:
        if seen.method == "POST":
            await slow.wait()
        return wire.reply(200, b"slow")

    async with watched() as (client, time), wire(answer) as server:
        replicas = group(server.url, "http://127.0.0.1:9")
        call = asyncio.create_task(client.post(replicas, b"", POLICY))
        for checks in (1, 2, 3):
            await time.looks(CHECK_S)
            await until(lambda checks=checks: len(server.seen) == checks + 1)
        slow.set()
        assert (await call).body == b"slow"
        assert not replicas.targets[0].is_down


@in_a_loop
async def test_an_endpoint_that_refuses_a_request_or_limits_a_rate_lives(wire: Any) -> None:
    async with watched() as (client, _), wire(wire.reply(400)) as one, wire(wire.reply(429)) as two:
        replicas = group(one.url, two.url)
        for _ in range(4):
            with pytest.raises(http.CallError):
                await client.post(replicas, b"", POLICY)
        assert [(each.is_down, each.strikes) for each in replicas.targets] == [(False, 0)] * 2
