"""`velo metrics`: the numbers a collection printed, from the file; with a flag, by group and with intervals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velodrome.cli.measuring import add_flags, settings_of
from velodrome.cli.parsing import Parser
from velodrome.errors import InputError
from velodrome.stats.metrics import Tally, read_metrics
from velodrome.stats.shards import read_shards, rollouts_files
from velodrome.timing.invisible import escaped, printed_json

Json = dict[str, Any]

_MOST_NOTES = 20
EXAMPLES = """examples:
  velo metrics rollouts.jsonl                        what the collection printed
  velo metrics rollouts.jsonl.zst | jq .reward
  velo metrics rollouts.jsonl --table                mean, std, min, median, max and intervals of every number
  velo metrics rollouts.jsonl --by difficulty        the same for each difficulty; --by agent, --by task
  velo metrics shard-*.jsonl --by agent --csv > agents.csv
  velo metrics rollouts.jsonl --k 1,8 --json | jq '.run.rates["pass@8"]'

Without a flag: JSON, as it was printed. With any flag: a table, or --json or --csv. Several files count as one run;
a key that is in two of them counts once.

docs/metrics.md says what each number is."""


def run(argv: Sequence[str]) -> int:
    """Read the files, print their metrics."""
    given = _parser().parse_args(argv)
    files = rollouts_files(given.files)
    asked = (given.by, given.k, given.pass_at, given.ci, given.fields, given.form)
    if any(value is not None for value in asked):
        _print_groups(files, given)
    else:
        _print_metrics(files)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="velo metrics",
        description="The numbers of rollouts: of the run, and by agent, task or any field.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="rollouts files (.jsonl or .jsonl.zst)")
    add_flags(parser)
    forms = parser.add_mutually_exclusive_group()
    for form, text in (("table", "a table"), ("json", "JSON"), ("csv", "CSV, a line a number")):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=text)
    return parser


def _print_metrics(files: Sequence[Path]) -> None:
    """The metrics on stdout, notes about what was not counted on stderr."""
    if len(files) == 1:
        metrics, notes = read_metrics(files[0])
    else:
        tally = Tally()
        taken = read_shards(files, tally.add)
        metrics, notes = tally.metrics(failed=len(taken.failed)), [*taken.notes, *tally.notes()]
    if notes and not metrics["rollouts/kept"] and not metrics["rollouts/failed"]:
        raise InputError(f"{files[0]}: no rollouts in it", *(escaped(note) for note in notes[:1]))
    for note in notes[:_MOST_NOTES]:
        print(escaped(note), file=sys.stderr)
    print(printed_json(metrics))


def _print_groups(files: Sequence[Path], given: argparse.Namespace) -> None:
    from velodrome.cli.page import reassured
    from velodrome.stats.groups import read_groups
    from velodrome.stats.metrics_text import metrics_csv, metrics_report
    from velodrome.timing.report import speaks_unicode

    with reassured(f"reading {', '.join(str(path) for path in files)}"):
        found = read_groups(files, settings_of(given))
    if given.form == "json":
        print(printed_json(found))
    elif given.form == "csv":
        for note in found["notes"][:_MOST_NOTES]:
            print(escaped(note), file=sys.stderr)
        print(metrics_csv(found), end="")
    else:
        print(metrics_report(found, fields=given.fields or (), ascii_only=not speaks_unicode(sys.stdout)))
