"""`velo judgements`: the judgements of rollouts made in the viewer, and how far people agree."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import Field

from velodrome.cli.tables import pairs, print_result
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.index.judgements import Agreement, Judgement, agreements
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath
from velodrome.timing.invisible import escaped
from velodrome.viewer.api import judgements


class JudgementsFlags(Settings):
    """The flags of `velo judgements`."""

    file: FilePath = argument(title="ROLLOUTS", description="a rollouts file (.jsonl or .jsonl.zst)")
    where: str = Field("", title="FILTER", description='which rollouts, as in "reward<1 by:anna"')
    csv: bool = Field(False, description="print a table with commas")
    as_json: bool = Field(False, alias="json", description="print everything as JSON")


VERB = Verb(
    usage="velo judgements ROLLOUTS [--where FILTER] [--csv | --json]",
    about="Print what people said of rollouts: tags, notes and ratings, and how far they agree.",
    settings={"flags": JudgementsFlags},
    more="""They are in <rollouts>.notes.jsonl beside the file (docs/rollouts.md#judgements); velo view adds to them.

examples:
  velo judgements rollouts.jsonl
  velo judgements rollouts.jsonl --where "tag:good rating>3" --csv > good.csv
  velo export sft rollouts.jsonl --to sft.jsonl --where "tag:good\"""",
)


def run(argv: Sequence[str]) -> int:
    """Print the judgements."""
    flags = read_flags(JudgementsFlags, argv, "velo judgements")
    result = judgements(flags.file, flags.where)
    if flags.csv:
        _print_csv(result)
        return 0
    agreement = agreements(result)
    value = {"judgements": list(map(asdict, result)), "agreement": list(map(asdict, agreement))}
    print_result(value, lambda: _text(result, agreement), as_json=flags.as_json)
    return 0


def _print_csv(rows: Sequence[Judgement]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(("key", "by", "at", "rating", "tags", "note"))
    for each in rows:
        writer.writerow((each.key, each.by, each.at, each.rating, " ".join(each.tags), each.note))


def _text(rows: Sequence[Judgement], agreement: Sequence[Agreement]) -> str:
    if not rows:
        return "no judgements yet; make some in velo view"
    lines = []
    for each in rows:
        rating = "" if each.rating is None else "★" * each.rating + "☆" * (5 - each.rating)
        parts = (each.by, rating, *(f"#{tag}" for tag in each.tags), " ".join(each.note.split()))
        lines.append((each.key, "  ".join(escaped(part) for part in parts if part)))
    text = pairs(lines)
    for each_ in agreement:
        people = " and ".join(map(escaped, each_.people))
        text += (
            f"\n\n{people} both rated {each_.both}: {each_.same} alike, {each_.mean_difference:.2g} apart on average"
        )
    return text
