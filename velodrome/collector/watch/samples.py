"""`rollouts.samples.jsonl`: what changes over the time of a run, one line per second.

Profiles of one moment, counters of a trace and charts read it. Nothing depends on it: a disk that refuses it costs no
rollout.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from velodrome.records.rollout import beside

Json = dict[str, Any]

EVERY_S = 1.0


class SampleFile:
    """The file of one run; a run that continues an output adds to it."""

    def __init__(self, output: Path | None, *, fresh: bool) -> None:
        self._path = None if output is None else beside(output, "samples.jsonl")
        self._written_at = 0.0
        self._waiting: Json | None = None  # what came since the last line, as one sample
        if self._path is not None and fresh:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def add(self, sample: Json) -> None:
        """Write a sample once a second has passed. Of those before it the worst lag and the decisions are kept."""
        if (before := self._waiting) is not None:
            sample = {**sample, "lag_s": max(before["lag_s"], sample["lag_s"]), "pace": before["pace"] + sample["pace"]}
        self._waiting = sample
        if sample["at"] - self._written_at >= 0.9 * EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the last sample, if it is not written."""
        sample, self._waiting = self._waiting, None
        if self._path is None or sample is None:
            return
        self._written_at = sample["at"]
        with suppress(OSError), self._path.open("ab") as file:
            file.write(orjson.dumps(sample) + b"\n")
