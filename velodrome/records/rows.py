"""Reads the rows of a JSONL file that another program may have written: every JSON object is a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import Lost, LostLine, loads, read_lines
from velodrome.records.other_files import foreign_problem, is_foreign
from velodrome.records.rollout import beside

Json = dict[str, Any]

_THE_END = "nothing after it was read"


def read_rows(path: Path, lost: Lost) -> Iterator[tuple[int, Json, int]]:
    """Every row with its line number and its size in bytes; `lost` is called with every other line.

    A rollout of another project is an `InputError`.
    """
    line_number = foreign_line = 0
    try:
        for line_number, line in read_lines(path, lost=lost):
            try:
                row = loads(line)
            except ValueError as error:
                lost(LostLine(line_number, f"not JSON: {error}", torn=line[-1:] != b"\n"))
                continue
            if is_foreign(row):
                foreign_line = line_number
                break
            if type(row) is dict:
                yield line_number, row, len(line)
            else:
                lost(LostLine(line_number, "not an object"))
    except InputError as error:
        if not line_number:
            raise  # nothing could be read
        reason = str(error).removeprefix(f"{path}: ")
        lost(LostLine(line_number + 1, f"{reason}; {_THE_END}"))
    if foreign_line:
        raise InputError(foreign_problem(path, foreign_line))


def read_facts(path: Path, lost: Lost) -> Iterator[RowFacts]:
    for line, row, size in read_rows(path, lost):
        yield RowFacts(row, line=line, size=size)


def read_failures(rollouts: Path) -> Iterator[RowFacts]:
    """The failed attempts in the failures file beside a rollouts file. A torn line is ignored: it will run again."""
    path = beside(rollouts, "failures.jsonl")
    if path.is_file():
        for line, row, size in read_rows(path, Unread(path)):
            yield RowFacts(row, line=line, size=size, failed=True)


def read_attempts(rollouts: Path, lost: Lost) -> Iterator[RowFacts]:
    """The rows of a file and the failed attempts beside it. A failure comes before the next row that finished."""
    failures = read_failures(rollouts)
    failure = next(failures, None)
    for facts in read_facts(rollouts, lost):
        while failure is not None and (failure.finished_at or 0.0) <= (facts.finished_at or 0.0):
            yield failure
            failure = next(failures, None)
        yield facts
    if failure is not None:
        yield failure
        yield from failures


MOST_NOTES = 20


class Notes(list[str]):
    """The first twenty notes; `more` counts the rest."""

    def __init__(self, notes: Iterable[str] = ()) -> None:
        super().__init__(notes)
        self.more = 0

    def add(self, text: str) -> None:
        """Add a note, or count it if there are enough."""
        if len(self) < MOST_NOTES:
            self.append(text)
        else:
            self.more += 1


class Unread:
    """Notes on the lost lines of one file: the first few with their numbers, and the count of the rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._gaps: list[str] = []
        self._notes: list[str] = []

    def __call__(self, lost: LostLine) -> None:
        if lost.damaged:
            self._gaps.append(f"{self.path}: {lost.reason}; what was there is not counted")
            del self._gaps[MOST_NOTES:]
            return
        self.count += 1
        if lost.torn or len(self._notes) < MOST_NOTES:  # only one line can be torn, and it is the last
            reason = "not whole: it is being written, or was torn" if lost.torn else "not a rollout"
            reason = lost.reason if lost.reason.endswith(_THE_END) else reason
            self._notes.append(f"{self.path}:{lost.number}: {reason}; it is not counted")

    @property
    def notes(self) -> list[str]:
        more = self.count - len(self._notes)
        rest = [f"{self.path}: {more} more lines are not rollouts"] if more else []
        return [*self._gaps, *self._notes, *rest]
