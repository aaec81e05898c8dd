"""`velo show`: one rollout, or those of one task, as readable transcripts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError, ModelError
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.mending import HOSTILE, mended
from velodrome.records.other_files import FOREIGN, is_foreign, refuse_other_file
from velodrome.records.rollout import key_in
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath, Text
from velodrome.viewer.transcript import transcript


class ShowFlags(Settings):
    """The flags of `velo show`."""

    file: FilePath = argument(title="FILE", description="a rollouts or failures file (.jsonl or .jsonl.zst)")
    which: Text = argument("1", title="WHICH", description="a line number from 1, a key, or the id of a task")
    all: bool = Field(False, description="show every rollout")


VERB = Verb(
    usage="velo show FILE [WHICH] [--all]",
    about="Print a rollout as a readable transcript.",
    settings={"flags": ShowFlags},
    more="""examples:
  velo show rollouts.jsonl              the first rollout
  velo show rollouts.jsonl 17           the 17th line
  velo show rollouts.jsonl 9f31c2a0/0   the rollout with this key
  velo show rollouts.jsonl 9f31c2a0     every repeat of this task
  velo show rollouts.jsonl --all | less
  velo show rollouts.failures.jsonl     the first failure: the prompt, how far it came, and why it failed""",
)


def run(argv: Sequence[str]) -> int:
    """Find the rollout, print it."""
    flags = read_flags(ShowFlags, argv, "velo show")
    if (problem := file_problem(flags.file)) is not None:
        raise InputError(problem)
    refuse_other_file(flags.file, failures=True)
    lines = _show(flags.file, every=flags.all, which=flags.which)
    if lines == 0:
        raise InputError(f"{flags.file}: no rollouts in it")
    if lines is not None and not _show_task(flags.file, flags.which):
        raise InputError(
            f"{flags.file}: no rollout {flags.which!r}; a line number from 1 to {lines}, a key, or the id of a task"
        )
    return 0


def _show(file: Path, *, every: bool, which: str) -> int | None:
    """Print the rollout with this place or key, or every one; how many there are if it is not among them."""
    found, position = False, 0

    def lost(number: int, reason: str, torn: bool) -> None:
        if every:
            print(f"{file}:{number}: {'not whole' if torn else reason}; it is not shown", file=sys.stderr)

    for position, (number, line) in enumerate(read_lines(file, lost=lost), 1):
        if not (every or str(position) == which or which in (key_in(line), failed_key(line))):
            continue
        found = True
        try:
            print(line_transcript(line))
        except InputError as error:
            problem = f"{file}:{number}: {error}"
            if not every:
                raise InputError(problem) from error
            print(problem, file=sys.stderr)
            continue
        if not every:
            break
    return None if found else position


def _show_task(file: Path, task: str) -> bool:
    """Print every repeat of a task; whether there is one."""
    found = False
    for number, line in read_lines(file, lost=lambda *_: None):
        if (key_in(line) or failed_key(line) or "").rpartition("/")[0] == task:
            found = True
            try:
                print(line_transcript(line))
            except InputError as error:
                print(f"{file}:{number}: {error}", file=sys.stderr)
    return found


def line_transcript(line: bytes) -> str:
    """The transcript of a line, or in one line why there is none."""
    try:
        row = loads(line)
    except ValueError:
        raise InputError("not a rollout: the line is not JSON") from None
    if not isinstance(row, dict):
        raise InputError("not a rollout: the line is not a JSON object")
    if is_foreign(row):
        raise InputError(FOREIGN)
    try:
        return transcript(row)
    except (ModelError, *HOSTILE):
        names = ", ".join(mended(row, failed="boundary" in row)[1]) or "a part of it"
        raise InputError(f"not a rollout: {names} of a wrong type (docs/rollouts.md names every field)") from None


def failed_key(line: bytes) -> str | None:
    """The key of a line of a failures file."""
    try:
        key = loads(line)["key"]
    except (ValueError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) else None
