"""Tasks in a file, in several files, or in memory. Every task has a number; `place` formats it for messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.records.jsonl import read_lines


class TaskFiles:
    """Tasks in one file or several. Line numbers continue from one file to the next."""

    def __init__(self, paths: Sequence[Path], pattern: Path | None = None) -> None:
        self.name = str(paths[0] if len(paths) == 1 else pattern)
        self._paths = paths
        self._files = [path.absolute() for path in paths]  # an environment may change the working directory
        self._before = [0]  # lines before each file that was read

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with its number."""
        last, self._before = 0, []
        for path in self._files:
            before = last
            self._before.append(before)
            for number, line in read_lines(path):
                last = before + number
                yield last, line

    def place(self, number: int) -> str:
        """The file and the line in it, by the line's number."""
        index = bisect_left(self._before, number) - 1
        return f"{self._paths[index]}:{number - self._before[index]}"


class TaskList:
    """Tasks in memory, by their number from 1."""

    def __init__(self, tasks: Collection[Any]) -> None:
        self.name = "tasks"
        self._lines = [encoded_task(task) for task in tasks]

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every task as a line."""
        return enumerate(self._lines, 1)

    def place(self, number: int) -> str:
        """The task by its number, for messages."""
        return f"{self.name}:{number}"


Tasks = TaskFiles | TaskList


def encoded_task(task: Any) -> bytes:
    """A task as a line. A plain text is used as the input of the request."""
    row = {"responses_create_params": {"input": task}} if isinstance(task, str) else task
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InputError(f"a task is not JSON: {error} (see docs/rollouts.md#task)") from None
