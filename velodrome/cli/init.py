"""`velo init`: a new environment's folder, which works at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from velodrome.cli.tables import next_step, print_text
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.examiner.scaffold import scaffold
from velodrome.settings.model import Settings


class InitFlags(Settings):
    """The arguments of `velo init`."""

    name: str | None = argument(None, title="NAME", description="the environment's name: small letters, digits and _")


VERB = Verb(
    usage="velo init NAME",
    about="""\
Make resources_servers/NAME/ in this folder: a small environment with a tool, its config, example tasks, README and a
test. It passes velo test as it is; change it step by step. Nothing is overwritten.""",
    settings={"arguments": InitFlags},
    more="""examples:
  velo init my_shop
  velo test my_shop""",
)


def run(argv: Sequence[str]) -> int:
    flags = read_flags(InitFlags, argv, "velo init")
    if not flags.name:
        raise InputError("no name: give one, as in velo init my_shop")
    for path in scaffold(flags.name, Path.cwd()):
        print(path.relative_to(Path.cwd()))
    collect = f"velo collect {flags.name} local_model -o rollouts.jsonl"
    print_text(f"\n{next_step(f'velo test {flags.name}', collect, 'velo view rollouts.jsonl')}")
    return 0
