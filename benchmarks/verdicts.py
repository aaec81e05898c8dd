"""Is the verdict right, and does its advice give what it predicts? `python -m benchmarks.verdicts [--quick] [--check]`

Each case is a real collection that is bound by one thing. Its verdict is taken, the first advice applied as it is
written, and the same collection run again: the predicted throughput stands beside the real one. Each pair is run
several times; the one with the median error is told, and the errors of all. `--others SEED` draws other numbers for the
same cases, which nothing was tuned on.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson

from benchmarks.summary import table
from benchmarks.verdict_cases import AGENT, APP, BEHIND_HTTP, CASES, IN_PROCESS, Case, other_cases
from velodrome.cli.collect import SETTINGS, make_options, run_async
from velodrome.collect.collection import collect
from velodrome.config import load
from velodrome.read.profile import read_profile
from velodrome.serving.scripted import ScriptedServer

Json = dict[str, Any]

MOST_ERROR = 0.2


class Bench:
    """One case in a folder of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self._folder = folder
        self._runs = 0

    def run(self, override: str | None) -> Json:
        """Collect once and read the profile. `override` None is the run as it is, "" the change made by hand."""
        self._runs += 1
        folder = self._folder / f"run{self._runs}"
        folder.mkdir(parents=True)
        self._write(folder, by_hand=override == "")
        os.chdir(folder)
        run_async(self._collect(folder, [override] if override else []))
        return read_profile(folder / "rollouts.jsonl")

    def _write(self, folder: Path, *, by_hand: bool) -> None:
        case = self.case
        name = case.implementation or "slow"
        body = case.body
        for before, after in case.by_hand.items() if by_hand else ():
            body = body.replace(before, after)
        if case.implementation is None:
            app = folder / "resources_servers" / name / "app.py"
            app.parent.mkdir(parents=True)
            app.write_text(APP.format(body=body))
        (folder / "agent.yaml").write_text(AGENT.format(implementation=name, settings=case.settings) + case.config)
        rows = [
            {"id": str(n), "responses_create_params": {"input": "what?"}, "expected_answer": "36"}
            for n in range(case.rollouts)
        ]
        (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))

    async def _collect(self, folder: Path, overrides: list[str]) -> None:
        case = self.case
        async with AsyncExitStack() as servers:
            if case.server is None:
                model = IN_PROCESS.format(answers=case.answers, latency_s=case.latency_s, jitter_s=case.jitter_s)
            else:
                first = await servers.enter_async_context(ScriptedServer(case.server()))
                second = await servers.enter_async_context(ScriptedServer(case.server()))
                model = BEHIND_HTTP.format(url=first.url, settings=case.model_settings)
                overrides = [each.replace(_old_url(each), first.url) for each in overrides]
                overrides = [each.replace("<the second server>/v1", second.url) for each in overrides]
            (folder / "model.yaml").write_text(model)
            argv = [
                "+config_paths=[agent.yaml,model.yaml]",
                "+input_jsonl_fpath=tasks.jsonl",
                "+output_jsonl_fpath=rollouts.jsonl",
                f"+num_samples_in_parallel={case.parallel}",
                *overrides,
            ]
            config = load(argv, known=[setting.name for setting in SETTINGS])
            outcome = await collect(make_options(config), config, lambda line: None)
        if outcome.kept != case.rollouts:
            raise SystemExit(f"{case.name}: not the work that was to be measured: {outcome.summary()}")


def _old_url(override: str) -> str:
    """The address in an override is the one of the run it is about; its server has gone since."""
    _, _, value = override.partition("=[")
    return value.split(",")[0] if value.startswith("http") else "<no address>"


def measure(case: Case, folder: Path, rounds: int) -> Json:
    """Before and after, in turn. Each prediction is held against the run that followed it; told is the median pair."""
    bench = Bench(case, folder)
    pairs: list[Json] = []
    for _ in range(rounds):
        verdict = bench.run(None)["verdict"]
        advice = verdict["advice"][0] if verdict["advice"] else {"change": "", "override": ""}
        pair: Json = {
            "case": case.name,
            "expected": case.bound,
            "bound": verdict["bound"],
            "change": advice["change"],
            "override": advice["override"],
            "paragraph": verdict["paragraph"],
            "before": verdict["rollouts_per_s"],
            "predicted": advice.get("predicted_rollouts_per_s"),
            "real": None,
            "error": None,
        }
        if verdict["bound"] != case.bound or pair["predicted"] is None:
            return {**pair, "errors": [], "kept": False}
        pair["real"] = bench.run(advice["override"])["verdict"]["rollouts_per_s"]
        pair["error"] = pair["predicted"] / pair["real"] - 1
        pairs.append(pair)
    pairs.sort(key=lambda each: each["error"])
    found = pairs[len(pairs) // 2]
    return {**found, "errors": [each["error"] for each in pairs], "kept": abs(found["error"]) <= MOST_ERROR}


def shown(results: Sequence[Json]) -> str:
    """The table."""
    head = ("case", "bound by", "advice", "before", "predicted", "real", "error", "of all", "")
    rows = []
    for each in results:
        numbers = [f"{each['before']:.1f}"]
        numbers += ["-" if each[name] is None else f"{each[name]:.1f}" for name in ("predicted", "real")]
        error = "-" if each["error"] is None else f"{each['error']:+.0%}"
        bound = each["bound"] if each["bound"] == each["expected"] else f"{each['bound']}, not {each['expected']}"
        override = re.sub(r"http://127\.0\.0\.1:\d+/v1", "http://127.0.0.1:8000/v1", each["override"])
        advice = f"`{override}`" if override else each["change"]
        all_of_them = " ".join(f"{one:+.0%}" for one in each["errors"])
        rows.append((each["case"], bound, advice, *numbers, error, all_of_them, "ok" if each["kept"] else "MISSED"))
    return table(head, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases, print the table, and with --check fail if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each case once")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound or a prediction is wrong")
    parser.add_argument(
        "--others", type=int, metavar="SEED", help="the same bounds with other numbers, drawn by chance"
    )
    parser.add_argument("--only", help="cases whose name has this in it")
    parser.add_argument("--keep", type=Path, help="leave the files of every run in this folder")
    given = parser.parse_args(argv)
    home = Path.cwd()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES if given.others is None else other_cases(given.others)):
            if given.only and given.only not in case.name:
                continue
            place = Path(given.keep or folder).resolve() / str(number)
            results.append(measure(case, place, 1 if given.quick else 3))
            os.chdir(home)
            print(f"{case.name}: {results[-1]['paragraph']}", file=sys.stderr, flush=True)
    print(shown(results))
    if given.json:
        (home / given.json).write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return int(given.check and not all(each["kept"] for each in results))


if __name__ == "__main__":
    sys.exit(main())
