"""What the user's code costs is told apart: CPU in a thread, time on the event loop, and the wait for a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from velodrome import Environment, tool
from velodrome.timing.spans import Span, root, span

SLEPT_S = 0.05
ROUNDING_S = 0.001


def burn(seconds: float) -> None:
    """Use so much CPU in this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Works(Environment):
    """Burns, blocks and waits."""

    def setup(self) -> None:
        self.go = threading.Event()

    @tool
    def burns(self) -> str:
        """In a thread."""
        burn(SLEPT_S)
        return "done"

    @tool
    def sleeps(self) -> str:
        """In a thread, without using it, from when every call was made."""
        self.go.wait()
        time.sleep(SLEPT_S)
        return "done"

    @tool
    async def blocks(self) -> str:
        """On the loop, and keeps it."""
        await asyncio.sleep(0)
        time.sleep(SLEPT_S)  # noqa: ASYNC251 - what the test is about
        await asyncio.sleep(0)
        return "done"

    @tool
    async def waits(self) -> str:
        """On the loop, and leaves it to others."""
        await asyncio.sleep(SLEPT_S)
        return "done"

    def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        """Nothing."""
        return {"reward": 1.0}


def called(name: str, *, times: int = 1, **settings: Any) -> Span:
    async def main() -> Span:
        environment = Works(**settings)
        session = await environment.open({})

        async def call() -> None:
            with span(f"tool:{name}"):
                await environment.call(session, name, {})

        with root("rollout") as spans:
            calls = asyncio.gather(*(call() for _ in range(times)))
            asyncio.get_running_loop().call_soon(environment.go.set)  # after the first step of each
            await calls
        await environment.aclose()
        return spans

    return asyncio.run(main())


def test_code_in_a_thread_is_charged_its_cpu():
    before_s = time.process_time()
    [call] = called("burns").children
    assert call.counts is not None
    assert set(call.counts) == {"cpu_us"}
    used_s = time.process_time() - before_s  # by all of this process
    assert SLEPT_S <= call.counts["cpu_us"] / 1e6 <= used_s


def test_code_in_a_thread_that_waits_is_charged_next_to_nothing():
    [call] = called("sleeps").children
    assert (call.counts or {}).get("cpu_us", 0) / 1e6 < SLEPT_S <= call.seconds


def test_async_code_is_charged_the_time_it_keeps_the_loop():
    [call] = called("blocks").children
    assert call.counts is not None
    assert set(call.counts) == {"held_us"}
    assert call.counts["held_us"] >= SLEPT_S * 1e6


def test_async_code_that_waits_keeps_nothing():
    [call] = called("waits").children
    assert (call.counts or {}).get("held_us", 0) / 1e6 <= call.seconds - SLEPT_S + ROUNDING_S


def test_waiting_for_a_thread_is_a_queue_and_not_the_tools_time():
    calls = called("sleeps", times=3, threads=1).children
    queued = [sum(below.seconds for below in call.children if below.name == "limit:threads") for call in calls]
    assert all(queued_s <= call.seconds - SLEPT_S + ROUNDING_S for call, queued_s in zip(calls, queued, strict=True))
    assert [queued_s + ROUNDING_S >= n * SLEPT_S for n, queued_s in enumerate(sorted(queued))] == [True] * 3
