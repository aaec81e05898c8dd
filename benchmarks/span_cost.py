"""What the always-on timing of one rollout costs: its tree of spans, opened, closed and read, with nothing inside."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import uvloop

from benchmarks import workload
from benchmarks.summary import Json, spread
from velodrome.collect.attempt import Kept, attempt, timing
from velodrome.collect.plan import Job
from velodrome.config import load
from velodrome.serving.connect import Components
from velodrome.timing.spans import Span, root, span

_TREES = 5_000
_ROUNDS = 9


async def one_rollout() -> Span:
    """The spans of a real rollout."""
    components = Components(load(workload.scripted_settings(), known=[]), Path.cwd())
    job = Job("a/0", 0, 0, workload.AGENT, workload.task(1))
    outcome, spans = await attempt(job, components.agent(workload.AGENT), verify=True)
    await components.aclose()
    assert isinstance(outcome, Kept)
    return spans


def replay(tree: Span) -> None:
    """Open and close the same spans below the one that is open."""
    for child in tree.children:
        with span(child.name):
            replay(child)


def walk(tree: Span) -> None:
    """The same steps without spans."""
    for child in tree.children:
        walk(child)


def timed(tree: Span) -> None:
    """All that a collection does for the timing of one rollout."""
    with root("rollout") as spans:
        replay(tree)
    timing(spans)
    spans.count("rate_limited")


def main() -> Json:
    """Microseconds of CPU for the timing of one rollout."""
    tree = uvloop.run(one_rollout())
    costs = []
    for _ in range(_ROUNDS):
        used = []
        for step in (walk, timed):
            start = time.process_time()
            for _ in range(_TREES):
                step(tree)
            used.append(time.process_time() - start)
        costs.append(1e6 * (used[1] - used[0]) / _TREES)
    return {"spans": sum(1 for _ in tree.walk()), "cpu_us": spread(costs)}


if __name__ == "__main__":
    print(orjson.dumps(main()).decode())
