"""`velo import`: rollouts and tasks from files that others wrote."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from velodrome.cli.streams import say
from velodrome.cli.tables import print_counts
from velodrome.cli.verb import JsonFlag, Verb, argument, read_flags
from velodrome.exchange.imports.importing import FOREIGN_FORMATS, ImportOptions, import_file
from velodrome.settings.values import FilePath, Text
from velodrome.timing.invisible import one_line

_FORMATS = "\n".join(f"  {name:<12} {reader.about}" for name, reader in FOREIGN_FORMATS.items())


class ImportFlags(ImportOptions, JsonFlag):
    """The flags of `velo import`."""

    format: Text = argument(title="FORMAT", description=", ".join(FOREIGN_FORMATS))
    file: FilePath = argument(title="FILE", description="a .jsonl or .jsonl.zst file")


VERB = Verb(
    usage="velo import FORMAT FILE --to PATH [flags]",
    about="Turn somebody else's file into rollouts or tasks. If any line has a mistake, nothing is written.",
    settings={"flags": ImportFlags},
    more=f"""formats:
{_FORMATS}

docs/export.md#import describes the shapes that are read.

examples:
  velo import nemo_gym their_rollouts.jsonl --to rollouts.jsonl
  velo import nemo_gym their_tasks.jsonl --to tasks.jsonl --as tasks
  velo import openai_chat log.jsonl --to rollouts.jsonl --agent my_agent
  velo import openai_chat log.jsonl --to tasks.jsonl --as tasks --skip-bad""",
)


def run(argv: Sequence[str]) -> int:
    """Import; the counts are JSON on stdout, notes go to stderr."""
    flags = read_flags(ImportFlags, argv, "velo import")
    result = import_file(flags.format, flags.file, flags)
    for note in result.notes:
        say(f"{one_line(note)}; left out")
    for note in result.renamed:
        say(one_line(note))
    if flags.kind == "rollouts" and result.repeated > len(result.renamed):
        say(f"{result.repeated - len(result.renamed):,} more have a key that was there before")
    counts = {
        "lines": result.lines,
        flags.kind: result.written,
        "repeated": result.repeated,
        "bad": result.bad,
        "to": str(flags.to),
    }
    print_counts(
        counts, f"velo view {shlex.quote(str(flags.to))}" if flags.kind == "rollouts" else "", as_json=flags.as_json
    )
    return 0
