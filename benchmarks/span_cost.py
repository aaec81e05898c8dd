"""What the always-on timing of one rollout costs, with nothing inside.

Its spans opened and closed, the account made of them and encoded, and the running profile that takes it in.
"""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import uvloop

from benchmarks import workload
from benchmarks.summary import Json, spread
from velodrome.cli.collect import rare_garbage_collection
from velodrome.collector.account import account
from velodrome.collector.attempt import Kept, attempt
from velodrome.collector.plan import Job
from velodrome.collector.readings import Readings
from velodrome.records.facts import RowFacts
from velodrome.serving.components import Components
from velodrome.settings import load
from velodrome.timing.spans import Span, root, span

_TREES = 5_000
ROW: Json = {"reward": 1.0}
UNTIMED: Json = {"total_s": 0.0}
_ROUNDS = 9
AROUND: Json = {"in_flight": 16, "limit": 16, "write_s": 0.00004, "cpu": 0.5, "lag_s": 0.001}
READERS = [Readings("rollouts.jsonl", by_task=False, profiled=profiled) for profiled in (False, True)]


async def one_rollout() -> Span:
    """The spans of a real rollout."""
    components = Components(load(workload.scripted_settings(), known=[]), Path.cwd())
    job = Job("a/0", 0, 0, workload.AGENT, workload.task(1))
    made = await attempt(job, {workload.AGENT: components.agent(workload.AGENT)}, verify=True)
    await components.aclose()
    assert isinstance(made.result, Kept)
    return made.spans


def replay(tree: Span) -> None:
    """Open and close the same spans below the one that is open."""
    for child in tree.children:
        with span(child.name):
            replay(child)


def walk(tree: Span) -> None:
    """The same steps without spans."""
    for child in tree.children:
        walk(child)


def untimed(tree: Span) -> None:
    """The same rollout without its timing."""
    walk(tree)
    orjson.dumps({})
    READERS[0].add(facts(UNTIMED))


def timed(tree: Span) -> None:
    """All that a collection does for the timing of one rollout."""
    with root("rollout") as spans:
        replay(tree)
    result = account(spans, AROUND)
    orjson.dumps(result)
    READERS[1].add(facts(result))


def facts(timing: Json) -> RowFacts:
    """A row with these times."""
    return RowFacts({**ROW, "meta": {"key": "a/0", "finished_at": time.time(), "timing": timing}}, size=2500)


def main() -> Json:
    """Microseconds of CPU for the timing of one rollout."""
    tree = uvloop.run(one_rollout())
    with rare_garbage_collection():  # as a collection does
        return measured(tree)


def measured(tree: Span) -> Json:
    """With and without, in turns."""
    costs = []
    for _ in range(_ROUNDS):
        used = []
        for step in (untimed, timed):
            start = time.process_time()
            for _ in range(_TREES):
                step(tree)
            used.append(time.process_time() - start)
        costs.append(1e6 * (used[1] - used[0]) / _TREES)
    return {"spans": sum(1 for _ in tree.walk()), "cpu_us": spread(costs)}


if __name__ == "__main__":
    print(orjson.dumps(main()).decode())
