"""TensorBoard: an event file per start of a run. A resumed run makes TensorBoard forget what follows its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from velodrome.training.settings import RunSettings


class TensorBoardSink:
    """An open event file for what follows `step`. Written by this thread, so that a full disk is noticed here."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Callable[[str], None]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = Event
        self._file = _unused_name(folder).open("wb")
        self._records: Any = RecordWriter(self._file)
        self._record(file_version="brain.Event:2")
        if step:
            self._record(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        values = [{"tag": name, "simple_value": value} for name, value in numbers.items()]
        self._record(step=step, summary={"value": values})

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        with suppress(OSError):  # what matters was flushed before
            self._file.close()

    def _record(self, **event: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **event).SerializeToString())


def _unused_name(folder: Path) -> Path:
    """Event files are read in the order of their names, which contain the second: two must not share one."""
    while list(folder.glob(f"events.out.tfevents.{int(time.time())}*")):
        time.sleep(0.02)
    return folder / f"events.out.tfevents.{int(time.time())}.velodrome"
