"""`velo show`: one rollout, or those of one task, as readable transcripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import Field

from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.records.jsonl import LostLine, loads, read_lines
from velodrome.records.mending import mended
from velodrome.records.other_files import FOREIGN, is_foreign, refuse_other_file
from velodrome.records.rollout import key_in
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath, Text
from velodrome.timing.screen import fitted, page_width
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
    file, which = flags.file, flags.which
    if (problem := file_problem(file)) is not None:
        raise InputError(problem)
    refuse_other_file(file, failures=True)
    if flags.all:
        shown, lines = _show(file, lambda place, key: True, lost=True)
    else:
        shown, lines = _show(file, lambda place, key: which in (str(place), key), one=True)
        if not shown:
            shown, _ = _show(file, lambda place, key: key.rpartition("/")[0] == which)
    if not lines:
        raise InputError(f"{file}: no rollouts in it")
    if not shown:
        raise InputError(f"{file}: no rollout {which!r}; a line number from 1 to {lines}, a key, or the id of a task")
    return 0


def _show(file: Path, wanted: Callable[[int, str], bool], *, one: bool = False, lost: bool = False) -> tuple[bool, int]:
    """Print those that are wanted by their place or key, or only the first. Whether there is one, and of how many."""

    def report(line: LostLine) -> None:
        if lost:
            what = "not whole" if line.torn else line.reason
            print(f"{file}:{line.number}: {what}; it is not shown", file=sys.stderr)

    shown, place = False, 0
    for place, (number, line) in enumerate(read_lines(file, lost=report), 1):
        if not wanted(place, key_in(line) or _failed_key(line)):
            continue
        shown = True
        try:
            print(fitted(_transcript(line), page_width(sys.stdout)))
        except InputError as error:
            problem = f"{file}:{number}: {error}"
            if one:
                raise InputError(problem) from error
            print(problem, file=sys.stderr)
        if one:
            break
    return shown, place


def _transcript(line: bytes) -> str:
    """The transcript of a line, or in one line why there is none."""
    try:
        row = loads(line)
    except ValueError:
        raise InputError("not a rollout: the line is not JSON") from None
    if not isinstance(row, dict):
        raise InputError("not a rollout: the line is not a JSON object")
    if is_foreign(row):
        raise InputError(FOREIGN)
    wrong = [name for name in mended(row, failed="boundary" in row)[1] if name != "reward"]
    if wrong:
        names = ", ".join(wrong)
        raise InputError(f"not a rollout: {names} of a wrong type (docs/rollouts.md names every field)")
    return transcript(row)


def _failed_key(line: bytes) -> str:
    """The key of a line of a failures file; "" if it has none."""
    try:
        key = loads(line)["key"]
    except (ValueError, KeyError, TypeError):
        return ""
    return key if isinstance(key, str) else ""
