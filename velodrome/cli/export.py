"""`velo export`: rollouts as the files that trainers read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from velodrome.cli.parsing import Parser, count, number, place
from velodrome.errors import InputError
from velodrome.exchange.export.format import ExportSettings, Format
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.export.pipeline import ExportOrder, export
from velodrome.exchange.export.splits import parse_shares
from velodrome.settings.model import setting_names
from velodrome.timing.invisible import printed_json
from velodrome.viewer.transcript import one_line

_ABOUT = "\n".join(
    f"  {name:<9} {fmt.about}{'; only rollouts that pass' if fmt.where else ''}" for name, fmt in FORMATS.items()
)
EXAMPLES = f"""formats:
{_ABOUT}

examples:
  velo export sft rollouts.jsonl --to sft.jsonl
  velo export sft rollouts.jsonl --to data --split train=0.9,test=0.1 --shuffle --dedupe
  velo export dpo rollouts.jsonl --to dpo.jsonl --pairs 2 --margin 0.5
  velo export grpo rollouts.jsonl --to grpo.jsonl --where "0 < pass_rate < 1"
  velo export verl rollouts.jsonl --to verl --where "0 < pass_rate < 1" --data-source my_math
  velo export parquet run1.jsonl run2.jsonl.zst --to table.parquet --where ""
  velo export nemo_gym rollouts.jsonl --to nemo_gym.jsonl

docs/export.md says what stands in each file and how pairs are made."""


def run(argv: Sequence[str]) -> int:
    """Export; what came of it is JSON on stdout, notes go to stderr."""
    given = _parser().parse_args(argv)
    fmt = _format(given.format)
    order = ExportOrder(
        format=fmt,
        sources=given.rollouts,
        to=given.to,
        where=given.where,
        shares=parse_shares(given.split) if given.split is not None else (),
        seed=given.seed,
        shuffle=given.shuffle,
        dedupe=given.dedupe,
        limit=given.limit,
        overwrite=given.overwrite,
        settings=_settings(fmt, given),
    )
    outcome = export(order)
    for note in outcome.notes[:40]:
        print(one_line(note), file=sys.stderr)
    print(
        printed_json(
            {
                "format": fmt.name,
                "rollouts": outcome.rollouts,
                "chosen": outcome.chosen,
                "unfit": outcome.unfit,
                "duplicates": outcome.duplicates,
                "changed": outcome.changed,
                "records": outcome.records,
                "card": str(outcome.files[-1]),
            }
        )
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="velo export",
        description="Write rollouts as training data, with a data card beside it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("format", help=", ".join(FORMATS))
    parser.add_argument("rollouts", nargs="+", type=Path, help="rollouts files (.jsonl or .jsonl.zst)")
    parser.add_argument("--to", required=True, type=place, help="a file, or a folder (a name without an ending)")
    parser.add_argument("--where", help='which rollouts, as in velo view [sft, sharegpt: "reward>=1"; else all]')
    parser.add_argument("--split", help="train=0.9,test=0.1: shares of the tasks; a task is in one split only")
    parser.add_argument("--seed", type=int, default=0, help="of the shuffle and the split [0]")
    parser.add_argument("--shuffle", action="store_true", help="in an order that the seed decides")
    parser.add_argument("--dedupe", action="store_true", help="leave out records that are equal to an earlier one")
    parser.add_argument("--limit", type=count, help="at most so many records in all")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    of_format = parser.add_argument_group("settings of some formats")
    of_format.add_argument("--arguments", choices=("text", "object"), help="of tool calls: JSON text or objects [text]")
    of_format.add_argument(
        "--reasoning", choices=("keep", "drop", "inline"), help="a field, left out, or <think> in the text [keep]"
    )
    of_format.add_argument("--pairs", type=count, help="dpo: at most so many pairs of a task [1]")
    of_format.add_argument("--margin", type=number, help="dpo: rewards of a pair differ at least by this [any]")
    of_format.add_argument("--uses", type=count, help="dpo: an answer is in at most so many pairs [1]")
    of_format.add_argument("--answer", help="verl, grpo: the field with the task's answer [expected_answer]")
    of_format.add_argument("--data-source", help="verl: its data_source [the task's, else the agent]")
    of_format.add_argument("--ability", help="verl: its ability [the task's, else agent]")
    return parser


def _format(name: str) -> Format:
    if name not in FORMATS:
        near = get_close_matches(name, FORMATS, 1)
        raise InputError(f"no format {name!r:.40}; {f'did you mean {near[0]!r}?' if near else ', '.join(FORMATS)}")
    return FORMATS[name]


def _settings(fmt: Format, given: argparse.Namespace) -> ExportSettings:
    told = {name: value for name in setting_names(ExportSettings) if (value := getattr(given, name)) is not None}
    foreign = [f"--{name.replace('_', '-')}" for name in told if name not in fmt.settings]
    if foreign:
        raise InputError(f"{fmt.name} has no setting {', '.join(sorted(foreign))} (see velo export --help)")
    return ExportSettings.read(told)
