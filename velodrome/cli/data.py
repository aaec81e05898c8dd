"""`velo data`: prepare tasks from a data set, and look at a file of tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velodrome.cli.parsing import Parser, count, jsonl_file
from velodrome.errors import InputError
from velodrome.exchange.data.preparing import PrepareOrder, prepare
from velodrome.exchange.data.validate import survey
from velodrome.timing.invisible import printed_json
from velodrome.viewer.transcript import one_line

Json = dict[str, Any]

EXAMPLES = """examples:
  velo data prepare questions.csv --to tasks.jsonl --prompt "{question}" --answer answer
  velo data prepare math.parquet --to tasks.jsonl --prompt "Solve: {problem}" --answer solution --keep level,subject
  velo data prepare verl.parquet --to tasks.jsonl --prompt "{prompt}" --answer reward_model.ground_truth
  velo data prepare hf:openai/gsm8k:test --to tasks.jsonl --prompt "{question}" --limit 100 --shuffle --seed 7
  velo data validate tasks.jsonl
  velo data validate tasks.jsonl --json | jq .prompt_characters

docs/data.md says what a template can hold and what is checked."""


def run(argv: Sequence[str]) -> int:
    """Prepare, or validate."""
    parser = Parser(
        prog="velo data",
        description="Prepare tasks from a data set, and look at a file of tasks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="prepare|validate", required=True)
    _add_prepare(verbs)
    checking = verbs.add_parser("validate", help="statistics of a file of tasks, and every line that is no task")
    checking.add_argument("file", type=Path, help="a file of tasks (.jsonl or .jsonl.zst)")
    checking.add_argument("--json", action="store_true", help="the statistics as JSON")
    given = parser.parse_args(argv)
    return _prepare(given) if given.verb == "prepare" else _validate(given.file, as_json=given.json)


def _add_prepare(verbs: Any) -> None:
    parser = verbs.add_parser(
        "prepare",
        help="a data set -> a file of tasks",
        description="Fill a prompt with each row of a data set and write the tasks. Mistakes are told all at once.",
    )
    parser.add_argument(
        "source", help="a .csv, .tsv, .jsonl, .jsonl.zst or .parquet file, a folder, or hf:name[:split]"
    )
    parser.add_argument(
        "--to", required=True, type=jsonl_file, help="the file of tasks to write (.jsonl or .jsonl.zst)"
    )
    parser.add_argument(
        "--prompt",
        required=True,
        help='the user\'s message; fields as {name}, braces as "{{" and "}}"; a field of messages, alone: those',
    )
    parser.add_argument("--system", help="the system message; it can have fields too")
    parser.add_argument("--answer", help="the column that becomes expected_answer")
    parser.add_argument("--tools", help="the column with the tools on offer: a list, or one as JSON text")
    parser.add_argument("--keep", default="", help="more columns to keep: col,col")
    parser.add_argument("--id", help="the column that names the tasks [a hash of their content]")
    parser.add_argument("--agent", help="the agent that runs them (agent_ref)")
    parser.add_argument("--limit", type=count, help="at most so many tasks, after shuffling")
    parser.add_argument("--shuffle", action="store_true", help="in an order that the seed decides")
    parser.add_argument("--seed", type=int, default=0, help="of the shuffle [0]")
    parser.add_argument("--skip-bad", action="store_true", help="leave out rows with mistakes")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def _prepare(given: argparse.Namespace) -> int:
    texts = ("source", "to", "prompt", "system", "answer", "tools", "id", "agent")
    names = (*texts, "limit", "shuffle", "seed", "skip_bad", "overwrite")
    keep = tuple(name.strip() for name in given.keep.split(",") if name.strip())
    outcome = prepare(PrepareOrder(keep=keep, **{name: getattr(given, name) for name in names}))
    for note in outcome.notes:
        print(f"{one_line(note)}; left out", file=sys.stderr)
    told = {"rows": outcome.rows, "tasks": outcome.written, "bad": outcome.bad, "to": str(given.to)}
    print(printed_json(told))
    return 0


def _validate(path: Path, *, as_json: bool) -> int:
    found = survey(path)
    summary = found.summary()
    print(printed_json(summary) if as_json else table(summary))
    found.problems.refuse()
    if not found.rows:
        raise InputError(f"{path}: no tasks in it")
    return 0


def table(summary: Json) -> str:
    """The statistics as a person reads them."""
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


def _lengths(found: Json) -> str:
    return ", ".join(f"{name} {length}" for name, length in found.items() if length is not None) or "none"


def _counts(names: dict[str, int]) -> str:
    return ", ".join(f"{one_line(name)} {count}" for name, count in names.items()) or "none"
