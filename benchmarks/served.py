"""The same rollouts through servers: CPU over all processes beside embedded, time to ready, the cost of one hop.

Links is collector -> agent -> {model, resources}, each in its own process, and the model server's upstream is the same
scripted server that the embedded model calls. The upstream's CPU is nobody's: both sides cause the same of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import workload
from benchmarks.commands import measure
from benchmarks.model_server import ModelServer
from benchmarks.servers import Servers
from benchmarks.summary import Json, spread

IN_FLIGHT = (1, 16, 128)
_TRIAL = 600


class Bench:
    """The upstream, the servers before it, and the input."""

    def __init__(self, upstream: ModelServer, servers: Servers, folder: Path, seconds: float) -> None:
        self._upstream = upstream
        self._servers = servers
        self._folder = folder
        self._seconds = seconds
        self._input = folder / "tasks.jsonl"
        workload.write_tasks(self._input, range(_TRIAL))
        self._per_s = {who: getattr(self, who)(16, _TRIAL)["per_s"] for who in ("embedded", "served")}
        most = max(self.rollouts(who, parallel) for who in self._per_s for parallel in IN_FLIGHT)
        workload.write_tasks(self._input, range(most))

    def rollouts(self, who: str, parallel: int) -> int:
        """Enough to be steady for about `seconds`, and for many waves of answers; alone, a rollout takes longer."""
        share = 0.5 if parallel == 1 else 1.0
        return max(int(self._per_s[who] * self._seconds * share) + 3 * parallel, 12 * parallel)

    def embedded(self, parallel: int, rollouts: int) -> Json:
        """One measurement of all in one process."""
        return self._measure(parallel, rollouts, "--url", self._upstream.url, "--endpoint", "responses")

    def served(self, parallel: int, rollouts: int) -> Json:
        """One measurement of the servers and the collector."""
        servers = self._servers
        return self._measure(parallel, rollouts, "--head", servers.head_port, "--pids", *servers.pids())

    def _measure(self, parallel: int, rollouts: int, *more: object) -> Json:
        output = self._folder / "rollouts.jsonl"
        size = ("--rollouts", rollouts, "--parallel", parallel)
        result: Json = measure("product", *size, "--input", self._input, "--output", output, *more, cwd=self._folder)
        for left in self._folder.glob("rollouts.*"):
            left.unlink()
        return result


def run(folder: Path, *, rounds: int, seconds: float, starts: int, say: Callable[[str], None]) -> Json:
    """Every figure of the servers."""
    with ModelServer() as upstream:
        settings = workload.http_settings(upstream.url, "responses")
        ready = []
        for _ in range(starts):
            with Servers(folder, *settings) as servers:
                ready.append(servers.ready_s)
        say(f"velo run, three servers: ready after {min(ready):.2f}-{max(ready):.2f} s")
        with Servers(folder, *settings) as servers:
            bench = Bench(upstream, servers, folder, seconds)
            collected: dict[int, dict[str, list[Json]]] = {parallel: {} for parallel in IN_FLIGHT}
            for turn, parallel, who in _turns(rounds):
                result = getattr(bench, who)(parallel, bench.rollouts(who, parallel))
                collected[parallel].setdefault(who, []).append(result)
                say(
                    f"round {turn + 1}/{rounds}  {parallel:>4} in flight  {who:<8}  "
                    f"{result['cpu_ms']:.3f} ms CPU  {result['per_s']:.0f} rollouts/s"
                )
            hop = measure("wire", *_places(servers, upstream), cwd=folder)
    return {
        "ready_s": spread(ready),
        "rows": [
            _row(parallel, collected[parallel]["embedded"], collected[parallel]["served"]) for parallel in IN_FLIGHT
        ],
        "hop": hop,
    }


def _turns(rounds: int) -> Iterator[tuple[int, int, str]]:
    for turn in range(rounds):
        for parallel in IN_FLIGHT:
            for who in ("embedded", "served") if turn % 2 == 0 else ("served", "embedded"):
                yield turn, parallel, who


def _places(servers: Servers, upstream: ModelServer) -> list[object]:
    result: list[object] = ["--upstream", upstream.url]
    for name in ("calculator", "policy_model"):
        result += [f"--{name.replace('_', '-')}", servers.urls[name], servers.pid(name)]
    return result


def _row(parallel: int, embedded: list[Json], served: list[Json]) -> Json:
    """Ratios are of the two measurements of one round, which had the same neighbours on the machine."""
    row: Json = {"in_flight": parallel}
    for name, results in (("embedded", embedded), ("served", served)):
        row[name] = {key: spread([each[key] for each in results]) for key in ("cpu_ms", "own_cpu_ms", "per_s")}
    pairs = list(zip(served, embedded, strict=True))
    row["cpu_ratio"] = spread([far["cpu_ms"] / near["cpu_ms"] for far, near in pairs])
    row["rate_ratio"] = spread([far["per_s"] / near["per_s"] for far, near in pairs])
    return row
