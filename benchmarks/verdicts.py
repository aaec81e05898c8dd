"""Is the verdict right, and does its advice give what it predicts? `python -m benchmarks.verdicts [--quick] [--check]`

Each case is a real collection that is bound by one thing. Its verdict is taken; where it predicts a number, the first
advice is applied as it is written and the same collection run again: the predicted throughput stands beside the real
one. Each pair is run several times; the one with the median error is told, and the errors of all. `--others SEED` draws
other numbers for the same cases, which nothing was tuned on. `--record FOLDER` keeps what the verdict reads of each
run, for the tests (tests/profiling/verdicts).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import orjson

from benchmarks.servers import Servers
from benchmarks.summary import table
from benchmarks.verdict_cases import AGENT, APP, BEHIND_HTTP, CASES, IN_PROCESS, LOCAL, Case, other_cases
from velodrome.cli.collect import CollectOptions, collect, run_async, use_limits, with_files
from velodrome.cli.options import load_options
from velodrome.profiling.profile import read_profile
from velodrome.serving.discovery import find
from velodrome.serving.scripted import ScriptedServer
from velodrome.settings import Config

Json = dict[str, Any]

MOST_ERROR = 0.3
_CONFIGS = "+config_paths=[agent.yaml,model.yaml]"


class SlowFile(io.RawIOBase):
    """A file of which each read takes a while and gives one line."""

    def __init__(self, path: Path, read_s: float) -> None:
        self._data = path.read_bytes()
        self._at = 0
        self._read_s = read_s

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + (0, self._at, len(self._data))[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        time.sleep(self._read_s)
        line = self._data[self._at : self._data.find(b"\n", self._at) + 1][: len(buffer)]
        self._at += len(line)
        memoryview(buffer)[: len(line)] = line
        return len(line)


@contextlib.contextmanager
def slow_disk(read_s: float, write_s: float) -> Iterator[None]:
    """A disk that takes so long for each line of the input and of the output."""
    opened, written = Path.open, os.write

    def slow_open(path: Path, *args: Any, **options: Any) -> Any:
        if read_s and path.name == "tasks.jsonl":
            with contextlib.ExitStack() as back:
                back.callback(setattr, Path, "open", slow_open)
                setattr(Path, "open", opened)  # noqa: B010
                return io.BufferedReader(SlowFile(path, read_s))
        return opened(path, *args, **options)

    def slow_write(descriptor: int, data: Any) -> int:
        if write_s and descriptor > 2 and os.readlink(f"/proc/self/fd/{descriptor}").endswith("rollouts.jsonl"):
            time.sleep(write_s)
        return written(descriptor, data)

    setattr(Path, "open", slow_open)  # noqa: B010
    setattr(os, "write", slow_write)  # noqa: B010
    try:
        yield
    finally:
        setattr(Path, "open", opened)  # noqa: B010
        setattr(os, "write", written)  # noqa: B010


class Bench:
    """One case in a folder of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self._folder = folder
        self._runs = 0

    def run(self, override: str | None) -> Path:
        """Collect once. `override` None is the run as it is; one that no command line takes is a change by hand."""
        self._runs += 1
        folder = self._folder / f"run{self._runs}"
        folder.mkdir(parents=True)
        by_hand = override is not None and (not override or "<a faster disk>" in override)
        self._write(folder, by_hand=by_hand)
        os.chdir(folder)
        more = [override] if override and not by_hand else []
        case = self.case
        with slow_disk(*((0.0, 0.0) if by_hand else (case.read_s, case.write_s))):
            self._collect(folder, more)
        return folder / "rollouts.jsonl"

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
        params = {"input": "what?", **({"max_output_tokens": 16} if case.local else {})}
        rows = [
            {"id": str(n), "responses_create_params": params, "expected_answer": "36"} for n in range(case.rollouts)
        ]
        (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))

    def _collect(self, folder: Path, overrides: list[str]) -> None:
        if not self.case.served:
            run_async(self._embedded(folder, overrides))
            return
        (folder / "model.yaml").write_text(self._in_process())
        with Servers(folder, _CONFIGS, *self.case.overrides, *overrides) as servers:
            config, options = self._config(f"+head_server.port={servers.head_port}", *self.case.overrides)
            config, result = find(config, embedded=options.embedded)
            use_limits(options)
            run_async(self._checked(config, options, result))

    def _in_process(self) -> str:
        case = self.case
        if case.local:
            return LOCAL
        return IN_PROCESS.format(answers=case.answers, latency_s=case.latency_s, jitter_s=case.jitter_s)

    async def _embedded(self, folder: Path, overrides: list[str]) -> None:
        case = self.case
        async with AsyncExitStack() as servers:
            model = self._in_process()
            if case.server is not None:
                first = await servers.enter_async_context(ScriptedServer(case.server()))
                second = await servers.enter_async_context(ScriptedServer(case.server()))
                model = BEHIND_HTTP.format(url=first.url, settings=case.model_settings)
                overrides = [each.replace(_old_url(each), first.url) for each in overrides]
                overrides = [each.replace("<the second server>/v1", second.url) for each in overrides]
            (folder / "model.yaml").write_text(model)
            config, options = self._config(_CONFIGS, *case.overrides, *overrides, "+embedded=true")
            use_limits(options)
            await self._checked(config, options, None)

    def _config(self, *settings: str) -> tuple[Config, CollectOptions]:
        argv = [
            "+input_jsonl_fpath=tasks.jsonl",
            "+output_jsonl_fpath=rollouts.jsonl",
            f"+num_samples_in_parallel={self.case.parallel}",
            *settings,
        ]
        return load_options(CollectOptions, argv)

    async def _checked(self, config: Config, options: CollectOptions, servers: Any) -> None:
        outcome = await collect(with_files(options)[0], config, servers)
        if outcome.failed or outcome.kept < self.case.rollouts:
            raise SystemExit(f"{self.case.name}: not the work that was to be measured: {outcome.summary()}")


