"""`make bench-peers`: the one-tool rollout here and in other programs, in turns, on one scripted model server.

    python -m benchmarks.peers [--rounds 3] [--only NAME …] [--in-flight N …] [--json FILE]

Each measurement is a run of the program's own, in the environment that tests/interop/programs.py makes for it. The
table goes to standard output, progress to standard error. A run that fails is a line of the table, not an end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks import workload
from benchmarks.commands import ROOT
from benchmarks.meter import allow_files
from benchmarks.model_server import ModelServer
from benchmarks.peers.process_tree import CALLS, figures, watch
from benchmarks.summary import Json, concluded, shown, spread, table
from tests.interop.programs import PROGRAMS, environment, inherited, make, make_home, process_group

HERE = Path(__file__).parent
IN_FLIGHT = (16, 128, 1024)
DEADLINE_S = 3600.0


@dataclass(frozen=True)
class Peer:
    """A program's script, and how many rollouts it is given at each number in flight."""

    script: str
    rollouts: tuple[int, int, int]
    processes: bool = False  # it starts one for each rollout; and wants its answers streamed


PEERS = {
    "velodrome": Peer("velodrome_run.py", (6000, 8000, 12288)),
    "verifiers_tool_env": Peer("tool_env_run.py", (400, 800, 3072)),
    "inspect": Peer("inspect_run.py", (400, 800, 3072)),
    "verifiers": Peer("verifiers_run.py", (64, 320, 2560), processes=True),
}


