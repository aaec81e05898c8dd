"""The progress, speed, mean reward and failures of a run: a bar in a terminal or a notebook, else lines.

A line has no carriage return, so a log file stays readable.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TextIO

from tqdm.auto import tqdm

from velodrome.timing.figures import long_duration
from velodrome.timing.screen import fitted, page_width, redraws

_FIRST_LINE_S = 5.0
_LINE_S = 60.0
_RATE_MINUTES = 10  # the rate is measured over the last ten minutes


@dataclass(frozen=True)
class RunState:
    """The counts of a run at one moment. `done` includes rollouts of earlier runs."""

    done: int
    total: int
    failed: int = 0
    in_flight: int = 0
    reward: float | None = None
    limit: int | None = None  # of rollouts in flight, with parallel=auto


class ProgressBar(tqdm):  # type: ignore[type-arg]
    """A bar without tqdm's monitor thread, which would outlive it."""

    monitor_interval = 0


class Progress:
    """A progress bar. `show` draws it; it is called a few times per second, not once per rollout."""

    every_s = 0.2

    def __init__(self, total: int, done: int, *, title: str = "Collecting rollouts") -> None:
        self._reward = "new rollouts' reward" if done else "reward"
        self._bar = ProgressBar(
            total=total, initial=done, desc=title, unit="it", file=sys.stderr, mininterval=0, dynamic_ncols=True
        )

    def show(self, state: RunState) -> None:
        """Draw the bar again."""
        notes = [] if state.reward is None else [f"{self._reward} {state.reward:.3f}"]
        if state.failed:
            notes.append(f"{state.failed} failed")
        if state.limit is not None:
            notes.append(f"limit {state.limit}")
        self._bar.n, self._bar.total = state.done, state.total
        self._bar.set_postfix_str(", ".join(notes), refresh=False)
        self._bar.refresh()

    def note(self, text: str) -> None:
        """Print lines above the bar."""
        self._bar.write(fitted(text, page_width(sys.stderr)), file=sys.stderr)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._bar.close()


class RecentRate:
    """Rollouts per second over the last ten minutes."""

    def __init__(self, done: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples = deque([(clock(), done)], maxlen=_RATE_MINUTES + 1)  # one per minute
        self.seconds = 0.0  # the measured time

    def update(self, done: int) -> float:
        """Return the rate, given the number of finished rollouts now."""
        now = self._clock()
        if now - self._samples[-1][0] >= _LINE_S:
            self._samples.append((now, done))
        first_time, first_done = self._samples[0]
        self.seconds = now - first_time
        return (done - first_done) / max(self.seconds, 1e-6)


class ProgressLines:
    """Prints a line after a few seconds and then every minute, if the output is not a terminal."""

    def __init__(
        self,
        done: int,
        *,
        title: str = "Collecting rollouts",
        clock: Callable[[], float] = time.monotonic,
        stream: TextIO | None = None,
    ) -> None:
        self._title = title
        self._reward = "new rollouts' reward" if done else "reward"
        self._stream = stream or sys.stderr
        self._rate = RecentRate(done, clock)
        self._shown = 0

    @property
    def every_s(self) -> float:
        """Seconds until the next line."""
        return _LINE_S if self._shown else _FIRST_LINE_S

    def show(self, state: RunState) -> None:
        """Print the progress as a line."""
        self._shown += 1
        rate = self._rate.update(state.done)
        self.note(f"{self._title}: {progress_text(state, rate, self._reward, measured_s=self._rate.seconds)}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing to close."""


Shown = Progress | ProgressLines


def counting(title: str, unit: str, *, delay_s: float, shown: bool, total: int | None = None) -> ProgressBar:
    """A progress bar for a terminal or a notebook. It appears after `delay_s`; `total` may be unknown."""
    hidden = not (shown and _has_bar())
    return ProgressBar(
        total=total, desc=title, unit=unit, delay=delay_s, mininterval=0.2, disable=hidden, dynamic_ncols=True
    )


def _has_bar() -> bool:
    return redraws(sys.stderr) or any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)


def progress_text(state: RunState, rate: float | None, reward: str = "reward", *, measured_s: float = _LINE_S) -> str:
    """The state of a run as text. `rate` is rollouts per second; None if the run has ended.

    A rate per minute is shown only after a minute of measurement.
    """
    parts = [f"{state.done}/{state.total} ({state.done / state.total:.0%})" if state.total else str(state.done)]
    if rate is not None:
        per_second = rate >= 1 or not rate or measured_s < _LINE_S
        parts.append(f"{rate:.3g}/s" if per_second else f"{rate * 60:.3g}/min")
    if state.reward is not None:
        parts.append(f"{reward} {state.reward:.3f}")
    parts += [f"{state.failed} failed"] if rate is None else [f"{state.failed} failed", f"{state.in_flight} in flight"]
    if state.limit is not None:
        parts.append(f"limit {state.limit}")
    if rate and state.total >= state.done:
        parts.append(f"{long_duration((state.total - state.done) / rate)} left")
    return ", ".join(parts)


@asynccontextmanager
async def showing(title: str, state: Callable[[], RunState]) -> AsyncIterator[Shown]:
    """Show the progress while the block runs: a bar in a terminal or a notebook, else lines."""
    start = state()
    bar = _has_bar()
    shown: Shown = Progress(start.total, start.done, title=title) if bar else ProgressLines(start.done, title=title)

    async def keep_showing() -> None:
        while True:
            await asyncio.sleep(shown.every_s)
            shown.show(state())

    task = asyncio.create_task(keep_showing())
    try:
        with logs_above_bar() if bar else nullcontext():
            yield shown
    finally:
        task.cancel()
        shown.show(state())
        shown.close()


class _AboveBar:
    """A stream whose text appears above the bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        ProgressBar.write(text, file=self._stream, end="")

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def logs_above_bar() -> Iterator[None]:
    """Log lines for the terminal are lines above the bar, as its notes are."""
    handlers = [each for each in logging.getLogger().handlers if isinstance(each, logging.StreamHandler)]
    shown = [(each, each.stream) for each in handlers if each.stream in (sys.stdout, sys.stderr)]
    last = logging.lastResort  # takes the warnings of a program without handlers
    for handler, stream in shown:
        handler.setStream(_AboveBar(stream))
    logging.lastResort = logging.StreamHandler(_AboveBar(sys.stderr))
    logging.lastResort.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = last
        for handler, stream in shown:
            handler.setStream(stream)
