"""How far a run is, how fast, the mean reward and how many failed: a bar in a terminal or a notebook, else lines.

A line has no carriage return and does not depend on a screen, so a log file of a night can be read.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TextIO

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from velodrome.timing.figures import long_duration
from velodrome.timing.screen import fitted, page_width, redraws

_FIRST_LINE_S = 5.0
_LINE_S = 60.0
_RATED_LINES = 10  # the rate is that of the last ten minutes


@dataclass(frozen=True)
class RunState:
    """The numbers of a run at one moment. `done` counts those kept by earlier runs, too."""

    done: int
    total: int
    failed: int = 0
    in_flight: int = 0
    reward: float | None = None
    limit: int | None = None  # on those in flight, where it is found while running


class ProgressBar(tqdm):  # type: ignore[type-arg]
    """A bar without tqdm's monitor, a thread that would outlive it."""

    monitor_interval = 0


class Progress:
    """A bar that is drawn when `show` is called; a collector calls it a few times per second, not once per rollout."""

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
        """Lines above the bar."""
        self._bar.write(fitted(text, page_width(sys.stderr)), file=sys.stderr)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._bar.close()


class RecentRate:
    """Rollouts per second over the last ten minutes."""

    def __init__(self, done: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = deque([(clock(), done)], maxlen=_RATED_LINES + 1)  # one in a minute
        self.seconds = 0.0  # how long was measured

    def of(self, done: int) -> float:
        """The rate, now that this many are done."""
        now = self._clock()
        if now - self._seen[-1][0] >= _LINE_S:
            self._seen.append((now, done))
        then, before = self._seen[0]
        self.seconds = now - then
        return (done - before) / max(self.seconds, 1e-6)


class ProgressLines:
    """A line after a few seconds and then every minute, for output that is not a terminal."""

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
        """When the next line is due."""
        return _LINE_S if self._shown else _FIRST_LINE_S

    def show(self, state: RunState) -> None:
        """One line."""
        self._shown += 1
        rate = self._rate.of(state.done)
        self.note(f"{self._title}: {progress_text(state, rate, self._reward, measured_s=self._rate.seconds)}")

    def note(self, text: str) -> None:
        """One more line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is left open."""


Shown = Progress | ProgressLines


def counting(title: str, unit: str, *, delay_s: float, shown: bool, total: int | None = None) -> ProgressBar:
    """A bar, with an end if there is a `total`, where one can move; what ends within `delay_s` shows none."""
    hidden = not (shown and _has_bar())
    return ProgressBar(
        total=total, desc=title, unit=unit, delay=delay_s, mininterval=0.2, disable=hidden, dynamic_ncols=True
    )


def _has_bar() -> bool:
    return redraws(sys.stderr) or any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)


def progress_text(state: RunState, rate: float | None, reward: str = "reward", *, measured_s: float = _LINE_S) -> str:
    """The state of a run in words. `rate` is how many rollouts finish in a second; None if the run has ended.

    What was measured for less than a minute is no rate per minute.
    """
    parts = [f"{state.done}/{state.total} ({state.done / state.total:.0%})" if state.total else str(state.done)]
    if rate is not None:
        in_s = rate >= 1 or not rate or measured_s < _LINE_S
        parts.append(f"{rate:.3g}/s" if in_s else f"{rate * 60:.3g}/min")
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
    """The state of a run while it goes on: a bar where one can move, else lines."""
    first = state()
    bar = _has_bar()
    shown: Shown = Progress(first.total, first.done, title=title) if bar else ProgressLines(first.done, title=title)

    async def keep_showing() -> None:
        while True:
            await asyncio.sleep(shown.every_s)
            shown.show(state())

    task = asyncio.create_task(keep_showing())
    try:
        with logging_redirect_tqdm(tqdm_class=ProgressBar) if bar else nullcontext():
            yield shown
    finally:
        task.cancel()
        shown.show(state())
        shown.close()
