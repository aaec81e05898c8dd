"""What profiling costs: CPU per rollout and rollouts/s with it, beside those without, embedded and served.

    python -m benchmarks.profilers [--rounds 5] [--json FILE]

Every round measures each way once, in turn; a ratio is of two measurements of one round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson

from benchmarks import product, workload
from benchmarks.commands import measure
from benchmarks.meter import allow_files
from benchmarks.model_server import ModelServer
from benchmarks.servers import Servers
from benchmarks.summary import Json, shown, spread, table
from velodrome.serving.profiling import profiled

PARALLEL = 16
EMBEDDED = 4000
SERVED = 1500
CLOCKS = ("off", "cpu", "wall")


@contextmanager
def under(clocks: str, folder: Path) -> Iterator[None]:
    """Measure this process with this clock, with its files."""
    with profiled(None if clocks == "off" else folder / "profiles", "collector", clock=clocks):
        yield


def one(given: argparse.Namespace) -> dict[str, float]:
    """One collection in this process."""
    where = argparse.Namespace(url=given.url, endpoint="responses", head=given.head, pids=given.pids)
    size = {"rollouts": given.rollouts, "parallel": PARALLEL, "input": Path("tasks.jsonl"), "output": given.output}
    with under(given.clocks, Path.cwd()):
        return product.main(argparse.Namespace(**vars(where), **size))


def run(folder: Path, *, rounds: int, say: Callable[[str], None]) -> Json:
    """Every figure."""
    workload.write_tasks(folder / "tasks.jsonl", range(EMBEDDED))
    ways: dict[str, Callable[[], Json]] = {}
    with ModelServer() as upstream, ExitStack() as stack:
        for clocks in CLOCKS:
            ways[f"embedded {clocks}"] = _way(folder, EMBEDDED, "--clocks", clocks, "--url", upstream.url)
        settings = workload.http_settings(upstream.url, "responses")
        on = ("+profiling_enabled=true", "+profiling_results_dirpath=profiles")
        for clocks, flags in (("off", ()), ("cpu", on)):
            servers = stack.enter_context(Servers(folder, *settings, *flags))
            ways[f"served {clocks}"] = _way(folder, SERVED, "--head", servers.head_port, "--pids", *servers.pids())
        collected: dict[str, list[Json]] = {name: [] for name in ways}
        for turn in range(rounds):
            for name, way in list(ways.items()) if turn % 2 == 0 else reversed(ways.items()):
                result = way()
                collected[name].append(result)
                say(
                    f"round {turn + 1}/{rounds}  {name:<14} {result['cpu_ms']:.3f} ms  {result['per_s']:.0f} rollouts/s"
                )
    return {name: _figures(collected[name], collected[f"{name.split()[0]} off"]) for name in collected}


def _way(folder: Path, rollouts: int, *more: object) -> Callable[[], Json]:
    def way() -> Json:
        result: Json = measure("profilers", "--one", "--rollouts", rollouts, "--output", "r.jsonl", *more, cwd=folder)
        for left in folder.glob("r.*"):
            left.unlink()
        return result

    return way


def _figures(results: list[Json], off: list[Json]) -> Json:
    pairs = list(zip(results, off, strict=True))
    return {
        "cpu_ms": spread([each["cpu_ms"] for each in results]),
        "per_s": spread([each["per_s"] for each in results]),
        "cpu_ratio": spread([each["cpu_ms"] / without["cpu_ms"] for each, without in pairs]),
        "rate_ratio": spread([each["per_s"] / without["per_s"] for each, without in pairs]),
    }


def report(found: Json) -> str:
    """The figures as a table."""
    names = {"off": "without", "cpu": "CPU clock", "wall": "wall clock"}
    rows = []
    for name, figures in found.items():
        where, clocks = name.split()
        cells = [shown(figures["cpu_ms"]), shown(figures["cpu_ratio"]), shown(figures["per_s"], 0)]
        rows.append([where, names[clocks], *cells, shown(figures["rate_ratio"])])
    return table(["", "profiling", "CPU ms per rollout", "x without", "rollouts/s", "x without"], rows)


def main() -> None:
    """Measure and print; the table goes to stdout, what is going on to stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--clocks", choices=CLOCKS, default="off")
    parser.add_argument("--url")
    parser.add_argument("--head", type=int)
    parser.add_argument("--pids", type=int, nargs="*", default=())
    parser.add_argument("--rollouts", type=int)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    allow_files()
    if args.one:
        print(orjson.dumps(one(args)).decode())
        return
    with tempfile.TemporaryDirectory() as folder:
        result = run(Path(folder), rounds=args.rounds, say=lambda line: print(line, file=sys.stderr, flush=True))
    print(report(result))
    if args.json is not None:
        args.json.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
