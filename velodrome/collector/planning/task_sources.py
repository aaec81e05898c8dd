"""Tasks in a file, in several files, or in memory. Every task has a number, and a place for messages made of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.errors import InputError
from velodrome.records.jsonl import read_lines


class Start(NamedTuple):
    """A place in a file of tasks: how many tasks, lines and bytes are before it."""

    tasks: int
    line: int
    offset: int


BEGINNING = Start(0, 0, 0)


class TaskFile:
    """Tasks in a file, by the number of their line."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path

    def lines(self, start: Start = BEGINNING) -> Iterator[tuple[int, bytes]]:
        """Every line with its number, from a place on."""
        for number, line in read_lines(self.path, start=start.offset):
            yield start.line + number, line

    def place(self, number: int) -> str:
        """Where the line of that number is."""
        return f"{self.name}:{number}"


class TaskFiles:
    """Tasks in several files, one after the other. Lines are numbered through."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self.name = name
        self._paths = paths
        self._before: list[int] = []  # lines before each file, as far as it was read

    def lines(self, start: Start = BEGINNING) -> Iterator[tuple[int, bytes]]:
        """Every line with its number."""
        last, self._before = 0, []
        for path in self._paths:
            before = last
            self._before.append(before)
            for number, line in read_lines(path):
                last = before + number
                yield last, line

    def place(self, number: int) -> str:
        """Which file the line of that number is in, and where."""
        at = bisect_left(self._before, number) - 1
        return f"{self._paths[at]}:{number - self._before[at]}"


class TaskList:
    """Tasks in memory, by their number from 1."""

    def __init__(self, tasks: Collection[Any]) -> None:
        self.name = "tasks"
        self._lines = [encoded_task(task) for task in tasks]

    def lines(self, start: Start = BEGINNING) -> Iterator[tuple[int, bytes]]:
        """Every task as a line."""
        return enumerate(self._lines, 1)

    def place(self, number: int) -> str:
        """Which task it is."""
        return f"{self.name}:{number}"


Tasks = TaskFile | TaskFiles | TaskList


def encoded_task(task: Any) -> bytes:
    """A task as a line; a text is what the model is asked."""
    row = {"responses_create_params": {"input": task}} if isinstance(task, str) else task
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InputError(f"a task is not JSON: {error} (see docs/rollouts.md#task)") from None


def read_sources(paths: Sequence[Path], name: Path) -> TaskFile | TaskFiles:
    """One file of tasks, or several under the name of their pattern."""
    return TaskFile(paths[0]) if len(paths) == 1 else TaskFiles(paths, str(name))
