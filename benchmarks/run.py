"""`make bench`: every figure of docs/performance.md in one run, each beside its budget.

Standard output is the tables, standard error the progress, `--json` the same figures for a script. A budget missed by
more than a factor of two is exit code 1. One missed by less is that only with `--check`: on a busy machine the figures
of one run say little, the ratios more.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks import collector, scale, served, startup
from benchmarks.commands import measure
from benchmarks.summary import Check, Json, concluded, shown, spread, table

PARTS = ("collector", "served", "scale", "startup", "report", "spans", "trace", "hop", "folding")
MILLION = 1_000_000


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


def machine() -> Json:
    """What the figures were measured on."""
    packages = {name: version(name) for name in ("velodrome", "aiohttp", "uvloop", "orjson")}
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "packages": packages,
        "load_before": os.getloadavg()[0],
    }


def measured(parts: list[str], folder: Path, given: argparse.Namespace) -> Json:
    """The parts that were asked for."""
    result: Json = {"machine": machine()}
    if "spans" in parts:
        result["spans"] = measure("span_cost", cwd=folder)
    if "trace" in parts:
        result["trace"] = measure("trace_cost", cwd=folder)
    if "hop" in parts:
        result["hop"] = measure("hop", cwd=folder)
    if "folding" in parts:
        result["folding"] = measure("folding", cwd=folder)
    if "report" in parts:
        result["report"] = measure("report", cwd=folder)
    if "startup" in parts:
        result["startup"] = startup.run(folder, 10 if given.quick else 15)
    if "collector" in parts:
        rounds, seconds = (2, 1.5) if given.quick else (given.rounds, 3.5)
        result["collector"] = collector.run(folder, rounds=rounds, seconds=seconds, say=say)
    if "served" in parts:
        rounds, seconds, starts = (2, 1.5, 3) if given.quick else (given.rounds, 3.5, 7)
        result["served"] = served.run(folder, rounds=rounds, seconds=seconds, starts=starts, say=say)
    if "scale" in parts:
        sizes = (5_000, 50_000) if given.quick else (20_000, 200_000)
        result["scale"] = scale.run(folder, (*sizes, MILLION) if given.full else sizes, say)
    result["machine"]["load_after"] = os.getloadavg()[0]
    return result


def checks(found: Json) -> list[Check]:
    """Every figure that has a budget."""
    made = []
    for row in found.get("collector", ()):
        where = f"{row['in_flight']} in flight, {row['endpoint']}"
        made.append(Check(f"CPU per rollout over the floor's, {where}", row["cpu_ratio"]["median"], 1.5, "x"))
        made.append(Check(f"rollouts/s over the floor's, {where}", row["rate_ratio"]["median"], 0.5, "x", least=True))
    for row in found.get("served", {}).get("rows", ()):
        what = f"CPU per rollout, served over embedded, {row['in_flight']} in flight"
        made.append(Check(what, row["cpu_ratio"]["median"], 3.0, "x"))
    if "served" in found:
        made.append(Check("velo run, three servers ready", found["served"]["ready_s"]["median"], 5.0, "s"))
    rows = found.get("scale", ())
    for row in rows:
        limit_mb = 150 + 100 * row["rollouts"] / 1e6  # 100 bytes per rollout
        made.append(Check(f"peak memory, {row['rollouts']:,} rollouts", row["collect_peak_mb"], limit_mb, "MB"))
        made.append(Check(f"peak memory, {row['rollouts']:,} resumed", row["resume_peak_mb"], limit_mb, "MB"))
        if row is rows[-1]:
            what = f"{row['rollouts']:,} rollouts: last tenth over second, rollouts"
            made.append(Check(f"{what}/s", row["steady"], 0.95, "x", least=True))
            made.append(Check(f"{what} per second of CPU", row["steady_cpu"], 0.95, "x", least=True))
    if rows:
        how = "" if rows[-1]["rollouts"] == MILLION else " (projected)"
        first_s = scale.projected(rows, "resume_first_s", MILLION)
        made.append(Check(f"resume of 1,000,000: first new rollout{how}", first_s, 10.0, "s"))
        cpu_s = scale.projected(rows, "resume_first_cpu_s", MILLION)
        made.append(Check(f"resume of 1,000,000: CPU to the first new rollout{how}", cpu_s, 10.0, "s"))
        for name, what in (("collect_peak_mb", "rollouts"), ("resume_peak_mb", "resumed")):
            made += (
                []
                if not how
                else [Check(f"peak memory, 1,000,000 {what}{how}", scale.projected(rows, name, MILLION), 250.0, "MB")]
            )
    if "span_share" in found:
        made.append(Check("always-on timing, share of collector CPU", found["span_share"], 3.0, "%"))
    if "folding" in found:
        ratio = found["folding"]["ratio"]["median"]
        made.append(Check("one chunk of a streamed answer, 80,000 of them over 8,000", ratio, 2.0, "x"))
    if "startup" in found:
        made.append(Check("velo --help", found["startup"]["help_s"]["median"], 0.25, "s"))
        made.append(Check("first rollout after the command", found["startup"]["first_rollout_s"]["median"], 2.0, "s"))
        made.append(Check("first screen of velo train", found["startup"]["first_screen_s"]["median"], 1.0, "s"))
        cpu_s = found["startup"]["first_rollout_cpu_s"]["median"]
        made.append(Check("CPU to the first rollout, embedded", cpu_s, 0.5, "s"))
    if "report" in found:
        made.append(Check("CPU of the end-of-run report", found["report"]["cpu_ms"]["median"], 50.0, "ms"))
    return made


def report(found: Json) -> None:
    """The tables."""
    if "collector" in found:
        head = ["in flight", "endpoint", "floor CPU ms", "product CPU ms", "ratio", "floor /s", "product /s", "ratio"]
        print("\nOne-tool rollout, embedded: CPU of the collector process, rollouts a second. Median (range).\n")
        print(table([*head, "model server CPU ms"], map(_collector_cells, found["collector"])))
    if "served" in found:
        report_served(found["served"])
    if "scale" in found:
        head = ["rollouts", "bytes a line", "collect s", "peak MB", "resume: first new s", "resume: all s", "peak MB"]
        head += ["last tenth over second, /s", "per CPU s"]
        print("\nLong collections, scripted model in the process.\n")
        print(table(head, map(_scale_cells, found["scale"])))
        rows = found["scale"]
        grown = [1e6 * scale.slope(rows, name) for name in ("collect_peak_mb", "resume_peak_mb")]
        print(f"\nMemory grows by {grown[0]:.0f} bytes a rollout collected, {grown[1]:.0f} a rollout resumed.")
    if "spans" in found:
        share = (
            f", {found['span_share']:.1f}% of the CPU of a rollout at 128 in flight" if "span_share" in found else ""
        )
        print(f"\nAlways-on timing: {found['spans']['spans']} spans, {shown(found['spans']['cpu_us'], 1)} us{share}.")
    if "trace" in found:
        costs = [f"{kind}: {shown(found['trace'][kind]['cpu_us'], 1)} us" for kind in (".json", ".json.gz")]
        print(f"\nA trace, on top of that: {', '.join(costs)} a rollout.")
    if "hop" in found:
        print("\nOne call of an environment's code, 16 in flight: microseconds, median (range).\n")
        rows = [
            [name.replace("_", ", "), *(shown(cost[key], 1) for key in cost)] for name, cost in found["hop"].items()
        ]
        print(table(["call", "CPU us", "wall us"], rows))
    if "folding" in found:
        short, long = (shown(found["folding"][f"chunks_{size}"], 1) for size in (8_000, 80_000))
        print(f"\nOne chunk of a streamed answer: {short} us of 8,000, {long} us of 80,000.")
    if "startup" in found:
        helped, first = found["startup"]["help_s"], found["startup"]["first_rollout_s"]
        cpu = shown(found["startup"]["first_rollout_cpu_s"])
        print(f"\nvelo --help: {shown(helped)} s. First rollout: {shown(first)} s after the command, {cpu} s of CPU.")
        screen, cpu = (shown(found["startup"][f"first_screen_{unit}"]) for unit in ("s", "cpu_s"))
        print(f"velo train, its first screen: {screen} s after the command, {cpu} s of CPU.")
    if "report" in found:
        report = found["report"]
        print(f"\nThe report after {report['rollouts']:,} rollouts: {shown(report['cpu_ms'], 1)} ms of CPU.")


def report_served(found: Json) -> None:
    """The tables of the servers."""
    head = ["in flight", "embedded CPU ms", "served CPU ms", "ratio", "of it collector", "embedded /s", "served /s"]
    print("\nOne-tool rollout through three servers: CPU of all processes but the upstream. Median (range).\n")
    print(table([*head, "ratio"], map(_served_cells, found["rows"])))
    print("\nOne hop, 16 in flight: CPU microseconds of one call here, over HTTP on both sides, and the difference.\n")
    head = ["call", "here", "client", "server", "hop"]
    print(table(head, ([name, *(shown(cost[key], 0) for key in cost)] for name, cost in found["hop"].items())))
    print(f"\nvelo run, three servers: ready after {shown(found['ready_s'])} s.")


def _served_cells(row: Json) -> list[str]:
    embedded, served = row["embedded"], row["served"]
    return [
        f"{row['in_flight']:,}",
        shown(embedded["cpu_ms"]),
        shown(served["cpu_ms"]),
        shown(row["cpu_ratio"]),
        shown(served["own_cpu_ms"]),
        shown(embedded["per_s"], 0),
        shown(served["per_s"], 0),
        shown(row["rate_ratio"]),
    ]


def _collector_cells(row: Json) -> list[str]:
    floor, product = row["floor"], row["product"]
    return [
        f"{row['in_flight']:,}",
        row["endpoint"],
        shown(floor["cpu_ms"]),
        shown(product["cpu_ms"]),
        shown(row["cpu_ratio"]),
        shown(floor["per_s"], 0),
        shown(product["per_s"], 0),
        shown(row["rate_ratio"]),
        shown(product["server_cpu_ms"]),
    ]


def _scale_cells(row: Json) -> list[str]:
    first_s = spread(row["resume_all_first_s"])
    return [
        f"{row['rollouts']:,}",
        f"{row['line_bytes']:.0f}",
        f"{row['collect_s']:.1f}",
        f"{row['collect_peak_mb']:.0f}",
        shown(first_s),
        f"{row['resume_total_s']:.2f}",
        f"{row['resume_peak_mb']:.0f}",
        f"{row['steady']:.2f}",
        f"{row['steady_cpu']:.2f}",
    ]


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds and small files: a look, not a figure")
    parser.add_argument("--full", action="store_true", help="a million rollouts too (about 3.5 GB of disk)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of floor and product [5]")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a budget is missed at all")
    return parser.parse_args()


def main() -> int:
    """Measure, print, write."""
    args = read_arguments()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="velodrome-bench-") as folder:
        result = measured(args.only or list(PARTS), Path(folder), args)
    if "spans" in result and "collector" in result:
        cpu_ms = next(row for row in result["collector"] if row["in_flight"] == 128)["product"]["cpu_ms"]["median"]
        result["span_share"] = 100 * result["spans"]["cpu_us"]["median"] / (1e3 * cpu_ms)
    made = checks(result)
    report(result)
    print("\nBudgets (docs/performance.md).\n")
    print(table(["what", "measured", "budget", ""], [check.cells() for check in made]))
    load = result["machine"]
    print(
        f"\n{time.perf_counter() - started:.0f} s, Python {load['python']}, {load['cores']} cores, load average "
        f"{load['load_before']:.1f} before and {load['load_after']:.1f} after."
    )
    return concluded(result, made, json=args.json, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
