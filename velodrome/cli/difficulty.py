"""`velo data difficulty`: which tasks are worth training on, from a rollouts file or a few repeats that it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from pydantic import Field

from velodrome.cli import collect
from velodrome.cli.options import load_options
from velodrome.cli.streams import say
from velodrome.cli.tables import print_lines, print_text
from velodrome.cli.verb import argument, read_flags
from velodrome.errors import InputError
from velodrome.records.jsonl import read_lines
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.records.task import parse_task, task_id
from velodrome.settings.files import find_input
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath, JsonlFile
from velodrome.stats.task_difficulty import Difficulty, read_difficulty
from velodrome.timing.invisible import printed_json

REPEATS = 4  # rollouts of each task, if the command does not say


class DifficultyFlags(Settings):
    """The flags of `velo data difficulty`."""

    file: tuple[FilePath, ...] = argument((), title="ROLLOUTS", description="rollouts; or +settings of velo collect")
    tasks: FilePath | None = Field(None, description="the tasks that the rollouts are of, for --output")
    output: JsonlFile | None = Field(None, title="FILE", description="write the useful tasks to this file")
    right_at: float = Field(1.0, title="REWARD", description="the reward from which a rollout is right")
    level: float = Field(0.95, gt=0, lt=1, title="LEVEL", description="the level of the intervals")
    as_json: bool = Field(False, alias="json", description="print everything as JSON")
    overwrite: bool = Field(False, description="replace an existing file")


def run_difficulty(argv: Sequence[str]) -> int:
    """Collect if there are settings to collect with, read, and print."""
    flags = read_flags(DifficultyFlags, [word for word in argv if word[:1] not in "+~"], "velo data difficulty")
    settings = [word for word in argv if word[:1] in "+~"]
    if bool(settings) == bool(flags.file):
        raise InputError("velo data difficulty takes rollouts, or +settings of velo collect that make them; not both")
    files, tasks = flags.file, flags.tasks
    if settings:
        files, tasks = _collected(settings)
    if flags.output is not None:
        if tasks is None:
            raise InputError("--output needs --tasks: the file with the tasks of these rollouts")
        tasks = find_input(tasks)
        refuse_existing([flags.output], [*files, tasks], overwrite=flags.overwrite)
    result, notes = read_difficulty(files, flags.right_at, flags.level)
    for note in notes:
        say(note)
    if not result.tasks:
        raise InputError(f"{files[0]}: no rollouts in it")
    if flags.as_json:
        print_lines(printed_json(result.as_json()))
    else:
        print_text("\n".join(result.lines()))
    if flags.output is not None and tasks is not None:
        count = _write_useful(result, tasks, flags.output)
        say(f"{count} useful tasks  ->  {flags.output}")
    return 0


def _collected(settings: Sequence[str]) -> tuple[tuple[Path, ...], Path]:
    """Run the repeats; where the rollouts are, and the tasks."""
    if not any(word.lstrip("+").startswith("num_repeats=") for word in settings):
        settings = [*settings, f"+num_repeats={REPEATS}"]
    options, output = collect.with_files(load_options(collect.CollectOptions, settings)[1])
    with redirect_stdout(sys.stderr):
        code = collect.run(settings)
    if code not in (0, 3):
        raise InputError(f"the collection ended with exit code {code}; the same command continues it")
    if options.input is None:
        raise InputError("+input_jsonl_fpath: the tasks are needed")
    return (output,), Path(options.input)


def _write_useful(result: Difficulty, tasks: Path, output: Path) -> int:
    useful, count = result.names("useful"), 0
    with OutFile(output) as out:
        for number, line in read_lines(tasks):
            try:
                name = task_id(parse_task(line))
            except ValueError as error:
                raise InputError(f"{tasks}:{number}: {error}") from error
            if name in useful:
                out.write(line if line.endswith(b"\n") else line + b"\n")
                count += 1
        if count < len(useful):
            raise InputError(f"{tasks}: {len(useful) - count} of the useful tasks are not in it; nothing is written")
        out.commit()
    return count
