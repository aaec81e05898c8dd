"""`velo compare`: two runs side by side, and whether one is better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.api.reading import checked_files
from velodrome.cli.streams import still_working
from velodrome.cli.tables import ink, print_lines, print_text
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.settings.values import FilePath
from velodrome.stats.compare import compare
from velodrome.stats.group import MetricsSettings
from velodrome.stats.metrics_text import compare_report
from velodrome.timing.invisible import printed_json


class CompareFlags(MetricsSettings):
    """The flags of `velo compare`."""

    files: tuple[FilePath, ...] = argument((), title="FILE", description="a rollouts file of run A, and one of run B")
    a: tuple[FilePath, ...] = Field((), title="FILE", description="the files of run A, if it has several")
    b: tuple[FilePath, ...] = Field((), title="FILE", description="the files of run B, if it has several")
    flips: bool = Field(False, description="list every task that flipped")
    as_json: bool = Field(False, alias="json", description="print everything as JSON")


VERB = Verb(
    usage="velo compare A B [flags]\nvelo compare --a FILE [FILE …] --b FILE [FILE …] [flags]",
    about="Two runs side by side: what differs, which tasks flipped, and whether that could be chance.",
    settings={"flags": CompareFlags},
    more="""\
Tasks that both runs have are compared with themselves, and each has the same weight. The interval is that of the
difference B - A. docs/metrics.md#comparing-runs explains how to read it.

examples:
  velo compare before.jsonl after.jsonl
  velo compare before.jsonl after.jsonl --flips            every task that flipped
  velo compare before.jsonl after.jsonl --by difficulty
  velo compare --a shard-0.jsonl shard-1.jsonl --b after.jsonl --json | jq .verdict""",
)


def run(argv: Sequence[str]) -> int:
    flags = read_flags(CompareFlags, argv, "velo compare")
    a, b = _sides(flags)
    with still_working(f"reading {', '.join(str(path) for path in (*a, *b))}"):
        result = compare(a, b, flags)
    if flags.as_json:
        print_lines(printed_json(result))
    else:
        print_text(_marked(compare_report(result, all_flips=flags.flips), result["verdict"]))
    return 0


def _marked(text: str, verdict: str) -> str:
    """The report with its verdict in a colour: better or worse is also said in words."""
    style = "green" if verdict.startswith("B is better") else "red" if verdict.startswith("B is worse") else "bold"
    return text.removesuffix(verdict) + ink(verdict, style)


def _sides(flags: CompareFlags) -> tuple[list[Path], list[Path]]:
    if flags.a and flags.b and not flags.files:
        a, b = list(flags.a), list(flags.b)
    elif len(flags.files) == 2 and not flags.a and not flags.b:
        a, b = [flags.files[0]], [flags.files[1]]
    else:
        raise InputError("give two files, or --a and --b with the files of each run (see velo compare --help)")
    problems: list[str] = []
    for side in (a, b):
        try:
            checked_files(side)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return a, b
