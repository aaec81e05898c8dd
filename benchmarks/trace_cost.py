"""What drawing a Chrome trace costs one rollout: its row read, its events made, encoded, compressed and written."""

from __future__ import annotations

import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import uvloop

from benchmarks.span_cost import one_rollout
from benchmarks.summary import Json, spread
from velodrome.collector.account import timing
from velodrome.profiling.chrome_trace import SUFFIXES, write_trace

_ROLLOUTS = 5_000
_ROUNDS = 9
_SLOTS = 16


def rows(times: Json) -> bytes:
    """A collection's worth of one rollout, in so many slots."""
    chance = random.Random(0)  # equal rollouts would compress to nothing
    lines = []
    for number in range(_ROLLOUTS):
        end = 1.7e9 + (number // _SLOTS * 2 + chance.random()) * times["total_s"]
        trace = f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01"
        meta = {"key": f"{number}/0", "agent": "agent", "finished_at": end, "trace": trace, "timing": times}
        lines.append(orjson.dumps({"output": [], "response": {}, "reward": 1.0, "meta": meta}))
    return b"\n".join(lines) + b"\n"


def main() -> Json:
    """Microseconds of CPU, and bytes of the file, for the trace of one rollout."""
    tree = uvloop.run(one_rollout())
    result: Json = {"spans": sum(1 for _ in tree.walk())}
    with TemporaryDirectory() as folder:
        rollouts = Path(folder) / "rollouts.jsonl"
        rollouts.write_bytes(rows(timing(tree)))
        for suffix in SUFFIXES:
            costs, path = [], Path(folder) / f"trace{suffix}"
            for _ in range(_ROUNDS):
                start = time.process_time()
                write_trace(rollouts, path)
                costs.append(1e6 * (time.process_time() - start) / _ROLLOUTS)
            result[suffix] = {"cpu_us": spread(costs), "bytes": round(path.stat().st_size / _ROLLOUTS)}
    return result


if __name__ == "__main__":
    print(orjson.dumps(main()).decode())
