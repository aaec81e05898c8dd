"""What each built-in environment costs: verify and tools, one rollout after the other, then 64 in flight.

    python -m benchmarks.environments [--only NAME,…] [--rollouts 256] [--json FILE]

The reference answers are played by the real agent; the model costs next to nothing. Each environment is measured in a
process of its own. Where nothing takes a session and no model is among the settings, code runs with
`executor: process`, two workers; else as the environment has it. CPU is that of all processes, without their start.
reasoning_gym is measured on a task of each of its families, not on its examples.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.summary import Json, table
from velodrome.errors import InputError
from velodrome.examiner.catalogue import catalogue
from velodrome.examiner.playing import AnswerCase, Player, play_together
from velodrome.examiner.subject import named_subject

IN_FLIGHT = 64
PROCESSES = 2
HEAVY = {"code_gen": 64, "python_tool": 64, "terminal": 64, "mcp_tools": 64}  # a process for each rollout: fewer


def names() -> list[str]:
    """The built-in environments."""
    return [each.name for each in catalogue(Path("/nonexistent")) if each.origin == "built in"]


def one(name: str, rollouts: int) -> Json:
    """The figures of one environment, in this process."""
    subject = named_subject(name)
    environment = subject.make()
    executor = environment.executor
    try:
        environment = type(environment)(
            **{**type(environment).example_settings(), "executor": "process", "worker_processes": PROCESSES}
        )
        executor = "process"
    except InputError:
        pass
    tasks = _families(environment) if name == "reasoning_gym" else [row.task for row in subject.rows if row.task]
    answers = [(task, environment.reference_answer(task)) for task in tasks]
    cases = [AnswerCase(task, str(at), "reference", "", each) for at, (task, each) in enumerate(answers) if each]
    return asyncio.run(_measured(environment, cases, min(rollouts, HEAVY.get(name, rollouts)))) | {"executor": executor}


def _families(environment: Any) -> list[Json]:
    from velodrome.environments.reasoning_gym.families import family_names

    return [environment.generate(1, at) for at in range(len(family_names()))]


async def _measured(environment: Any, cases: list[AnswerCase], rollouts: int) -> Json:
    player = Player(environment)
    try:
        first = await play_together(player, (cases * IN_FLIGHT)[:IN_FLIGHT])  # processes are started
        alone = [await player.play(case) for case in cases]
        wrong = [
            play for play in (*first, *alone) if play.reward != 1.0 and environment.__class__.__name__ != "ReasoningGym"
        ]
        if wrong:
            raise SystemExit(f"{wrong[0].case.task_id}: {wrong[0].failure or wrong[0].score}")
        spans = [span for play in alone for span in play.times.walk()]
        verify = [1e3 * span.seconds for span in spans if span.name == "verify"]
        tools = [1e3 * span.seconds for span in spans if span.name.startswith("tool:")]
        queue = iter(list(itertools.islice(itertools.cycle(cases), rollouts)))
        cpu, began = _cpu_s(environment), time.perf_counter()

        async def play_on() -> None:
            for case in queue:
                await player.play(case)

        await asyncio.gather(*(play_on() for _ in range(IN_FLIGHT)))
        seconds, used = time.perf_counter() - began, _cpu_s(environment) - cpu
    finally:
        await environment.aclose()
    return {
        "tasks": len(cases),
        "verify_ms": statistics.median(verify) if verify else None,
        "verify_longest_ms": max(verify, default=None),
        "tool_ms": statistics.median(tools) if tools else None,
        "rollouts": rollouts,
        "per_s": rollouts / seconds,
        "cpu_ms": 1e3 * used / rollouts,
    }


def _cpu_s(environment: Any) -> float:
    """CPU of this process, of children that ended, and of the environment's workers."""
    whose = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    workers = getattr(environment, "_workers", None)
    pids = [each.child.pid for each in getattr(workers, "_workers", ())]
    return sum(each.ru_utime + each.ru_stime for each in whose) + sum(map(_process_cpu_s, pids))


def _process_cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100


def run(wanted: list[str], rollouts: int) -> Json:
    """Every environment, each in a process of its own."""
    results: Json = {}
    for name in wanted:
        command = [sys.executable, "-m", "benchmarks.environments", "--one", name, "--rollouts", str(rollouts)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        last = (done.stdout if not done.returncode else done.stderr).strip().splitlines()[-1:] or [""]
        results[name] = json.loads(last[0]) if not done.returncode else {"error": last[0][:200]}
        print(f"{name}: {last[0][:200]}", file=sys.stderr, flush=True)
    return results


def report(results: Json) -> str:
    """The table."""

    def cell(value: Any, digits: int = 3) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    rows = [
        [
            name,
            each["executor"],
            cell(each["verify_ms"]),
            cell(each["tool_ms"]),
            cell(each["per_s"], 0),
            cell(each["cpu_ms"]),
        ]
        if "error" not in each
        else [name, each["error"][:60], "", "", "", ""]
        for name, each in results.items()
    ]
    columns = [
        "environment",
        "executor",
        "verify ms",
        "tool ms",
        f"rollouts/s, {IN_FLIGHT} in flight",
        "CPU ms per rollout",
    ]
    return table(columns, rows)


def main() -> int:
    """Measure and print; 1 if an environment could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--one")
    parser.add_argument("--rollouts", type=int, default=256)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.rollouts)))
        return 0
    results = run(args.only.split(",") if args.only else names(), args.rollouts)
    print(report(results))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=2))
    return int(any("error" in each for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
