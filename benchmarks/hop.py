"""Sync or async: what one call of a tool and of `verify` costs on the loop, and through a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import orjson
import uvloop

from benchmarks import workload
from benchmarks.summary import Json, spread
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool

_CALLS = 4_000
_ROUNDS = 7
_IN_FLIGHT = 16


class OnTheLoop(Environment):
    """Its code is `async def`."""

    @tool
    async def echo(self, text: str) -> str:
        """Say it again."""
        return text

    async def verify(self, task: Json, response: Response) -> Json:
        """Always right."""
        return {"reward": 1.0}


class InThreads(Environment):
    """The same code, sync."""

    @tool
    def echo(self, text: str) -> str:
        """Say it again."""
        return text

    def verify(self, task: Json, response: Response) -> Json:
        """Always right."""
        return {"reward": 1.0}


async def cost(call: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Microseconds of CPU and of wall time a call, with a few in flight."""
    turns: Iterator[int] = iter(range(_CALLS))

    async def worker() -> None:
        for _ in turns:
            await call()

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(_IN_FLIGHT)))
    return 1e6 * (time.process_time() - cpu) / _CALLS, 1e6 * (time.perf_counter() - wall) / _CALLS


async def main() -> Json:
    """Each kind of call, in turn."""
    task = workload.task(1)
    response = workload.answer(task["responses_create_params"])
    result: dict[str, list[tuple[float, float]]] = {}
    environments = {"async": OnTheLoop(), "sync": InThreads()}
    sessions = {name: await each.open(task) for name, each in environments.items()}
    for _ in range(_ROUNDS):
        for name, each in environments.items():
            use = partial(each.call, sessions[name], "echo", {"text": "x"})
            score = partial(each.score, sessions[name], task, response)
            result.setdefault(f"tool_{name}", []).append(await cost(use))
            result.setdefault(f"verify_{name}", []).append(await cost(score))
    return {
        name: {"cpu_us": spread([cpu for cpu, _ in costs]), "wall_us": spread([wall for _, wall in costs])}
        for name, costs in result.items()
    }


if __name__ == "__main__":
    print(orjson.dumps(uvloop.run(main())).decode())
