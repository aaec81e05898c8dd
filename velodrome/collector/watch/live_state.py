"""`rollouts.progress.json`: how far a run is, for other programs. It is replaced whole about once per second.

Nothing depends on it: it says which process writes the output, so that `velo status` can tell a run from a dead one.
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
        self._written = 0.0
        self._begun = round(time.time(), 3)
        self._rate = RecentRate(state().done)
        self.update()

    def update(self) -> None:
        """Write the state, unless that was just done."""
        if time.monotonic() - self._written >= _EVERY_S:
            self._write({})

    def end(self, stopped: str | None) -> None:
        """The run is over; `stopped` says why it ended early, if it did."""
        self._write({"finished_at": round(time.time(), 3), "stopped": stopped})

    def _write(self, end: Json) -> None:
        if self._path is None:
            return
        self._written = time.monotonic()
        state = self._state()
        process = {"pid": os.getpid(), "host": socket.gethostname(), "process_started": process_start(os.getpid())}
        times = {"started_at": self._begun, "updated_at": round(time.time(), 3)}
        data = {**process, **times, **asdict(state), "rate": self._rate.of(state.done), **end}
        with suppress(StorageError):  # the rollouts are what matters
            write_whole(self._path, orjson.dumps(data) + b"\n")


def process_start(pid: int) -> str | None:
    """When a process began, in the system's own words: a later process with the same number has another."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def lives(state: Json) -> bool | None:
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
    """The state of the last run that wrote this output. `alive` says whether its process still runs."""
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
    return {**state, "alive": lives(state)}
