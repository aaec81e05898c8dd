"""`velo import`: rollouts and tasks from files that others wrote."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from velodrome.cli.parsing import Parser, jsonl_file
from velodrome.exchange.imports.importing import FORMATS, ImportOrder, import_file
from velodrome.timing.invisible import printed_json
from velodrome.viewer.transcript import one_line

_ABOUT = "\n".join(f"  {name:<12} {about}" for name, about in FORMATS.items())
EXAMPLES = f"""formats:
{_ABOUT}

examples:
  velo import nemo_gym their_rollouts.jsonl --to rollouts.jsonl
  velo import nemo_gym their_tasks.jsonl --to tasks.jsonl --as tasks
  velo import openai_chat log.jsonl --to rollouts.jsonl --agent my_agent
  velo import openai_chat log.jsonl --to tasks.jsonl --as tasks --skip-bad

docs/export.md#import says which shapes are read."""


def run(argv: Sequence[str]) -> int:
    """Import; what came of it is JSON on stdout, notes go to stderr."""
    parser = Parser(
        prog="velo import",
        description="Turn somebody else's file into rollouts or tasks. A file with mistakes becomes nothing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("format", help=", ".join(FORMATS))
    parser.add_argument("file", type=Path, help="a .jsonl or .jsonl.zst file")
    parser.add_argument("--to", required=True, type=jsonl_file, help="the file to write (.jsonl or .jsonl.zst)")
    parser.add_argument("--as", dest="kind", choices=("rollouts", "tasks"), default="rollouts", help="[rollouts]")
    parser.add_argument("--agent", help="the agent to name [the one the file names]")
    parser.add_argument("--skip-bad", action="store_true", help="leave out lines with mistakes")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    given = parser.parse_args(argv)
    outcome = import_file(
        ImportOrder(given.format, given.file, given.to, given.kind, given.agent, given.skip_bad, given.overwrite)
    )
    for note in outcome.notes:
        print(f"{one_line(note)}; left out", file=sys.stderr)
    for note in outcome.renamed:
        print(one_line(note), file=sys.stderr)
    if given.kind == "rollouts" and outcome.repeated > len(outcome.renamed):
        print(f"{outcome.repeated - len(outcome.renamed):,} more have a key that was there before", file=sys.stderr)
    told = {
        "lines": outcome.lines,
        given.kind: outcome.written,
        "repeated": outcome.repeated,
        "bad": outcome.bad,
        "to": str(given.to),
    }
    print(printed_json(told))
    return 0
