"""`velo test`: whether an environment keeps the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.plain import config_names, read_plain
from velodrome.cli.streams import still_working
from velodrome.cli.tables import ink, print_lines, print_text
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.examiner.examination import MAX_TASKS, RULES, check_rule_names, examine_subject
from velodrome.examiner.subject import named_subject
from velodrome.settings.model import Settings
from velodrome.settings.overrides import Word
from velodrome.settings.values import Count, FilePath, Names, Text
from velodrome.timing.invisible import escaped, printed_json

BROKEN = 3  # the exit code for a broken rule, as for findings of velo check


class ExamFlags(Settings):
    """The flags of `velo test`."""

    name: str | None = argument(None, title="NAME", description="an environment: its name, folder, or file.py:Class")
    configs: tuple[Text, ...] = argument((), title="CONFIG", description="configs that it needs: names or .yaml files")
    tasks: FilePath | None = Field(None, description="tasks to use, in place of data/example.jsonl")
    most_tasks: Count = Field(MAX_TASKS, description="how many tasks are answered; the data are checked as a whole")
    only: Names | None = Field(None, title="A,B", description="these rules and no others")
    strict: bool = Field(False, description="fail also if a rule could not be checked")
    as_json: bool = Field(False, alias="json", description="print the report as JSON")
    listed: bool = Field(False, alias="list", description="list every rule")


VERB = Verb(
    usage="velo test NAME [CONFIG …] [flags] [+key=value …]\nvelo test --list",
    about="""\
Judge an environment: its reference answers, wrong answers, cheats and tools, many rollouts at once, served and
embedded. With configs, or +config_paths=[…], NAME is an instance of them.""",
    settings={"flags": ExamFlags},
    more="""exit code: 0 passed, 2 a mistake in the input, 3 a rule is broken

docs/environments.md#rules says of each rule what it plays and what it expects.

examples:
  velo test calculator
  velo test resources_servers/weather --strict
  velo test weather.py:Weather --tasks tasks.jsonl
  velo test my_math my_math.yaml judge.yaml --only references,cheats
  velo test calculator --json | jq .passed""",
)


def run(argv: Sequence[str]) -> int:
    overrides = [word for word in argv if word.startswith(("+", "~"))]
    flags = read_flags(ExamFlags, [word for word in argv if word not in overrides], "velo test")
    if flags.listed:
        width = max(map(len, RULES))
        print_text("\n".join(f"{name:<{width}}  {rule.about}" for name, rule in RULES.items()))
        return 0
    if not flags.name:
        raise InputError("no environment: give one, as in velo test calculator (see velo envs)")
    check_rule_names(flags.only or ())
    with still_working(f"examining {escaped(flags.name)}") as tell:
        subject = named_subject(flags.name, _words(flags, overrides), flags.tasks)
        work = examine_subject(subject, only=flags.only, max_tasks=flags.most_tasks, strict=flags.strict, on_step=tell)
        report = asyncio.run(work)
    if flags.as_json:
        print_lines(printed_json(report.as_json()))
    else:
        print_text("\n".join(map(_marked, map(escaped, report.lines()))))
    return 0 if report.passed else BROKEN


def _marked(line: str) -> str:
    """A line of the report with what became of its rule in a colour."""
    for word, style in (("passed", "green"), ("broken", "red"), ("not checked", "yellow")):
        if line.startswith(f"  {word}"):
            return line.replace(word, ink(word, style), 1)
    return line


def _words(flags: ExamFlags, overrides: Sequence[str]) -> list[Word]:
    """The settings of the config that NAME is in: with configs, the environment's own is one of them."""
    own = [flags.name] if flags.configs and flags.name in config_names(Path.cwd()) else []
    return read_plain([*overrides, *own, *flags.configs]).words
