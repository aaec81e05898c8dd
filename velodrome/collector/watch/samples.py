"""Samples of the load and the counts of a run: one line per second in `rollouts.samples.jsonl`.

One timer measures the event loop's lag and the process's share of a core: it is called a few times per second, and its
delay is the lag. Profiles, traces and charts read the file. If the disk refuses it, the run continues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from velodrome.records.rollout import beside

Json = dict[str, Any]

EVERY_S = 1.0
TICK_S = 0.05
SAMPLE_S = 0.5

BUSY = ("cpu", "lag_s")  # the share of one core, and the worst lag in seconds, since the sample before
Receive = Callable[[dict[str, float]], object]


@asynccontextmanager
async def sampling(receive: Receive) -> AsyncIterator[None]:
    """Pass a sample to `receive` every half second while the block runs, and one at the end."""
    pulse = Pulse(receive)
    try:
        yield
    finally:
        pulse.stop()


class Pulse:
    """The timer, and its measurements since the last sample."""

    def __init__(
        self,
        receive: Receive,
        *,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._receive = receive
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._lag_s = 0.0
        self._since, self._cpu_since = clock(), cpu_clock()
        self._due = self._since + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop ticking, and take a last sample."""
        self._timer.cancel()
        self._sample(self._clock())

    def _tick(self) -> None:
        now = self._clock()
        self._lag_s = max(self._lag_s, now - self._due)
        if now - self._since >= SAMPLE_S:
            self._sample(now)
        self._due = now + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _sample(self, now: float) -> None:
        cpu = self._cpu_clock()
        if now > self._since:
            values = (round((cpu - self._cpu_since) / (now - self._since), 3), round(self._lag_s, 6))
            self._receive(dict(zip(BUSY, values, strict=True)))
        self._since, self._cpu_since, self._lag_s = now, cpu, 0.0


class SampleFile:
    """The samples file of one run. A resumed run appends to it."""

    def __init__(self, output: Path | None, *, fresh: bool) -> None:
        self._path = None if output is None else beside(output, "samples.jsonl")
        self._written_at = 0.0
        self._waiting: Json | None = None  # the samples since the last line, combined
        if self._path is not None and fresh:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def add(self, sample: Json) -> None:
        """Write a sample once a second has passed, with the worst lag and all decisions since the last line."""
        if (before := self._waiting) is not None:
            sample = {**sample, "lag_s": max(before["lag_s"], sample["lag_s"]), "pace": before["pace"] + sample["pace"]}
        self._waiting = sample
        if sample["at"] - self._written_at >= 0.9 * EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the last sample, unless it was written."""
        sample, self._waiting = self._waiting, None
        if self._path is None or sample is None:
            return
        self._written_at = sample["at"]
        with suppress(OSError), self._path.open("ab") as file:
            file.write(orjson.dumps(sample) + b"\n")
