"""`velo export`: rollouts as the files that trainers read."""

from __future__ import annotations

from collections.abc import Sequence

from velodrome.cli.streams import say
from velodrome.cli.tables import print_counts
from velodrome.cli.verb import JsonFlag, Verb, argument, read_flags
from velodrome.exchange.api import export
from velodrome.exchange.export.format import ExportOptions
from velodrome.exchange.export.formats import FORMATS
from velodrome.settings.values import FilePath, Text
from velodrome.timing.invisible import one_line

_MOST_NOTES = 40
_COUNTS = ("rollouts", "chosen", "unfit", "unfit_reasons", "duplicates", "changed")
_FORMATS = "\n".join(
    f"  {name:<9} {fmt.about}{'; only rollouts that pass' if fmt.where else ''}" for name, fmt in FORMATS.items()
)


class ExportFlags(ExportOptions, JsonFlag):
    """The flags of `velo export`."""

    format: Text = argument(title="FORMAT", description=", ".join(FORMATS))
    rollouts: tuple[FilePath, ...] = argument(title="ROLLOUTS", description="rollouts files (.jsonl or .jsonl.zst)")


VERB = Verb(
    usage="velo export FORMAT ROLLOUTS [ROLLOUTS …] --to PATH [flags]",
    about="Write rollouts as training data, with a data card beside it.",
    settings={"flags": ExportFlags},
    more=f"""formats:
{_FORMATS}

docs/export.md describes the files and how pairs are made.

examples:
  velo export sft rollouts.jsonl --to sft.jsonl
  velo export sft rollouts.jsonl --to data --split train=0.9,test=0.1 --shuffle --dedupe
  velo export sft rollouts.jsonl --to sft.parquet
  velo export dpo rollouts.jsonl --to dpo.jsonl --pairs 2 --margin 0.5
  velo export grpo rollouts.jsonl --to grpo.jsonl --where "0 < pass_rate < 1"
  velo export verl rollouts.jsonl --to verl --where "0 < pass_rate < 1" --data-source my_math
  velo export parquet run1.jsonl run2.jsonl.zst --to table.parquet --where ""
  velo export nemo_gym rollouts.jsonl --to nemo_gym.jsonl""",
)


def run(argv: Sequence[str]) -> int:
    """Export; the counts are JSON on stdout, notes go to stderr."""
    flags = read_flags(ExportFlags, argv, "velo export")
    options = flags.model_dump(include=flags.model_fields_set - {"format", "rollouts", "as_json"})
    result = export(flags.format, flags.rollouts, **options)
    for note in result.notes[:_MOST_NOTES]:
        say(one_line(note))
    counts = {name: getattr(result, name) for name in _COUNTS}
    written = {"format": flags.format, **counts, "records": result.records, "card": str(result.files[-1])}
    print_counts(written, as_json=flags.as_json)
    return 0
