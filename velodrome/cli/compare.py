"""`velo compare`: two runs side by side, and whether one is better."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from velodrome.cli.measuring import add_flags, settings_of
from velodrome.cli.parsing import Parser
from velodrome.errors import InputError
from velodrome.stats.shards import rollouts_files
from velodrome.timing.invisible import printed_json

EXAMPLES = """examples:
  velo compare before.jsonl after.jsonl
  velo compare before.jsonl after.jsonl --flips            every task that flipped
  velo compare before.jsonl after.jsonl --by difficulty
  velo compare --a shard-0.jsonl shard-1.jsonl --b after.jsonl --json | jq .verdict

Tasks that both runs have are compared with themselves; each counts alike. The interval is of the difference B - A,
from how much that differs between tasks. docs/metrics.md#comparing-runs says how to read it."""


def run(argv: Sequence[str]) -> int:
    """Read both runs, print what differs."""
    given = _parser().parse_args(argv)
    a, b = _sides(given)
    from velodrome.cli.page import reassured
    from velodrome.stats.compare import compare
    from velodrome.stats.metrics_text import compare_report
    from velodrome.timing.report import speaks_unicode

    with reassured(f"reading {', '.join(str(path) for path in (*a, *b))}"):
        found = compare(a, b, settings_of(given))
    if given.json:
        print(printed_json(found))
    else:
        print(compare_report(found, all_flips=given.flips, ascii_only=not speaks_unicode(sys.stdout)))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="velo compare",
        usage="velo compare A B [flags]\n       velo compare --a FILE [FILE …] --b FILE [FILE …] [flags]",
        description="Two runs side by side: what differs, which tasks flipped, and whether that could be chance.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="a rollouts file of run A, and one of run B"
    )
    for side in ("a", "b"):
        text = f"the files of run {side.upper()}, where it has several"
        parser.add_argument(f"--{side}", nargs="+", type=Path, metavar="FILE", help=text)
    add_flags(parser)
    parser.add_argument("--flips", action="store_true", help="list every task that flipped")
    parser.add_argument("--json", action="store_true", help="everything as JSON, and nothing else")
    return parser


def _sides(given: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    if given.a and given.b and not given.files:
        a, b = given.a, given.b
    elif len(given.files) == 2 and not given.a and not given.b:
        a, b = given.files[:1], given.files[1:]
    else:
        raise InputError("give two files, or --a and --b with the files of each run (see velo compare --help)")
    problems: list[str] = []
    for side in (a, b):
        try:
            rollouts_files(side)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return a, b
