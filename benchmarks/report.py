"""CPU of the end of a collection: from the last rollout written to the end of the command, imports included.

Each measurement is a process of its own; `--one` is one of them.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

import orjson

from benchmarks import workload
from benchmarks.commands import measure
from benchmarks.summary import Json, spread

_ROLLOUTS = 2000
_TIMES = 5


def one() -> float:
    """Milliseconds of CPU between the last line written and the end."""
    from velodrome.cli import collect
    from velodrome.records.appender import Appender

    append, last = Appender.append, [0.0]

    def timed(self: Appender, line: bytes) -> None:
        append(self, line)
        last[0] = time.process_time()

    workload.write_tasks(Path("tasks.jsonl"), range(_ROLLOUTS))
    Appender.append = timed  # type: ignore[method-assign]
    files = ("+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=rollouts.jsonl")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = collect.run([*workload.scripted_settings(), "+embedded=true", *files])
    if code:
        raise SystemExit(f"the collection ended with {code}")
    return 1e3 * (time.process_time() - last[0])


def main() -> Json:
    """The figure, over several processes."""
    figures = []
    for _ in range(_TIMES):
        with tempfile.TemporaryDirectory(prefix="velodrome-bench-") as folder:
            figures.append(measure("report", "--one", cwd=Path(folder)))
    return {"rollouts": _ROLLOUTS, "cpu_ms": spread(figures)}


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "80")
    print(orjson.dumps(one() if "--one" in sys.argv else main()).decode())
