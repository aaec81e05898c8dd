"""The floor: a bare aiohttp + uvloop loop that makes the same model calls and appends a line. Nothing else.

It encodes the same bodies, parses the answers, and writes as many bytes with one `write` as the product does. It has no
retries, no tools, no verification, no keys and no records.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import aiohttp
import orjson
import uvloop
from yarl import URL

from benchmarks import workload
from benchmarks.meter import Meter, allow_files
from velodrome.responses_api_models.conversion import chat_request

HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


async def collect(url: URL, bodies: list[tuple[workload.Json, workload.Json]], given: argparse.Namespace) -> None:
    """`rollouts` pairs of calls, `parallel` at a time."""
    line = b"x" * (given.line_bytes - 1) + b"\n"
    out = os.open(given.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    numbers = iter(range(given.rollouts))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def call(body: workload.Json) -> None:
            async with session.post(url, data=orjson.dumps(body), headers=HEADERS) as response:
                orjson.loads(await response.read())

        async def worker() -> None:
            for number in numbers:
                first, second = bodies[number % len(bodies)]
                await call(first)
                await call(second)
                os.write(out, line)

        await asyncio.gather(*(worker() for _ in range(given.parallel)))
    os.close(out)


def measured(given: argparse.Namespace) -> dict[str, float]:
    """The floor under the meter."""
    bodies = [workload.requests(number) for number in range(1000)]
    path = "responses"
    if given.endpoint == "chat":
        bodies = [(chat_request(first), chat_request(second)) for first, second in bodies]
        path = "chat/completions"
    with Meter(Path(given.output)) as meter:
        uvloop.run(collect(URL(given.url) / path, bodies, given))
    return meter.result(parallel=given.parallel)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--endpoint", choices=("responses", "chat"), required=True)
    parser.add_argument("--rollouts", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--line-bytes", type=int, required=True)
    parser.add_argument("--output", required=True)
    allow_files()
    print(orjson.dumps(measured(parser.parse_args())).decode())
