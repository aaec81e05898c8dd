"""CPU per rollout and rollouts a second, floor beside product, round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.commands import measure
from benchmarks.model_server import ModelServer
from benchmarks.summary import Json, spread

IN_FLIGHT = (16, 128, 1024)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    parallel: int
    endpoint: str


CASES = (*(Case(parallel, "responses") for parallel in IN_FLIGHT), Case(128, "chat"))


class Bench:
    """The model server, the input, and how much of it takes long enough."""

    def __init__(self, server: ModelServer, folder: Path, seconds: float) -> None:
        self._server = server
        self._folder = folder
        self._input = folder / "tasks.jsonl"
        workload.write_tasks(self._input, range(2000))
        trial = Case(128, "responses")
        self._line_bytes = round(self.product(trial, 2000)["line_bytes"])
        self._per_s = self.floor(trial, 2000)["per_s"]
        self._seconds = seconds
        workload.write_tasks(self._input, range(max(self.rollouts(case) for case in CASES)))

    def rollouts(self, case: Case) -> int:
        """Enough for the floor to be steady for `seconds`, and for many waves of answers, which bunch up."""
        return max(int(self._per_s * self._seconds * 1.15) + 3 * case.parallel, 12 * case.parallel)

    def floor(self, case: Case, rollouts: int) -> Json:
        """One measurement of the floor."""
        return self._measure("floor", case, rollouts, "--line-bytes", self._line_bytes)

    def product(self, case: Case, rollouts: int) -> Json:
        """One measurement of the product."""
        return self._measure("product", case, rollouts, "--input", self._input)

    def _measure(self, module: str, case: Case, rollouts: int, *more: object) -> Json:
        output = self._folder / f"{module}.jsonl"
        before = self._server.cpu_s()
        common = ("--url", self._server.url, "--endpoint", case.endpoint, "--output", output)
        size = ("--rollouts", rollouts, "--parallel", case.parallel)
        result: Json = measure(module, *common, *size, *more, cwd=self._folder)
        result["server_cpu_ms"] = 1e3 * (self._server.cpu_s() - before) / rollouts
        for left in self._folder.glob(f"{module}.*"):
            left.unlink()
        return result


def run(folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]) -> list[Json]:
    """Every case, `rounds` times; who goes first changes from round to round."""
    collected: dict[Case, dict[str, list[Json]]] = {case: {"floor": [], "product": []} for case in CASES}
    with ModelServer() as server:
        bench = Bench(server, folder, seconds)
        for turn, case, who in _turns(rounds):
            result = getattr(bench, who)(case, bench.rollouts(case))
            collected[case][who].append(result)
            say(
                f"round {turn + 1}/{rounds}  {case.parallel:>4} in flight  {case.endpoint:<9}  {who:<7}  "
                f"{result['cpu_ms']:.3f} ms CPU  {result['per_s']:.0f} rollouts/s"
            )
    return [_row(case, collected[case]["floor"], collected[case]["product"]) for case in CASES]


def _turns(rounds: int) -> Iterator[tuple[int, Case, str]]:
    for turn in range(rounds):
        for case in CASES:
            for who in ("floor", "product") if turn % 2 == 0 else ("product", "floor"):
                yield turn, case, who


def _row(case: Case, floor: list[Json], product: list[Json]) -> Json:
    """Ratios are of the two measurements of one round, which had the same neighbours on the machine."""
    row: Json = {"in_flight": case.parallel, "endpoint": case.endpoint, "line_bytes": product[0]["line_bytes"]}
    for name, results in (("floor", floor), ("product", product)):
        row[name] = {key: spread([each[key] for each in results]) for key in ("cpu_ms", "per_s", "server_cpu_ms")}
    pairs: list[tuple[Any, Any]] = list(zip(product, floor, strict=True))
    row["cpu_ratio"] = spread([ours["cpu_ms"] / least["cpu_ms"] for ours, least in pairs])
    row["rate_ratio"] = spread([ours["per_s"] / least["per_s"] for ours, least in pairs])
    return row
