"""`velo profile`: where the time of a file's rollouts went, in the terminal and as a page.

A folder, `metrics.jsonl` or a `.json` trace is a training run; anything else is a file of rollouts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from velodrome.cli.streams import say, still_working
from velodrome.cli.tables import print_lines, print_text
from velodrome.cli.verb import Verb, argument, optional_value, read_flags
from velodrome.errors import InputError
from velodrome.profiling.profile import read_profile
from velodrome.records.other_files import other_file
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, FilePath
from velodrome.timing.invisible import printed_json
from velodrome.wings import wing

Json = dict[str, Any]

_ROLLOUTS = (".jsonl", ".jsonl.zst")


class ProfileFlags(Settings):
    """The flags of `velo profile`."""

    words: tuple[Any, ...] = argument((), title="ROLLOUTS", description="rollouts files; a training run; a trace")
    as_json: bool = Field(False, alias="json", description="print the whole profile as JSON")
    html: Any = optional_value(title="PAGE", description="write a page [<rollouts>.profile.html]")
    trace: FilePath | None = Field(None, title="TRACE", description="write a trace for Perfetto (.json, .json.gz)")
    top: Count = Field(10, description="the most lines of a list")


VERB = Verb(
    usage="velo profile ROLLOUTS [ROLLOUTS …] [--json] [--html [PAGE]] [--trace TRACE] [--top N]\n"
    "velo profile RUN_FOLDER | TRACE [--json] [--top N]",
    about="Where the time of rollouts went, what bounded throughput, and what to change.",
    settings={"flags": ProfileFlags},
    more="""\
exit code: 0, 2 a mistake in the input

docs/profiling.md explains how to read it.

examples:
  velo profile rollouts.jsonl                   the tree, percentiles, the slowest rollouts, the verdict
  velo profile rollouts.jsonl --html            the same with pictures: rollouts.profile.html
  velo profile rollouts.jsonl --trace trace.json.gz    drawn for Perfetto, also while it runs or after a kill
  velo profile monday.jsonl tuesday.jsonl --json | jq .verdict
  velo profile train_dir/first_1a2b3c4d         a training run: speed, time, the last evaluation
  velo profile train_dir/first_1a2b3c4d/profiler_trace_0.json
                                                PyTorch's trace: steps and parts, operators by their own CPU time""",
)


def run(argv: Sequence[str]) -> int:
    """Read, then print."""
    flags = read_flags(ProfileFlags, argv, "velo profile")
    words, page = list(flags.words), flags.html
    if page is not None and (page.endswith(_ROLLOUTS) or page.startswith("+")):  # what is read, not what is written
        words, page = [page, *words], ""
    if of_training(words):
        if page is not None:
            raise InputError("--html: pages are of rollouts; training runs and traces are printed, or --json")
        wing("training.verbs.profile").show_training(words, as_json=flags.as_json, top=flags.top)
        return 0
    files = rollouts_files(words)
    pages = None if page is None else wing("viewer.verbs.profile_html")
    target = None if pages is None else pages.page_path(page, files[0])
    with still_working(f"reading {', '.join(map(str, files))}"):
        profile = read_profile(*files)
    if not profile["rollouts"] and not profile["failed"] and (target is not None or not profile["rows"]):
        what = f"none of {profile['rows']:,} rollouts has times" if profile["rows"] else "no rollouts in it"
        raise InputError(*profile["notes"][:1], f"{files[0]}: {what}; velo profile reads what velo collect wrote")
    if flags.trace is not None:
        draw(files, flags.trace)
    if pages is not None:
        pages.write_page(profile, target, ", ".join(path.name for path in files))
    show(profile, as_json=flags.as_json, top=flags.top)
    return 0


def of_training(words: Sequence[str]) -> bool:
    """Whether something of training is given: a folder, a run's metrics, or a trace."""
    return any(
        os.path.isdir(word) or Path(word).name == "metrics.jsonl" or word.endswith((".json", ".json.gz"))
        for word in words
    )


def draw(files: Sequence[Path], target: Path) -> None:
    """The rollouts of one file as a trace."""
    from velodrome.profiling.chrome_trace import check_target, write_trace

    if len(files) > 1:
        raise InputError("--trace draws one file of rollouts; Perfetto opens several traces")
    check_target(target, files[0])
    for note in write_trace(files[0], target):
        say(note)
    say(f"trace: {target}")


def rollouts_files(words: Sequence[str]) -> list[Path]:
    """The files to read, or every mistake in them."""
    if not words:
        raise InputError("no rollouts: give a file, as in velo profile rollouts.jsonl (see velo profile --help)")
    problems = []
    for word in words:
        if word.startswith("+"):
            problems.append(f"{word}: a profile of a file takes no settings")
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
