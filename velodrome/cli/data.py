"""`velo data`: prepare tasks from a data set, and look at a file of tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.exchange.data.preparing import PrepareOptions, prepare
from velodrome.exchange.data.validate import survey
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath, Text
from velodrome.timing.invisible import printed_json
from velodrome.viewer.transcript import one_line

Json = dict[str, Any]


class PrepareFlags(PrepareOptions):
    """The flags of `velo data prepare`."""

    source: Text = argument(
        title="SOURCE", description="a .csv, .tsv, .jsonl, .jsonl.zst or .parquet file, a folder, or hf:name[:split]"
    )


class ValidateFlags(Settings):
    """The flags of `velo data validate`."""

    file: FilePath = argument(title="FILE", description="a file of tasks (.jsonl or .jsonl.zst)")
    as_json: bool = Field(False, alias="json", description="print the statistics as JSON")


VERB = Verb(
    usage="velo data prepare SOURCE --to TASKS --prompt TEXT [flags]\nvelo data validate FILE [--json]",
    about="Prepare tasks from a data set, or print statistics of a file of tasks and every line that is not a task.",
    settings={"flags of prepare": PrepareFlags, "flags of validate": ValidateFlags},
    more="""docs/data.md describes templates and checks.

examples:
  velo data prepare questions.csv --to tasks.jsonl --prompt "{question}" --answer answer
  velo data prepare math.parquet --to tasks.jsonl --prompt "Solve: {problem}" --answer solution --keep level,subject
  velo data prepare verl.parquet --to tasks.jsonl --prompt "{prompt}" --answer reward_model.ground_truth
  velo data prepare hf:openai/gsm8k:test --to tasks.jsonl --prompt "{question}" --limit 100 --shuffle --seed 7
  velo data validate tasks.jsonl
  velo data validate tasks.jsonl --json | jq .prompt_characters""",
)


def run(argv: Sequence[str]) -> int:
    what, *rest = argv or [""]
    if what == "prepare":
        return _prepare(read_flags(PrepareFlags, rest, "velo data prepare"))
    if what == "validate":
        flags = read_flags(ValidateFlags, rest, "velo data validate")
        return _validate(flags.file, as_json=flags.as_json)
    raise InputError(f"velo data prepare or validate, not {what!r:.40} (see velo data --help)")


def _prepare(flags: PrepareFlags) -> int:
    result = prepare(flags.source, flags)
    for note in result.notes:
        print(f"{one_line(note)}; left out", file=sys.stderr)
    print(printed_json({"rows": result.rows, "tasks": result.written, "bad": result.bad, "to": str(flags.to)}))
    return 0


def _validate(path: Path, *, as_json: bool) -> int:
    result = survey(path)
    summary = result.summary()
    print(printed_json(summary) if as_json else table(summary))
    result.problems.refuse()
    if not result.rows:
        raise InputError(f"{path}: no tasks in it")
    return 0


def table(summary: Json) -> str:
    lines = [
        ("tasks", str(summary["tasks"])),
        ("bad lines", str(summary["bad"])),
        ("duplicates", str(summary["duplicates"])),
        ("without expected_answer", str(summary["missing_answers"])),
        ("prompt characters", _lengths(summary["prompt_characters"])),
        ("tools", _counts(summary["tools"])),
        ("agents", _counts(summary["agents"])),
        *((f"field {one_line(name)}", _counts(kinds)) for name, kinds in summary["fields"].items()),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _lengths(lengths: Json) -> str:
    return ", ".join(f"{name} {length}" for name, length in lengths.items() if length is not None) or "none"


def _counts(names: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name)} {count}" for name, count in names.items()) or "none"
