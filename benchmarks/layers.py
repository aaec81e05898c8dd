"""Where the CPU of a rollout goes: the floor, then one more layer of the product at a time, over the same HTTP server.

`python -m benchmarks.layers` prints what each layer adds. All layers run in this process, in turn, round by round, so
the figures are for ranking; the ones of `benchmarks.run` have a process each.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import orjson
import uvloop

from benchmarks import workload
from benchmarks.floor import HEADERS
from benchmarks.meter import allow_files
from benchmarks.model_server import ModelServer
from benchmarks.summary import table
from velodrome import http
from velodrome.collector.attempt import Kept, attempt
from velodrome.collector.keys import Earlier
from velodrome.collector.plan import Job, TaskSelection, jobs, survey
from velodrome.collector.sink import Sink
from velodrome.collector.tasks import TaskFiles
from velodrome.serving.components import Components
from velodrome.settings import load
from velodrome.stats.metrics import Tally

_PARALLEL = 128
_ROLLOUTS = 1500
_ROUNDS = 9

Layer = Callable[[int], Awaitable[object]]


async def cpu_us(layer: Layer) -> float:
    """Microseconds of CPU for one rollout through this layer."""
    numbers = iter(range(_ROLLOUTS))

    async def worker() -> None:
        for number in numbers:
            await layer(number)

    start = time.process_time()
    await asyncio.gather(*(worker() for _ in range(_PARALLEL)))
    return 1e6 * (time.process_time() - start) / _ROLLOUTS


def layers(url: str, folder: Path, session: aiohttp.ClientSession) -> dict[str, Layer]:
    """From the floor up; each does what the one before it does, and more."""
    config = load(workload.http_settings(url, "responses"), known=[])
    components = Components(config)
    model, agent = components.connect("policy_model"), components.agent(workload.AGENT)
    target, policy = http.Target(f"{url}/responses"), http.Retry()
    bodies = [workload.requests(number) for number in range(_ROLLOUTS)]
    tasks = [workload.task(number) for number in range(_ROLLOUTS)]
    workload.write_tasks(folder / "tasks.jsonl", range(_ROLLOUTS))
    source, selection = (
        TaskFiles([folder / "tasks.jsonl"]),
        TaskSelection(None, 1, workload.AGENT, None, {}, [workload.AGENT]),
    )
    plan = survey(source, selection, Earlier())
    sink, tally = Sink(folder / "rollouts.jsonl"), Tally(by_task=False)
    waiting = jobs(source, selection, plan)
    agents = {workload.AGENT: agent}

    async def bare(number: int) -> None:
        for body in bodies[number]:
            async with session.post(target.url, data=orjson.dumps(body), headers=HEADERS) as response:
                orjson.loads(await response.read())

    async def pooled(number: int) -> None:
        for body in bodies[number]:
            orjson.loads((await http.shared().post(target, orjson.dumps(body), policy)).body)

    async def asked(number: int) -> None:
        for body in bodies[number]:
            await model.respond(body)

    async def whole(number: int) -> None:
        nonlocal waiting
        job = next(waiting, None)
        if job is None:
            waiting = jobs(source, selection, plan)
            job = next(waiting)
        made = await attempt(job, agents, verify=True)
        assert isinstance(made.result, Kept)
        sink.keep(made.result.line)
        tally.add(made.result.facts)

    return {
        "aiohttp alone": bare,
        "+ http.py (retries, limits, timeouts)": pooled,
        "+ openai_model (check, convert)": asked,
        "+ agent and tool (no verify)": lambda number: agent.run(tasks[number], verify=False),
        "+ verify": lambda number: agent.run(tasks[number]),
        "+ attempt (spans, record, encode)": lambda number: attempt(
            Job("a/0", 0, 0, workload.AGENT, tasks[number]), agents, verify=True
        ),
        "+ plan, sink, tally": whole,
    }


async def main(url: str, folder: Path) -> str:
    """The table."""
    costs: dict[str, list[float]] = {}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        made = layers(url, folder, session)
        for turn in range(_ROUNDS + 1):
            for name, layer in made.items() if turn % 2 else reversed(made.items()):
                used = await cpu_us(layer)
                if turn:  # the first round opens the connections
                    costs.setdefault(name, []).append(used)
    await http.close_shared()
    medians = {name: statistics.median(costs[name]) for name in made}
    rows, before = [], 0.0
    for name, median in medians.items():
        rows.append([name, f"{median:.0f}", f"{median - before:.0f}", f"{median / medians['aiohttp alone']:.2f}"])
        before = median
    return table(["layer", "CPU us a rollout", "added", "x the first"], rows)


if __name__ == "__main__":
    allow_files()
    with ModelServer() as server, tempfile.TemporaryDirectory(prefix="velodrome-bench-") as scratch:
        print(uvloop.run(main(server.url, Path(scratch))))
