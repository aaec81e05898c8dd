"""`rollouts.progress.json`: the progress of a run, for other programs. It is replaced about once per second.

The run does not depend on it. It contains the process that writes the output, so that `velo status` can recognize a
dead run.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from velodrome.collector.watch.progress import RecentRate, RunState
from velodrome.errors import InputError, StorageError
from velodrome.records.outfile import write_whole
from velodrome.records.rollout import beside

Json = dict[str, Any]

_EVERY_S = 1.0


class LiveState:
    """The progress file of one run."""

    def __init__(self, output: Path | None, state: Callable[[], RunState]) -> None:
        self._path = None if output is None else beside(output, "progress.json")
        self._state = state
        self._written_at = 0.0
        self._started_at = round(time.time(), 3)
        self._rate = RecentRate(state().done)
        self.update()

    def update(self) -> None:
        """Write the state, at most once per second."""
        if time.monotonic() - self._written_at >= _EVERY_S:
            self._write({})

    def end(self, stopped: str | None) -> None:
        """Write the final state. `stopped` is the reason if the run ended early."""
        self._write({"finished_at": round(time.time(), 3), "stopped": stopped})

    def _write(self, end: Json) -> None:
        if self._path is None:
            return
        self._written_at = time.monotonic()
        state = self._state()
        process = {"pid": os.getpid(), "host": socket.gethostname(), "process_started": process_start(os.getpid())}
        times = {"started_at": self._started_at, "updated_at": round(time.time(), 3)}
        data = {**process, **times, **asdict(state), "rate": self._rate.update(state.done), **end}
        with suppress(StorageError):  # the run continues without it
            write_whole(self._path, orjson.dumps(data) + b"\n")


def process_start(pid: int) -> str | None:
    """The start of a process, in clock ticks, or None. It distinguishes processes with the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def is_alive(state: Json) -> bool | None:
    """Whether the process of a state still runs; None if it is on another machine."""
    if state.get("host") != socket.gethostname():
        return None
    try:
        os.kill(int(state["pid"]), 0)
    except PermissionError:
        pass
    except (OSError, ValueError, KeyError, OverflowError):
        return False
    return process_start(int(state["pid"])) == state.get("process_started")


def read_live_state(output: Path) -> Json:
    """The state of the last run that wrote this output. `alive`: whether its process still runs."""
    path = beside(output, "progress.json")
    try:
        state = orjson.loads(path.read_bytes())
        if not isinstance(state, dict) or not all(name in state for name in ("done", "total", "started_at")):
            raise ValueError("not the state of a run")
    except FileNotFoundError:
        raise InputError(
            f"{path}: not there, so no run of {output} is known; give the output of velo collect"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    return {**state, "alive": is_alive(state)}