class Bench:
    """The model server, the tasks, a folder for what the programs leave behind."""

    def __init__(self, server: ModelServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._input = folder / "tasks.jsonl"
        workload.write_tasks(self._input, range(max(max(peer.rollouts) for peer in PEERS.values())))

    def measure(self, name: str, parallel: int) -> Json:
        """One run: its figures, or `{"failed": why}`."""
        peer, work = PEERS[name], self._folder / "work"
        rollouts = peer.rollouts[IN_FLIGHT.index(parallel)]
        url = self._server.streaming_url if peer.processes else self._server.url
        python = environment(name) if name in PROGRAMS else Path(sys.executable)
        make_home(work / "home", python)
        arguments = {
            "url": url,
            "input": self._input,
            "output": work / "output",
            "rollouts": rollouts,
            "parallel": parallel,
        }
        command = [
            str(python),
            str(HERE / peer.script),
            *(f"--{key}={value}" for key, value in arguments.items()),
        ]
        paths = HERE if name in PROGRAMS else ROOT
        variables = {"HOME": str(work / "home"), "TMPDIR": str(work), "NO_KEY": "none", "PYTHONPATH": str(paths)}
        try:
            return self._watched(command, work, inherited() | variables, rollouts, parallel)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _watched(self, command: list[str], work: Path, env: dict[str, str], rollouts: int, parallel: int) -> Json:
        before = self._server.calls()
        with (
            (work / "said").open("w+b") as said,
            process_group(command, work, env, stdout=said, stderr=subprocess.STDOUT) as process,
        ):
            try:
                looks, peak_mb = watch(process, lambda: self._server.calls() - before, DEADLINE_S)
            except TimeoutError:
                return {"failed": f"not over after {DEADLINE_S:.0f} s"}
            said.seek(0)
            text = said.read().decode(errors="replace").rstrip()
        if process.returncode:
            return {"failed": text.rpartition("\n")[2][:300], "said": text[-4000:]}
        work_done = orjson.loads(text.rpartition("\n")[2])
        if work_done != {"rollouts": rollouts, "reward": 1.0}:
            return {"failed": f"{work_done} of {rollouts}", "said": text[-4000:]}
        again = (self._server.calls() - before) / CALLS / rollouts - 1
        return {**figures(looks, rollouts, parallel), "peak_mb": peak_mb, "calls_again": again}


def too_large(measured: dict[int, list[Json]], parallel: int) -> str | None:
    """Why a program with a process for each rollout is not run: it would take half of the memory that is free."""
    peaks_mb = [
        each["peak_mb"] * parallel / fewer for fewer, some in measured.items() for each in some if "peak_mb" in each
    ]
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    half_mb = int(meminfo["MemAvailable"].split()[0]) * 1024 / 1e6 / 2
    need_mb = max(peaks_mb, default=0.0)
    return f"not run: about {need_mb / 1e3:.0f} GB" if need_mb > half_mb else None


def run(bench: Bench, names: list[str], in_flight: list[int], rounds: int) -> list[Json]:
    """Every program at every number in flight, in turns; who goes first changes."""
    results: dict[str, dict[int, list[Json]]] = {name: {parallel: [] for parallel in in_flight} for name in names}
    for turn in range(rounds):
        for parallel in in_flight:
            for name in names[:: -1 if turn % 2 else 1]:
                why = too_large(results[name], parallel) if PEERS[name].processes else None
                result = {"failed": why} if why else bench.measure(name, parallel)
                results[name][parallel].append(result)
                print(
                    f"round {turn + 1}/{rounds}  {parallel:>4} in flight  {name:<18}  {brief(result)}", file=sys.stderr
                )
    return [row(name, parallel, results) for parallel in in_flight for name in names]


def brief(result: Json) -> str:
    """One run in a few words. Calls made again are counted as progress, so they make a program look faster."""
    if "failed" in result:
        return str(result["failed"])
    again = f"  {result['calls_again']:.1%} of calls made again" if result["calls_again"] else ""
    return f"{result['cpu_ms']:.2f} ms CPU  {result['per_s']:.1f} rollouts/s{again}"


def row(name: str, parallel: int, results: dict[str, dict[int, list[Json]]]) -> Json:
    """The rounds of one program; a ratio is to our run of the same round."""
    rounds, ours = results[name][parallel], results.get("velodrome", {}).get(parallel, [])
    good = [each for each in rounds if "failed" not in each]
    made: Json = {"peer": name, "in_flight": parallel, "rounds": rounds}
    if not good:
        return made | {"failed": rounds[0]["failed"]}
    for key in ("cpu_ms", "per_s", "peak_mb", "start_s", "start_cpu_s"):
        made[key] = spread([each[key] for each in good])
    pairs = [pair for pair in zip(rounds, ours, strict=False) if all("failed" not in each for each in pair)]
    if pairs:
        made["cpu_ratio"] = spread([theirs["cpu_ms"] / mine["cpu_ms"] for theirs, mine in pairs])
    return made


def cells(row: Json) -> list[str]:
    """One line of the table."""
    name = row["peer"]
    begin = [f"{row['in_flight']:,}", PROGRAMS[name].needs[0].replace("==", " ") if name in PROGRAMS else name]
    if "failed" in row:
        return [*begin, row["failed"], "", "", "", ""]
    ratio = f"{row['cpu_ratio']['median']:.0f}x" if "cpu_ratio" in row else ""
    digits = 2 if row["cpu_ms"]["median"] < 10 else 0 if row["cpu_ms"]["median"] > 100 else 1
    return [
        *begin,
        shown(row["cpu_ms"], digits),
        ratio,
        shown(row["per_s"], 0 if row["per_s"]["median"] > 100 else 1),
        f"{row['peak_mb']['median']:,.0f}",
        f"{row['start_cpu_s']['median']:.1f}",
    ]


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PEERS, action="append", help="one program; may be given again")
    parser.add_argument("--in-flight", type=int, choices=IN_FLIGHT, action="append", help="may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


def main() -> int:
    """Measure and print."""
    args = read_arguments()
    names = [name for name in PEERS if name in (args.only or PEERS)]
    for name in names:
        if name in PROGRAMS:
            make(name)
    allow_files()
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="velodrome-bench-") as folder, ModelServer("--streams") as server:
        rows = run(Bench(server, Path(folder)), names, sorted(args.in_flight or IN_FLIGHT), args.rounds)
    load.append(os.getloadavg()[0])
    head = ["in flight", "program", "CPU ms per rollout", "over ours", "rollouts/s", "peak MB", "start-up, CPU s"]
    print(table(head, map(cells, rows)))
    print(f"\nLoad average {load[0]:.1f} before, {load[1]:.1f} after.")
    return concluded({"rows": rows, "load": load}, [], json=args.json, check=False)


if __name__ == "__main__":
    sys.exit(main())
