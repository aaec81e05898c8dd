"""`velo merge`: the outputs of several runs as one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from velodrome.api.collecting import merge
from velodrome.cli.streams import say
from velodrome.cli.tables import print_counts
from velodrome.cli.verb import JsonFlag, Verb, argument, read_flags
from velodrome.collector.merging import MergeOptions
from velodrome.settings.values import FilePath
from velodrome.timing.invisible import one_line


class MergeFlags(MergeOptions, JsonFlag):
    """The flags of `velo merge`."""

    out: FilePath = argument(title="OUT", description="the new file; nothing is overwritten")
    files: tuple[FilePath, ...] = argument(title="IN", description="rollouts files (.jsonl or .jsonl.zst)")


VERB = Verb(
    usage="velo merge OUT IN [IN …] [--allow-mixed]",
    about="""\
Write the rollouts of several files, each key once, with their failures and runs, as one file that velo collect can
continue. Of several rollouts with the same key the first is taken. A line that is not whole is left out and reported,
and a file of which nothing is a rollout is an error.""",
    settings={"flags": MergeFlags},
    more="""exit code: 0 merged, 2 nothing was written

examples:
  velo merge rollouts.jsonl shard-*.rollouts.jsonl
  velo merge all.jsonl.zst monday.jsonl tuesday.jsonl --allow-mixed""",
)


def run(argv: Sequence[str]) -> int:
    """Merge; the counts are JSON on stdout, notes go to stderr."""
    flags = read_flags(MergeFlags, argv, "velo merge")
    result = merge(flags.out, flags.files, allow_mixed=flags.allow_mixed)
    for note in result.notes:
        say(one_line(note))
    written = {name: value for name, value in asdict(result).items() if name != "notes"} | {"to": str(flags.out)}
    print_counts(written, f"velo view {shlex.quote(str(flags.out))}", as_json=flags.as_json)
    return 0
