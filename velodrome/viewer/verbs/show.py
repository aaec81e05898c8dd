"""`velo show`: rollouts as readable transcripts, or one line each; on a terminal several of them open in a pager."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pydantic import Field

from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import LostLine, loads, read_lines
from velodrome.records.mending import mended
from velodrome.records.other_files import FOREIGN, is_foreign, refuse_other_file
from velodrome.records.rollout import key_in
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.values import FilePath, Text
from velodrome.timing.figures import duration
from velodrome.timing.report import clean
from velodrome.timing.screen import fitted, is_terminal, page_width
from velodrome.viewer.transcript import transcript


class ShowFlags(Settings):
    """The flags of `velo show`."""

    file: FilePath = argument(title="FILE", description="a rollouts or failures file (.jsonl or .jsonl.zst)")
    which: Text = argument("1", title="WHICH", description="a line number from 1, a key, or the id of a task")
    all: bool = Field(False, description="show every rollout")
    where: str = Field("", title="FILTER", description='show those that match, as in "reward<1 tools>3"')
    list: bool = Field(False, description="one line per rollout instead of its transcript")


_KEY, _ANSWER = 24, 120  # characters

VERB = Verb(
    usage="velo show FILE [WHICH | --all] [--list]\nvelo show FILE --where FILTER [--list]",
    about="""\
Print a rollout as a readable transcript. On a terminal several rollouts open in a pager ($PAGER, or less).""",
    settings={"flags": ShowFlags},
    more="""examples:
  velo show rollouts.jsonl              the first rollout
  velo show rollouts.jsonl 17           the 17th line
  velo show rollouts.jsonl 9f31c2a0/0   the rollout with this key
  velo show rollouts.jsonl 9f31c2a0     every repeat of this task
  velo show rollouts.jsonl --where "reward<1"         what failed, one after the other
  velo show rollouts.jsonl --where "reward<1" --list  the same, one line each
  velo show rollouts.failures.jsonl     the first failure: the prompt, how far it came, and why it failed""",
)


def run(argv: Sequence[str]) -> int:
    """Find the rollouts, print them."""
    flags = read_flags(ShowFlags, argv, "velo show")
    file, which = flags.file, flags.which
    if (problem := file_problem(file)) is not None:
        raise InputError(problem)
    refuse_other_file(file, failures=True)
    draw = _line_of if flags.list else _transcript
    shown, lines = True, 1  # the values if the pager is left early
    if flags.where:
        with _pager() as out:
            for number, line in _matching(file, flags.where):
                _print(file, number, line, draw, out)
        return 0
    if flags.all or flags.list:
        with _pager() as out:
            shown, lines = _show(file, lambda place, key: True, draw, out, report_lost=True)
    else:
        shown, lines = _show(file, lambda place, key: which in (str(place), key), draw, sys.stdout, only_first=True)
        if not shown:
            shown, _ = _show(file, lambda place, key: key.rpartition("/")[0] == which, draw, sys.stdout)
    if not lines:
        raise InputError(f"{file}: no rollouts in it")
    if not shown:
        raise InputError(f"{file}: no rollout {which!r}; a line number from 1 to {lines}, a key, or the id of a task")
    return 0


@contextmanager
def _pager() -> Iterator[IO[str]]:
    """Where to print many rollouts: a pager on a terminal, stdout elsewhere. Leaving the pager early is fine."""
    if not is_terminal(sys.stdout):
        yield sys.stdout
        return
    command = shlex.split(os.environ.get("PAGER") or "less -R")
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, errors="replace")
    except OSError:
        yield sys.stdout
        return
    try:
        with pager.stdin or sys.stdout as out:
            yield out
    except BrokenPipeError:
        pass
    finally:
        pager.wait()


def _matching(file: Path, where: str) -> Iterator[tuple[int, bytes]]:
    """The rollouts and failures that match a filter, from the index of the file."""
    from velodrome.index import FAILED, Index, Query
    from velodrome.index.check_field import file_checks

    query = Query.parse(where)
    index = Index(file, judged=True, outside=[file_checks(file)])
    index.refresh()
    for entry in index.select(query):
        yield entry.number % FAILED, index.line(entry.number)


def _show(
    file: Path,
    selected: Callable[[int, str], bool],
    draw: Callable[[bytes], str],
    out: IO[str],
    *,
    only_first: bool = False,
    report_lost: bool = False,
) -> tuple[bool, int]:
    """Print the selected rollouts, or only the first. Returns whether there was one, and the number of lines read."""

    def report(line: LostLine) -> None:
        if report_lost:
            what = "not whole" if line.torn else line.reason
            print(f"{file}:{line.number}: {what}; it is not shown", file=sys.stderr)

    shown, place = False, 0
    for place, (number, line) in enumerate(read_lines(file, lost=report), 1):
        if not selected(place, key_in(line) or _failed_key(line)):
            continue
        shown = True
        _print(file, number, line, draw, out, strict=only_first)
        if only_first:
            break
    return shown, place


def _print(
    file: Path, number: int, line: bytes, draw: Callable[[bytes], str], out: IO[str], *, strict: bool = False
) -> None:
    """Print one rollout; an error goes to stderr, or is raised if `strict`."""
    try:
        print(fitted(draw(line), page_width(sys.stdout)), file=out)
    except InputError as error:
        problem = f"{file}:{number}: {error}"
        if strict:
            raise InputError(problem) from error
        print(problem, file=sys.stderr)


def _line_of(line: bytes) -> str:
    """A rollout on one line: key, reward, duration, and the end of its answer or its error."""
    facts = _facts(line)
    reward = "failed" if facts.failed else "-" if facts.reward is None else f"{facts.reward:g}"
    length = "" if facts.total_s is None else duration(facts.total_s * 1000)
    text = " ".join((facts.error if facts.failed else facts.answer[-_ANSWER:]).split())
    key = clean(facts.key or "?", longest=_KEY)
    return f"{key:<{_KEY}} {reward:>6} {length:>8}  {clean(text, longest=_ANSWER)}"


def _transcript(line: bytes) -> str:
    return transcript(_facts(line).row)


def _facts(line: bytes) -> RowFacts:
    """The rollout of a line, or an `InputError`."""
    try:
        row = loads(line)
    except ValueError:
        raise InputError("not a rollout: the line is not JSON") from None
    if not isinstance(row, dict):
        raise InputError("not a rollout: the line is not a JSON object")
    if is_foreign(row):
        raise InputError(FOREIGN)
    wrong_fields = [name for name in mended(row, failed="boundary" in row)[1] if name != "reward"]
    if wrong_fields:
        names = ", ".join(wrong_fields)
        raise InputError(f"not a rollout: {names} of a wrong type (docs/rollouts.md names every field)")
    return RowFacts(row, failed="boundary" in row)


def _failed_key(line: bytes) -> str:
    """The key of a line of a failures file; "" if it has none."""
    try:
        key = loads(line)["key"]
    except (ValueError, KeyError, TypeError):
        return ""
    return key if isinstance(key, str) else ""
