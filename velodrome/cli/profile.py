"""`velo profile`: where the time of a file's rollouts went, in the terminal and as a page; with --load-test it makes
the rollouts first. Training runs and traces are told apart by what is given.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velodrome.cli.page import page_path, patient_profile, write_page
from velodrome.cli.parsing import Parser
from velodrome.cli.profile_training import of_training, show_merged, show_training
from velodrome.errors import InputError
from velodrome.records.other_files import other_file
from velodrome.timing.invisible import printed_json

Json = dict[str, Any]

_ROLLOUTS = (".jsonl", ".jsonl.zst")
EXAMPLES = """examples:
  velo profile rollouts.jsonl                   the tree, percentiles, the slowest rollouts, the verdict
  velo profile rollouts.jsonl --html            the same with pictures: rollouts.profile.html
  velo profile monday.jsonl tuesday.jsonl --json | jq .verdict
  velo profile --load-test "+config_paths=[my.yaml,model.yaml]" +agent_name=my_agent \\
      +input_jsonl_fpath=tasks.jsonl +limit=1024
  velo profile train_dir/first_1a2b3c4d         a training run: speed, time, losses, returns, the last evaluation
  velo profile train_dir/first_1a2b3c4d/profiler_trace_0.json
                                                PyTorch's trace: steps and parts, operators by their own CPU time
  velo profile --merge all.json train_dir/first_1a2b3c4d/profiler_trace_0.json trace.json.gz
                                                training and a collection in one trace, on one clock

A load test starts the servers of the config with profiling, waits until they are ready, collects from them, stops
them, and prints each environment's table of calls and the verdict. It takes the settings of velo run and velo
collect. Everything goes to results/profiling/<time>, or to +profiling_results_dirpath.

exit code: 0, 2 a mistake in the input or config; of a load test, those of velo collect

docs/profiling.md says how to read it."""


def run(argv: Sequence[str]) -> int:
    """Read, or make and read, then print."""
    given = _parser().parse_args(argv)
    words: list[str] = given.words
    page: str | None = given.html
    if page is not None and (page.endswith(_ROLLOUTS) or page.startswith("+")):  # what is read, not what is written
        words, page = [page, *words], ""
    if given.load_test:
        from velodrome.cli.load_test import load_test

        return load_test(words, as_json=given.json, page=page, top=given.top)
    if given.merge is not None or of_training(words):
        if page is not None:
            raise InputError("--html: pages are of rollouts; training runs and traces are printed, or --json")
        if given.merge is not None:
            show_merged(Path(given.merge), words, as_json=given.json)
        else:
            show_training(words, as_json=given.json, top=given.top)
        return 0
    files = rollouts_files(words)
    target = None if page is None else page_path(page, files[0])
    profile = patient_profile(files)
    if not profile["rollouts"] and not profile["failed"]:
        what = f"none of {profile['rows']:,} rollouts has times" if profile["rows"] else "no rollouts in it"
        raise InputError(*profile["notes"][:1], f"{files[0]}: {what}; velo profile reads what velo collect wrote")
    if target is not None:
        write_page(profile, target, ", ".join(path.name for path in files))
    show(profile, as_json=given.json, top=given.top)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="velo profile",
        usage="velo profile ROLLOUTS [ROLLOUTS …] [--json] [--html [PAGE]] [--top N]\n"
        "       velo profile RUN_FOLDER | TRACE [--json] [--top N]\n"
        "       velo profile --merge OUT TRACE TRACE [TRACE …] [--json]\n"
        "       velo profile --load-test +config_paths=[a.yaml,b.yaml] +input_jsonl_fpath=TASKS [+key=value …]",
        description="Where the time of rollouts went, what bounded throughput, and what to change.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", metavar="ROLLOUTS", help="rollouts files; a training run; a trace")
    parser.add_argument("--json", action="store_true", help="the whole profile as JSON, and nothing else")
    parser.add_argument("--html", nargs="?", const="", metavar="PAGE", help="write a page [<rollouts>.profile.html]")
    parser.add_argument("--top", type=_count, default=10, metavar="N", help="the longest a list gets [10]")
    parser.add_argument("--merge", metavar="OUT", help="make several traces one (.json or .json.gz)")
    parser.add_argument("--load-test", action="store_true", help="start servers, make rollouts, stop, then profile")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, not {text!r:.40}")
    return int(text)


def rollouts_files(words: Sequence[str]) -> list[Path]:
    """The files to read, or every mistake in them."""
    if not words:
        raise InputError("no rollouts: give a file, as in velo profile rollouts.jsonl (see velo profile --help)")
    problems = []
    for word in words:
        if word.startswith("+"):
            problems.append(f"{word}: settings go with --load-test; a profile of a file takes none")
        elif not os.path.isfile(word):  # not Path's, which raises if the name is too long
            problems.append(f"{word}: {'not a regular file' if os.path.exists(word) else 'no such file'}")
        elif word.endswith((".failures.jsonl", ".failures.jsonl.zst")):
            problems.append(f"{word}: give the rollouts file; the failures beside it are counted with it")
        elif (problem := other_file(Path(word))) is not None:
            problems.append(problem)
    if problems:
        raise InputError(*problems)
    return [Path(word) for word in words]


def show(profile: Json, *, as_json: bool, top: int) -> None:
    """The profile on stdout."""
    if as_json:
        print(printed_json(profile))
        return
    from velodrome.profiling.profile_text import profile_report
    from velodrome.timing.report import speaks_unicode

    print(profile_report(profile, top=top, ascii_only=not speaks_unicode(sys.stdout)))
