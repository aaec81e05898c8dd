"""What a Chrome trace costs one rollout: its events made, encoded, compressed and written, from real spans."""

from __future__ import annotations

import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import uvloop

from benchmarks.span_cost import one_rollout
from benchmarks.summary import Json, spread
from velodrome.collector.watch.tracing import Tracing
from velodrome.collector.watch.watch import Done
from velodrome.timing.chrome import SUFFIXES
from velodrome.timing.spans import Span

_ROLLOUTS = 5_000
_ROUNDS = 9
_SLOTS = 16


def moved(tree: Span, seconds: float) -> Span:
    """The same spans at a later time."""
    result = Span(tree.name, tree.clock)
    result.start = tree.start + seconds
    result.end = None if tree.end is None else tree.end + seconds
    result.counts = tree.counts
    if tree.children:
        result.children = [moved(child, seconds) for child in tree.children]
    return result


def rollouts(tree: Span) -> list[Done]:
    """A collection's worth of it, in so many slots."""
    result = []
    chance = random.Random(0)  # equal rollouts would compress to nothing
    for number in range(_ROLLOUTS):
        spans = moved(tree, (number // _SLOTS * 2 + chance.random()) * tree.seconds)
        end = spans.start + spans.seconds
        trace = f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01"
        written = (end, end + 40e-6)
        result.append(Done(f"{number}/0", number, 0, "agent", True, 1.0, None, spans, trace, number % _SLOTS, written))
    return result


def main() -> Json:
    """Microseconds of CPU, and bytes of the file, for the trace of one rollout."""
    tree = uvloop.run(one_rollout())
    seen = rollouts(tree)
    result: Json = {"spans": sum(1 for _ in tree.walk())}
    with TemporaryDirectory() as folder:
        for suffix in SUFFIXES:
            costs, size = [], 0
            for round_ in range(_ROUNDS):
                path = Path(folder) / f"{round_}{suffix}"
                tracing = Tracing(path)
                start = time.process_time()
                for done in seen:
                    tracing.finished(done)
                tracing.close()
                costs.append(1e6 * (time.process_time() - start) / _ROLLOUTS)
                size = path.stat().st_size
            result[suffix] = {"cpu_us": spread(costs), "bytes": round(size / _ROLLOUTS)}
    return result


if __name__ == "__main__":
    print(orjson.dumps(main()).decode())
