"""The numbers of `metrics.jsonl` for TensorBoard too, in an event file in the run's folder.

A run that goes on from a checkpoint takes back what was written after it, so no step is shown twice. Written by this
thread and no other, so that a full disk is met here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from velodrome.errors import InputError, StorageError

_TIMES = ("sps", "rollout_ms", "update_ms", "evaluation_s")


class Board:
    """An open event file for what comes after `step`."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as missing:
            needed = 'needs the package "tensorboard" (pip install "velodrome[tensorboard]")'
            raise InputError(f"output.tensorboard: {needed}") from missing
        self._event: Any = Event
        self._path = _free_name(folder)
        try:
            self._file = self._path.open("wb")
        except OSError as error:
            raise self._unwritten(error) from error
        self._records: Any = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        if step:
            self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, line: Mapping[str, Any]) -> None:
        """A line of metrics: `train/<name>`, times as `time/<name>`, an evaluation's as `evaluation/<name>` …"""
        values = [{"tag": name, "simple_value": value} for name, value in _numbers(line)]
        self._write(step=line["step"], summary={"value": values})

    def settle(self) -> None:
        """Write what is held back."""
        try:
            self._file.flush()
        except OSError as error:
            raise self._unwritten(error) from error

    def close(self) -> None:
        """Let go; what was to be kept is settled before."""
        with suppress(OSError):
            self._file.close()

    def _write(self, **told: Any) -> None:
        try:
            self._records.write(self._event(wall_time=time.time(), **told).SerializeToString())
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._path}: cannot be written ({error.strerror or error}). The last checkpoint is good; "
            "with room made, the same command goes on from there."
        )


def _numbers(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, Mapping):
            group = "time" if name != "evaluation" else "evaluation" if value["greedy"] else "evaluation_drawn"
            yield from ((f"{group}/{inner}", number) for inner, number in value.items() if inner != "greedy")
        elif name != "step" and not isinstance(value, str):
            yield f"{'time' if name in _TIMES else 'train'}/{name}", value


def _free_name(folder: Path) -> Path:
    """Event files are read in the order of their names, which tell the second: the next must not share the last's."""
    while list(folder.glob(f"events.out.tfevents.{int(time.time())}*")):
        time.sleep(0.02)
    return folder / f"events.out.tfevents.{int(time.time())}.velodrome"
