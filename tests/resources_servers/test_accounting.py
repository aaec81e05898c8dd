"""What the user's code costs is told apart: CPU in a thread and time on the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.resources_servers.playing import opened
from velodrome import Environment, tool
from velodrome.timing.spans import Span, root, span

SLEPT_S = 0.05
ROUNDING_S = 0.001


def burn(seconds: float):
    """Use so much CPU in this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Works(Environment):
    """Burns, blocks and waits."""

    @tool
    def burns(self) -> str:
        """In a thread."""
        burn(SLEPT_S)
        return "done"

    @tool
    def sleeps(self) -> str:
        """In a thread, without using it."""
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


def called(name: str) -> Span:
    with root("rollout") as spans, span(f"tool:{name}"):
        opened(Works(), {}, (name, {}))
    [call] = spans.children
    return call


def test_code_in_a_thread_is_charged_its_cpu_and_not_its_waits():
    before_s = time.process_time()
    call = called("burns")
    assert call.counts is not None
    assert set(call.counts) == {"cpu_us"}
    used_s = time.process_time() - before_s  # by all of this process
    assert SLEPT_S <= call.counts["cpu_us"] / 1e6 <= used_s
    waited = called("sleeps")
    assert (waited.counts or {}).get("cpu_us", 0) / 1e6 < SLEPT_S <= waited.seconds


def test_async_code_is_charged_the_time_it_keeps_the_loop_and_not_its_waits():
    call = called("blocks")
    assert call.counts is not None
    assert set(call.counts) == {"held_us"}
    assert call.counts["held_us"] >= SLEPT_S * 1e6
    waited = called("waits")
    assert (waited.counts or {}).get("held_us", 0) / 1e6 <= waited.seconds - SLEPT_S + ROUNDING_S
