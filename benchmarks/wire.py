"""One hop: what a component's call costs over HTTP beyond the same call made here; CPU of both sides, 16 in flight."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import orjson
import uvloop

from benchmarks import workload
from benchmarks.servers import cpu_s
from benchmarks.summary import Json, spread
from velodrome import http
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.serving.remote import HttpModel, HttpResources

_CALLS = 3_000
_ROUNDS = 5
_IN_FLIGHT = 16

Call = Callable[[], Awaitable[Any]]


async def cost(call: Call, pid: int | None) -> tuple[float, float]:
    """Microseconds of CPU a call: on this side, and on that of the server's process, if there is one."""
    turns: Iterator[int] = iter(range(_CALLS))

    async def worker() -> None:
        for _ in turns:
            await call()

    pids = [] if pid is None else [pid]
    there, here = cpu_s(pids), time.process_time()
    await asyncio.gather(*(worker() for _ in range(_IN_FLIGHT)))
    return 1e6 * (time.process_time() - here) / _CALLS, 1e6 * (cpu_s(pids) - there) / _CALLS


async def main(given: argparse.Namespace) -> Json:
    """Each kind of call here and over HTTP, in turn."""
    (calculator_url, calculator_pid), (model_url, model_pid) = given.calculator, given.policy_model
    task = workload.task(1)
    request = task["responses_create_params"]
    response = workload.answer(request)
    near, far = Calculator(), HttpResources(calculator_url)
    settings = {"openai_base_url": given.upstream, "openai_api_key": "none", "openai_model": workload.MODEL}
    model = OpenAI(**settings, endpoint="responses")
    arguments = {"expression": "(1 + 4) * 3"}
    sessions = [await each.open(task) for each in (near, far)]
    calls: dict[str, tuple[Call, Call, int]] = {
        "tool": (
            partial(near.call, sessions[0], "calculator", arguments),
            partial(far.call, sessions[1], "calculator", arguments),
            int(calculator_pid),
        ),
        "verify": (
            partial(near.score, sessions[0], task, response),
            partial(far.score, sessions[1], task, response),
            int(calculator_pid),
        ),
        "model": (partial(model.respond, request), partial(HttpModel(model_url).respond, request), int(model_pid)),
    }
    result: dict[str, dict[str, list[float]]] = {name: {} for name in calls}
    for _ in range(_ROUNDS):
        for name, (here, there, pid) in calls.items():
            local, _ = await cost(here, None)
            client, server = await cost(there, pid)
            costs = {"here_us": local, "client_us": client, "server_us": server, "hop_us": client + server - local}
            for key, value in costs.items():
                result[name].setdefault(key, []).append(value)
    await http.close_shared()
    return {name: {key: spread(values) for key, values in costs.items()} for name, costs in result.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--calculator", nargs=2, required=True)
    parser.add_argument("--policy-model", nargs=2, required=True)
    print(orjson.dumps(uvloop.run(main(parser.parse_args()))).decode())
