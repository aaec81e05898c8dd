"""The rows of a JSONL file that others may have written: every line that is a JSON object is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.foreign import is_foreign, where
from velodrome.records.jsonl import Lost, Passed, read_lines
from velodrome.records.lenient import loads
from velodrome.records.rollout import beside
from velodrome.records.unread import Unread

Json = dict[str, Any]


def read_rows(path: Path, lost: Lost, passed: Passed | None = None) -> Iterator[tuple[int, Json, int]]:
    """Every row with the number of its line and its size in bytes; `lost` is told of each line that is none.

    So is, if it is given, `passed` of bytes that are damaged. A rollout of another project is an `InputError`.
    """
    number = foreign = 0
    try:
        for number, line in read_lines(path, lost=lost, passed=passed):
            try:
                row = loads(line)
            except ValueError as error:
                lost(number, f"not JSON: {error}", line[-1:] != b"\n")
                continue
            if is_foreign(row):
                foreign = number
                break
            if type(row) is dict:
                yield number, row, len(line)
            else:
                lost(number, "not an object", False)
    except InputError as error:
        if not number:
            raise  # no file, or none that could be read at all
        reason = str(error).removeprefix(f"{path}: ")
        lost(number + 1, f"{reason}; nothing after it was read", False)
    if foreign:
        raise InputError(where(path, foreign))


def read_facts(path: Path, lost: Lost, passed: Passed | None = None) -> Iterator[RowFacts]:
    """The facts of every row, as `read_rows` gives them."""
    for line, row, size in read_rows(path, lost, passed):
        yield RowFacts(row, line=line, size=size)


def read_failures(rollouts: Path) -> Iterator[RowFacts]:
    """The failed attempts in the failures file beside a rollouts file. A torn line runs again and counts nowhere."""
    path = beside(rollouts, "failures.jsonl")
    if path.exists():
        for line, row, size in read_rows(path, Unread(path)):
            yield RowFacts(row, line=line, size=size, failed=True)