def _old_url(override: str) -> str:
    """The address in an override is the one of the run it is about; its server has gone since."""
    _, _, value = override.partition("=[")
    return value.split(",")[0] if value.startswith("http") else "<no address>"


def measure(case: Case, folder: Path, rounds: int, record: Path | None) -> Json:
    """Before and after, in turn. Each prediction is held against the run that followed it; told is the median pair."""
    bench = Bench(case, folder)
    pairs: list[Json] = []
    for _ in range(max(rounds, 1)):
        rollouts = bench.run(None)
        verdict = read_profile(rollouts)["verdict"]
        if record is not None:
            keep(case, rollouts, record)
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
        right = verdict["bound"] == case.bound
        if not right or pair["predicted"] is None or not rounds:
            return {**pair, "errors": [], "kept": right}
        pair["real"] = read_profile(bench.run(advice["override"]))["verdict"]["rollouts_per_s"]
        pair["error"] = pair["predicted"] / pair["real"] - 1
        pairs.append(pair)
    pairs.sort(key=lambda each: cast("float", each["error"]))
    result = pairs[len(pairs) // 2]
    return {**result, "errors": [each["error"] for each in pairs], "kept": abs(result["error"]) <= MOST_ERROR}


def keep(case: Case, rollouts: Path, folder: Path) -> None:
    """What the verdict reads of a run, as one file: the configuration first, then what each row says of its time."""
    config = orjson.loads(rollouts.with_suffix(".run.json").read_bytes())["config"]
    rows = [orjson.loads(line)["meta"] for line in rollouts.read_bytes().splitlines()]
    names = ("key", "agent", "finished_at", "timing")
    lines: list[Json] = [{"case": case.name, "bound": case.bound, "config": config}]
    lines += [{name: row[name] for name in names} for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    (folder / f"{re.sub('[^a-zA-Z0-9]+', '_', case.name)}.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))


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
    parser.add_argument("--causes", action="store_true", help="only whether the bound is named; no advice is applied")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound or a prediction is wrong")
    parser.add_argument("--others", type=int, metavar="SEED", help="the same bounds with numbers drawn by chance")
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name has one of these in it")
    parser.add_argument("--keep", type=Path, help="leave the files of every run in this folder")
    parser.add_argument("--record", type=Path, help="write what the verdict reads of each case to this folder")
    args = parser.parse_args(argv)
    home = Path.cwd()
    record = args.record.resolve() if args.record else None
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES if args.others is None else other_cases(args.others)):
            if not any(name in case.name for name in args.only):
                continue
            place = Path(args.keep or folder).resolve() / str(number)
            rounds = 0 if args.causes else 1 if args.quick else 3
            results.append(measure(case, place, rounds, record))
            os.chdir(home)
            print(f"{case.name}: {results[-1]['paragraph']}", file=sys.stderr, flush=True)
    print(shown(results))
    if args.json:
        (home / args.json).write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return int(args.check and not all(each["kept"] for each in results))


if __name__ == "__main__":
    sys.exit(main())
