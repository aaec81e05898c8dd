"""`velo profile`: where the time of a file's rollouts went, in the terminal and as a page; with --load-test it makes
the rollouts first. Training runs and traces are told apart by what is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from velodrome.cli.page import page_path, patient_profile, write_page
from velodrome.cli.profile_training import of_training, show_merged, show_training
from velodrome.cli.tables import print_lines, print_text
from velodrome.cli.verb import Verb, argument, optional_value, read_flags
from velodrome.errors import InputError
from velodrome.records.other_files import other_file
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, FilePath
from velodrome.timing.invisible import printed_json

Json = dict[str, Any]

_ROLLOUTS = (".jsonl", ".jsonl.zst")


class ProfileFlags(Settings):
    """The flags of `velo profile`."""

    words: tuple[Any, ...] = argument((), title="ROLLOUTS", description="rollouts files; a training run; a trace")
    as_json: bool = Field(False, alias="json", description="print the whole profile as JSON")
    html: Any = optional_value(title="PAGE", description="write a page [<rollouts>.profile.html]")
    top: Count = Field(10, description="the most lines of a list")
    merge: FilePath | None = Field(None, title="OUT", description="merge several traces into one (.json or .json.gz)")
    load_test: bool = Field(False, description="start servers, collect from them, stop them, then profile")


VERB = Verb(
    usage="velo profile ROLLOUTS [ROLLOUTS …] [--json] [--html [PAGE]] [--top N]\n"
    "velo profile RUN_FOLDER | TRACE [--json] [--top N]\n"
    "velo profile --merge OUT TRACE TRACE [TRACE …] [--json]\n"
    "velo profile --load-test +config_paths=[a.yaml,b.yaml] +input_jsonl_fpath=TASKS [+key=value …]",
    about="Where the time of rollouts went, what bounded throughput, and what to change.",
    settings={"flags": ProfileFlags},
    more="""\
A load test starts the servers of the config with profiling, waits until they are ready, collects from them, stops
them, and prints each environment's table of calls and the verdict. It takes the settings of velo run and velo
collect. Everything goes to results/profiling/<time>, or to +profiling_results_dirpath.

exit code: 0, 2 a mistake in the input or config; of a load test, those of velo collect

docs/profiling.md explains how to read it.

examples:
  velo profile rollouts.jsonl                   the tree, percentiles, the slowest rollouts, the verdict
  velo profile rollouts.jsonl --html            the same with pictures: rollouts.profile.html
  velo profile monday.jsonl tuesday.jsonl --json | jq .verdict
  velo profile --load-test "+config_paths=[my.yaml,model.yaml]" +agent_name=my_agent \\
      +input_jsonl_fpath=tasks.jsonl +limit=1024
  velo profile train_dir/first_1a2b3c4d         a training run: speed, time, losses, returns, the last evaluation
  velo profile train_dir/first_1a2b3c4d/profiler_trace_0.json
                                                PyTorch's trace: steps and parts, operators by their own CPU time
  velo profile --merge all.json train_dir/first_1a2b3c4d/profiler_trace_0.json trace.json.gz
                                                training and a collection in one trace, on one clock""",
)


def run(argv: Sequence[str]) -> int:
    """Read, or make and read, then print."""
    flags = read_flags(ProfileFlags, argv, "velo profile")
    words, page = list(flags.words), flags.html
    if page is not None and (page.endswith(_ROLLOUTS) or page.startswith("+")):  # what is read, not what is written
        words, page = [page, *words], ""
    if flags.load_test:
        from velodrome.cli.load_test import load_test

        return load_test(words, as_json=flags.as_json, page=page, top=flags.top)
    if flags.merge is not None or of_training(words):
        if page is not None:
            raise InputError("--html: pages are of rollouts; training runs and traces are printed, or --json")
        if flags.merge is not None:
            show_merged(flags.merge, words, as_json=flags.as_json)
        else:
            show_training(words, as_json=flags.as_json, top=flags.top)
        return 0
    files = rollouts_files(words)
    target = None if page is None else page_path(page, files[0])
    profile = patient_profile(files)
    if not profile["rollouts"] and not profile["failed"]:
        what = f"none of {profile['rows']:,} rollouts has times" if profile["rows"] else "no rollouts in it"
        raise InputError(*profile["notes"][:1], f"{files[0]}: {what}; velo profile reads what velo collect wrote")
    if target is not None:
        write_page(profile, target, ", ".join(path.name for path in files))
    show(profile, as_json=flags.as_json, top=flags.top)
    return 0


def rollouts_files(words: Sequence[str]) -> list[Path]:
    """The files to read, or every mistake in them."""
    if not words:
        raise InputError("no rollouts: give a file, as in velo profile rollouts.jsonl (see velo profile --help)")
    problems = []
    for word in words:
        if word.startswith("+"):
            problems.append(f"{word}: settings go with --load-test; a profile of a file takes none")
        elif (problem := file_problem(word)) is not None:
            problems.append(problem)
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
        print_lines(printed_json(profile))
        return
    from velodrome.profiling.profile_text import profile_report

    print_text(profile_report(profile, top=top))
