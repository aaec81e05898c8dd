"""`velo data`: prepare tasks from a data set, and look at a file of tasks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.options import read_options
from velodrome.cli.plain import read_plain
from velodrome.cli.streams import PATIENCE_S, say
from velodrome.cli.tables import print_counts, without_json
from velodrome.cli.verb import JsonFlag, Verb, argument, no_verb, read_flags
from velodrome.collector.watch.progress import counting
from velodrome.errors import InputError
from velodrome.exchange.data.collating import collate
from velodrome.exchange.data.generating import (
    GenerateOptions,
    checked_options,
    generate_tasks,
    generator_of,
)
from velodrome.exchange.data.preparing import PrepareOptions, prepare
from velodrome.exchange.data.validate import survey
from velodrome.settings import load
from velodrome.settings.model import setting_names
from velodrome.settings.values import FilePath, Names, Text
from velodrome.timing.invisible import one_line


class PrepareFlags(PrepareOptions, JsonFlag):
    """The flags of `velo data prepare`."""

    source: Text = argument(
        title="SOURCE", description="a .csv, .tsv, .jsonl, .jsonl.zst or .parquet file, a folder, or hf:name[:split]"
    )


class ValidateFlags(JsonFlag):
    """The flags of `velo data validate`."""

    file: FilePath = argument(title="FILE", description="a file of tasks (.jsonl or .jsonl.zst)")


class CollateFlags(JsonFlag):
    """The flags of `velo data collate`."""

    configs: tuple[Text, ...] = argument((), title="CONFIG", description="configs: names, or .yaml files")
    to: FilePath = Field(title="FOLDER", description="the folder for TYPE.jsonl, one file per type")
    types: Names = Field((), title="TYPES", description="the types of data sets: type,type [train,validation]")
    overwrite: bool = Field(False, description="replace existing files")


VERB = Verb(
    usage="velo data prepare SOURCE --to TASKS --prompt TEXT [flags]\nvelo data validate FILE [--json]\n"
    "velo data generate ENVIRONMENT +n=N +output=TASKS [+seed=N] [+split=[train:0.9,validation:0.1]] [+OPTION=…]\n"
    "velo data collate CONFIG … --to FOLDER [--types TYPES]",
    about="""\
Prepare tasks from a data set; generate those of a procedural environment by seed; print statistics of a file of tasks
and every line that is not a task; or put the data sets that the agents of a config list into one file per type, each
task with its agent.""",
    settings={
        "flags of prepare": PrepareFlags,
        "flags of validate": ValidateFlags,
        "flags of collate": CollateFlags,
        "settings of generate": GenerateOptions,
    },
    plus_parts=("GenerateOptions",),
    more="""docs/data.md describes templates and checks.

examples:
  velo data prepare questions.csv --to tasks.jsonl --prompt "{question}" --answer answer
  velo data prepare math.parquet --to tasks.jsonl --prompt "Solve: {problem}" --answer solution --keep level,subject
  velo data prepare verl.parquet --to tasks.jsonl --prompt "{prompt}" --answer reward_model.ground_truth
  velo data prepare hf:openai/gsm8k:test --to tasks.jsonl --prompt "{question}" --limit 100 --shuffle --seed 7
  velo data validate tasks.jsonl
  velo data validate tasks.jsonl | jq .prompt_characters
  velo data generate calculator +n=1000000 +seed=7 +output=sums.jsonl +numbers=5
  velo data generate reasoning_gym +n=10000 +output=puzzles.jsonl "+split=[train:0.9,validation:0.1]"
  velo data collate calculator --to data/all --types example""",
)


def run(argv: Sequence[str]) -> int:
    what, *rest = argv or [""]
    if what == "prepare":
        return _prepare(read_flags(PrepareFlags, rest, "velo data prepare"))
    if what == "validate":
        return _validate(read_flags(ValidateFlags, rest, "velo data validate"))
    if what == "collate":
        return _collate(rest)
    if what == "generate":
        return _generate(rest)
    raise no_verb("velo data", ("prepare", "generate", "validate", "collate"), what)


def _prepare(flags: PrepareFlags) -> int:
    result = prepare(flags.source, flags)
    for note in result.notes:
        say(f"{one_line(note)}; left out")
    written = {"rows": result.rows, "tasks": result.written, "bad": result.bad, "to": str(flags.to)}
    print_counts(written, f"velo data validate {flags.to}", as_json=flags.as_json)
    return 0


def _collate(words: Sequence[str]) -> int:
    flags = read_flags(CollateFlags, [word for word in words if word[:1] not in "+~"], "velo data collate")
    typed = [word for word in words if word[:1] in "+~"]
    config = load(read_plain([*typed, *flags.configs]).words, scoring=True)
    result = collate(config, flags.to, flags.types or ("train", "validation"), overwrite=flags.overwrite)
    for note in result.notes:
        say(one_line(note))
    print_counts(result.tasks, as_json=flags.as_json)
    return 0


def _generate(typed: Sequence[str]) -> int:
    argv, as_json = without_json(typed)
    names = [word for word in argv if not word.startswith("+")]
    if len(names) != 1:
        raise InputError("velo data generate takes the name of one environment (see velo data --help)")
    owner = generator_of(names[0], Path.cwd())
    words = [word for word in argv if word.startswith("+")]
    config = load(words)
    named = {re.split(r"[=.]", word.lstrip("+"))[0] for word in words}  # env.yaml has settings of other verbs, too
    options = {name: config.settings[name] for name in named - set(setting_names(GenerateOptions))}
    order = read_options(GenerateOptions, config)
    with counting("Generating", " tasks", delay_s=PATIENCE_S, shown=True, total=order.n) as bar:
        result = asyncio.run(generate_tasks(names[0], order, checked_options(owner, options), tell=bar.update))
    print_counts(result.as_json(), as_json=as_json)
    return 0


def _validate(flags: ValidateFlags) -> int:
    result = survey(flags.file)
    print_counts(result.summary(), as_json=flags.as_json)
    result.problems.refuse()
    if not result.rows:
        raise InputError(f"{flags.file}: no tasks in it")
    return 0
