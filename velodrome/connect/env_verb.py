"""`velo env add`: make an environment from one of another project."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from velodrome.cli.streams import say
from velodrome.cli.verb import Verb, argument, no_verb, read_flags
from velodrome.connect.adding import add_environment
from velodrome.errors import InputError
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, FilePath, Text


class AddFlags(Settings):
    """The flags of `velo env add`."""

    source: Text = argument(
        title="SOURCE",
        description="verifiers:PACKAGE, openenv:URL, gymnasium:ID, nemo_gym:FOLDER (or URL), or mcp:COMMAND (or URL)",
    )
    name: Text | None = Field(None, title="NAME", description="its name here; from the source by default")
    tasks: Count = Field(20, description="how many example tasks are written, where they can be had")
    arguments: Text | None = Field(None, title="JSON", description="what it is loaded with, as a JSON object")
    python: FilePath | None = Field(
        None, title="PATH", description="an interpreter that has the package already; no virtual environment is made"
    )
    overwrite: bool = Field(False, description="write its folder again if it is there")


VERB = Verb(
    usage="velo env add SOURCE [flags]",
    about="Make an environment from one of another project: a folder with a config and example tasks.",
    settings={"flags of add": AddFlags},
    more="""A package gets a virtual environment of its own in .velodrome/venvs. docs/theirs.md says what works.

examples:
  velo env add verifiers:my-environment --arguments '{"difficulty": 2}'
  velo env add openenv:http://127.0.0.1:8000
  velo env add gymnasium:FrozenLake-v1
  velo env add nemo_gym:http://127.0.0.1:12000
  velo env add nemo_gym:../Gym/resources_servers/mcqa
  velo env add "mcp:npx -y @modelcontextprotocol/server-memory" --name memory""",
)


def run(argv: Sequence[str]) -> int:
    """Add an environment, and print the written files."""
    verb, *rest = argv or [""]
    if verb != "add":
        raise no_verb("velo env", ("add",), verb)
    flags = read_flags(AddFlags, rest, "velo env add")
    addition = add_environment(
        flags.source,
        name=flags.name,
        tasks=flags.tasks,
        arguments=_arguments(flags.arguments),
        python=flags.python,
        overwrite=flags.overwrite,
        say=say,
    )
    paths = [path.relative_to(Path.cwd()) for path in asyncio.run(addition)]
    for path in paths:
        print(path)
    name = paths[0].parts[1]
    tasks = "" if any(path.name == "example.jsonl" for path in paths) else " tasks.jsonl"
    say(f"next: velo test {name}\n      velo collect {name} local_model{tasks} -o rollouts.jsonl")
    return 0


def _arguments(text: str | None) -> dict[str, Any]:
    try:
        data = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise InputError(f"--arguments is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError("--arguments must be a JSON object")
    return data
