"""`make bench-train`: what training costs, beside others that do the same work, each figure beside its goal.

    python -m benchmarks.train [--rounds 10] [--json FILE] [--check] [--quick]

Everything on one thread, each trainer in a process of its own in every round, in turn and the other way round in every
second; a ratio is of two measurements of one round. Standard output is the tables, standard error the progress.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import orjson

from benchmarks.commands import measure
from benchmarks.summary import Check, Json, shown, spread, table
from benchmarks.train.cases import CASES

RIVALS = {"stable-baselines3": "stable_baselines3", "CleanRL-style": "torch", "PufferLib": "pufferlib"}
VARIANTS = {"same": "our module", "written": "as written"}
ENVS = (16, 64, 256, 1024, 4096)
TAUGHT = (64, 256, 1024)
PARTS = ("trainers", "scaling", "naive", "account")
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


def machine() -> Json:
    """What the figures were measured on."""
    packages = {}
    for name in ("torch", "numba", "numpy", "gymnasium", "stable-baselines3", "pufferlib-core"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "packages": packages,
        "load_before": os.getloadavg()[0],
    }


def trainers(folder: Path, rounds: int, seconds: float, names: list[str]) -> Json:
    """`{case: {way: [measurement of each round]}}`."""
    present = [name for name, module in RIVALS.items() if find_spec(module)]
    ways = [("ours", "same"), *((name, variant) for name in present for variant in VARIANTS)]
    result: Json = {name: {} for name in names}
    for turn in range(rounds):
        for way, variant in ways if turn % 2 == 0 else ways[::-1]:
            reported = measure("train.one", way, variant, seconds, *names, cwd=folder)
            label = way if way == "ours" else f"{way}, {VARIANTS[variant]}"
            for name in names:
                result[name].setdefault(label, []).append(reported[name])
            rates = ", ".join(f"{name}: {reported[name]['per_cpu_s']:,.0f}" for name in names)
            say(f"round {turn + 1}/{rounds}  {label:<30} {rates}")
    return {name: {way: _figures(each, ways["ours"]) for way, each in ways.items()} for name, ways in result.items()}


def _figures(results: list[Json], ours: list[Json]) -> Json:
    return {
        "per_cpu_s": spread([each["per_cpu_s"] for each in results]),
        "per_s": spread([each["per_s"] for each in results]),
        "ours_over_it": spread([own["per_cpu_s"] / each["per_cpu_s"] for own, each in zip(ours, results, strict=True)]),
        "rounds": [each["per_cpu_s"] for each in results],
    }


def repeated(module: str, folder: Path, rounds: int, *args: object) -> list[Json]:
    """A smaller part, round after round."""
    result = []
    for turn in range(rounds):
        result.append(measure(f"train.{module}", *args, cwd=folder))
        say(f"round {turn + 1}/{rounds}  {module}")
    return result


def measured(given: argparse.Namespace, folder: Path) -> Json:
    """The parts that were asked for."""
    seconds = 0.2 if given.quick else given.seconds
    rounds = 2 if given.quick else given.rounds
    fewer = max(2, rounds // 2)
    result: Json = {"machine": machine()}
    parts = given.only or PARTS
    if "trainers" in parts:
        names = [case.name for case in CASES if not given.quick or case.agents <= 256]
        result["trainers"] = trainers(folder, rounds, seconds, names)
    if "scaling" in parts:
        reported = repeated("scaling", folder, fewer, seconds / 2, *ENVS)
        result["scaling"] = {
            envs: {key: spread([each[envs][key] for each in reported]) for key in reported[0][envs]}
            for envs in reported[0]
        }
    if "naive" in parts:
        reported = repeated("naive", folder, rounds, seconds / 2, *TAUGHT)
        result["naive"] = {
            size: {
                way: _figures([each[size][way] for each in reported], [each[size]["ours"] for each in reported])
                for way in ways
            }
            for size, ways in reported[0].items()
        }
    if "account" in parts:
        reported = repeated("account", folder, rounds, seconds, *(64, 1024, 4096))
        result["account"] = {
            name: {
                "outside": spread([each[name]["outside"] for each in reported]),
                "spans": spread([each[name]["spans"] for each in reported]),
                "spans_in_turns": spread([each[name]["spans_in_turns"] for each in reported]),
                "parts": {
                    part: spread([each[name]["parts"][part] for each in reported])["median"] for part in row["parts"]
                },
            }
            for name, row in reported[0].items()
        }
    result["machine"]["load_after"] = os.getloadavg()[0]
    return result


def best(ways: Json, variant: str) -> str:
    """The fastest of the others with one of the two networks."""
    return max(
        (way for way in ways if way.endswith(VARIANTS[variant])), key=lambda way: ways[way]["per_cpu_s"]["median"]
    )


def checks(found: Json) -> list[Check]:
    """The goals of issue 6."""
    made = []
    for name, ways in found.get("trainers", {}).items():
        for variant in VARIANTS:
            way = best(ways, variant)
            made.append(Check(f"{name}: over {way}", ways[way]["ours_over_it"]["median"], 1.5, "x", least=True))
    scaling = found.get("scaling", {})
    for part in ("environment", "teacher", "loop"):
        if scaling:
            few, many = (scaling[str(envs)][f"{part}_us"]["median"] for envs in (ENVS[0], ENVS[-1]))
            made.append(Check(f"cost of an agent step, {part}: {ENVS[-1]} envs over {ENVS[0]}", many / few, 1.15, "x"))
    for size, ways in found.get("naive", {}).items():
        for way in ways:
            if way != "ours":
                ratio = ways[way]["ours_over_it"]["median"]
                made.append(Check(f"supervised, {size} agents: over {way}", ratio, 2.0, "x", least=True))
    for name, row in found.get("account", {}).items():
        made.append(Check(f"outside forward, backward, environment: {name}", 100 * row["outside"]["median"], 10, "%"))
        made.append(Check(f"spans: {name}", 100 * row["spans"]["median"], 2, "%"))
    return made


def report(found: Json) -> None:
    """The tables."""
    for name, ways in found.get("trainers", {}).items():
        print(f"\nPPO, {name} agents: agent steps, median (range).\n")
        rows = [
            [way, shown(each["per_cpu_s"], 0), shown(each["per_s"], 0), shown(each["ours_over_it"])]
            for way, each in ways.items()
        ]
        print(table(["trainer", "per CPU second", "per second", "ours over it"], rows))
    if "scaling" in found:
        print("\nCPU microseconds of one agent step, by environments of 4 agents; median (range).\n")
        head = ["environments", "environment", "teacher", "whole loop"]
        print(table(head, ([envs, *(shown(each) for each in row.values())] for envs, row in found["scaling"].items())))
    if "naive" in found:
        print("\nSupervised phase: agent steps per CPU second, median (range).\n")
        rows = [
            [size, way, shown(each["per_cpu_s"], 0), shown(each["ours_over_it"])]
            for size, ways in found["naive"].items()
            for way, each in ways.items()
        ]
        print(table(["agents", "way", "per CPU second", "ours over it"], rows))
    if "account" in found:
        print("\nShares of the loop's time, from its own account, and what its spans cost; percent, median (range).\n")
        rows = []
        for name, row in found["account"].items():
            most = sorted(row["parts"].items(), key=lambda each: -each[1])[:6]
            reported = ", ".join(f"{part.split('/')[1]} {100 * share:.0f}" for part, share in most)
            figures = (
                {key: 100 * value for key, value in row[kind].items()}
                for kind in ("outside", "spans", "spans_in_turns")
            )
            rows.append([name, *(shown(each, 1) for each in figures), reported])
        print(table(["phase, agents", "outside", "spans", "spans, in turns", "largest parts"], rows))


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds of the small cases: a look, no figure")
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds [10]")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds of one measurement, about [1]")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a goal is missed")
    return parser.parse_args()


def main() -> int:
    """Measure, print, write."""
    args = read_arguments()
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="velodrome-bench-") as folder:
        result = measured(args, Path(folder))
    made = checks(result)
    report(result)
    print("\nGoals (docs/performance.md).\n")
    print(table(["what", "measured", "goal", ""], [check.cells() for check in made]))
    on = result["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in on["packages"].items())
    print(f"\n{time.perf_counter() - started:.0f} s, Python {on['python']}, {on['cores']} cores, {packages}.")
    print(f"Load average {on['load_before']:.1f} before and {on['load_after']:.1f} after.")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        data = {**result, "checks": [check.as_json() for check in made]}
        args.json.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return 1 if args.check and not all(check.kept for check in made) else 0


if __name__ == "__main__":
    sys.exit(main())
