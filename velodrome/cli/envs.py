"""`velo envs`: the environments there are, and what one of them is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.streams import still_working
from velodrome.cli.tables import ink, print_lines, print_text
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.examiner.catalogue import CatalogueEntry, catalogue
from velodrome.settings.model import Settings
from velodrome.timing.invisible import escaped, printed_json


class EnvsFlags(Settings):
    """The flags of `velo envs`."""

    name: str | None = argument(None, title="NAME", description="describe this one: a name, a folder, or file.py:Class")
    as_json: bool = Field(False, alias="json", description="print JSON")


VERB = Verb(
    usage="velo envs [NAME] [flags]",
    about="""\
List the environments in this folder, of installed packages (entry points velodrome.environments) and built in; or
describe one: its tools, the fields of its tasks, its settings, an example.""",
    settings={"flags": EnvsFlags},
    more="""\
An environment of your own is a folder resources_servers/<name>/ with an app.py and a config: velo init makes one
(docs/environments.md).

examples:
  velo envs
  velo envs calculator
  velo envs --json | jq '.[].name'""",
)


def run(argv: Sequence[str]) -> int:
    """Print a table: name, what it is, its configs, its example tasks; or a description."""
    flags = read_flags(EnvsFlags, argv, "velo envs")
    entries = catalogue(Path.cwd())
    if flags.name:
        return _describe(flags, next((entry for entry in entries if entry.name == flags.name), None))
    if flags.as_json:
        print_lines(printed_json([entry.as_json() for entry in entries]))
    else:
        print_text("\n".join(line for entry in entries for line in _lines(entry)))
    return 0


def _lines(entry: CatalogueEntry) -> Iterator[str]:
    yield f"{ink(escaped(entry.name), 'bold')} ({escaped(entry.origin)})"
    yield f"  {escaped(entry.about)}"
    yield from (f"  {escaped(path)}" for path in entry.files)


def _describe(flags: EnvsFlags, entry: CatalogueEntry | None) -> int:
    from velodrome.examiner.description import describe_subject, description_lines
    from velodrome.examiner.subject import named_subject

    with still_working(f"looking at {escaped(flags.name or '')}"):
        described = asyncio.run(describe_subject(named_subject(flags.name or "")))
    if flags.as_json:
        print_lines(printed_json({**(entry.as_json() if entry else {}), **described}))
        return 0
    head = list(_lines(entry)) if entry else [flags.name or ""]
    print_text("\n".join([*head, *map(escaped, description_lines(described))]))
    return 0
