"""The product: a real collection, from its config to its files, under the same meter as the floor.

With `--head` it uses the servers that run there, and the CPU of the processes in `--pids` is counted too.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
from pathlib import Path

import orjson

from benchmarks import workload
from benchmarks.meter import Meter, allow_files
from velodrome.cli.collect import CollectOptions, collect, run_async, use_limits, with_files
from velodrome.cli.options import load_options
from velodrome.serving.discovery import find


def main(given: argparse.Namespace) -> dict[str, float]:
    """Collect as `velo collect` does; every rollout must be kept and earn its reward."""
    where = (
        [*workload.http_settings(given.url, given.endpoint), "+embedded=true"]
        if given.head is None
        else [f"+head_server.port={given.head}", f"+agent_name={workload.AGENT}"]
    )
    argv = [
        *where,
        f"+input_jsonl_fpath={given.input}",
        f"+output_jsonl_fpath={given.output}",
        f"+limit={given.rollouts}",
        f"+num_samples_in_parallel={given.parallel}",
    ]
    config, options = load_options(CollectOptions, argv)
    options, output = with_files(options)
    config, servers = find(config, embedded=options.embedded)
    use_limits(options)
    with Meter(output, given.pids) as meter:
        outcome = run_async(collect(options, config, servers))
    if outcome.kept != given.rollouts or outcome.metrics["reward"] != 1.0:
        raise SystemExit(f"not the work that was to be measured: {outcome.summary()}, {outcome.metrics}")
    return meter.result(parallel=given.parallel)


def profiled(given: argparse.Namespace) -> dict[str, float]:
    """The same under cProfile, which makes it about three times slower; the table goes to standard error."""
    profiler = cProfile.Profile()
    result: dict[str, float] = profiler.runcall(main, given)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(60)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--endpoint", choices=("responses", "chat"))
    parser.add_argument("--head", type=int)
    parser.add_argument("--pids", type=int, nargs="*", default=())
    parser.add_argument("--rollouts", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    allow_files()
    print(orjson.dumps(profiled(asked) if asked.profile else main(asked)).decode())
