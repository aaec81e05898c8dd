"""`metrics.jsonl` of a run: one line per epoch and per evaluation.

A run that resumes from a checkpoint cuts it back to what was there then, so no step appears twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import StorageError

Json = dict[str, Any]

_TIMES = ("sps", "rollout_ms", "update_ms", "evaluation_s")
_RESUME = "The last checkpoint is good; once there is room, the same command resumes from it."


class MetricsLog:
    """A metrics file, whole lines up to `offset`. A file that is removed during the run begins again."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        try:
            with path.open("ab") as file:
                self.offset = min(offset, file.tell())
                file.truncate(self.offset)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error

    def write(self, line: Json) -> None:
        """Add a line, whole or not at all."""
        data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        try:
            with self._path.open("ab", buffering=0) as file:
                before = file.tell()
                try:
                    while data:
                        data = data[file.write(data) :]
                except OSError:
                    file.truncate(before)
                    raise
                self.offset = file.tell()
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be written ({error.strerror or error}). {_RESUME}") from error

    def flush(self) -> None:
        """Make it survive a power cut."""
        with self._path.open("ab") as file:
            os.fsync(file)


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line by tag: `train/<name>`, `time/<name>`, `evaluation_greedy/<name>` …"""
    return dict(_tagged(line))


def _tagged(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, Mapping):
            group = "time" if name != "evaluation" else f"evaluation_{'greedy' if value['greedy'] else 'sampled'}"
            yield from (
                (f"{group}/{inner}", number) for inner, number in value.items() if inner not in ("greedy", "actions")
            )
        elif name != "step" and not isinstance(value, str):
            yield f"{'time' if name in _TIMES else 'train'}/{name}", value
