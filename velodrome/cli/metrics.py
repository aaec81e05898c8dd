"""`velo metrics`: the numbers a collection printed, from the file; with a flag, by group and with intervals."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.api.measuring import run_metrics
from velodrome.api.reading import checked_files
from velodrome.cli.run_tables import run_table
from velodrome.cli.streams import say, still_working
from velodrome.cli.tables import next_step, print_lines, print_result, print_text
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.settings.values import FilePath
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import read_groups
from velodrome.stats.metrics_text import metrics_csv, metrics_report
from velodrome.timing.invisible import escaped, printed_json

_MOST_NOTES = 20


class MetricsFlags(MetricsSettings):
    """The flags of `velo metrics`."""

    files: tuple[FilePath, ...] = argument(title="FILE", description="rollouts files (.jsonl or .jsonl.zst)")
    table: bool = Field(False, description="print a table")
    as_json: bool = Field(False, alias="json", description="print JSON")
    csv: bool = Field(False, description="print CSV, one line per number")


VERB = Verb(
    usage="velo metrics FILE [FILE …] [flags]",
    about="The numbers of rollouts: of the run, and by agent, task or any field.",
    settings={"flags": MetricsFlags},
    more="""\
Without a flag: a short table, or on a pipe JSON, as the collection printed it. With any flag: a long table, or
--json or --csv. Several files count as one run; a key that is in two of them counts once.
docs/metrics.md defines every number.

examples:
  velo metrics rollouts.jsonl                        what the collection printed
  velo metrics rollouts.jsonl.zst | jq .reward
  velo metrics rollouts.jsonl --table                mean, std, min, median, max and intervals of every number
  velo metrics rollouts.jsonl --by difficulty        the same for each difficulty; --by agent, --by task
  velo metrics shard-*.jsonl --by agent --csv > agents.csv
  velo metrics rollouts.jsonl --k 1,8 --json | jq '.run.rates["pass@8"]'""",
)


def run(argv: Sequence[str]) -> int:
    flags = read_flags(MetricsFlags, argv, "velo metrics")
    if flags.table + flags.as_json + flags.csv > 1:
        raise InputError("--table, --json and --csv: give one of them")
    files = checked_files(flags.files)
    if flags.model_fields_set - {"files"}:
        _print_groups(files, flags)
    else:
        metrics, notes = run_metrics(files)
        _print_notes(notes)
        print_result(metrics, lambda: f"{run_table(metrics, files)}\n\n{next_step(*_next(files))}")
    return 0


def _print_groups(files: Sequence[Path], flags: MetricsFlags) -> None:
    with still_working(f"reading {', '.join(str(path) for path in files)}"):
        result = read_groups(files, flags)
    if flags.as_json:
        print_lines(printed_json(result))
    elif flags.csv:
        _print_notes(result["notes"])
        print_lines(metrics_csv(result).removesuffix("\n"))
    else:
        print_text(metrics_report(result, fields=flags.fields or ()))


def _next(files: Sequence[Path]) -> list[str]:
    names = shlex.join(map(str, files))
    return [f"velo metrics {names} --table", f"velo view {names}"]


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes[:_MOST_NOTES]:
        say(escaped(note))
