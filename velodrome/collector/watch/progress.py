"""The progress bar, in a terminal or a notebook: how far, how fast, the mean reward so far, and how many failed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

from tqdm.auto import tqdm


class ProgressBar(tqdm):  # type: ignore[type-arg]
    """A bar without tqdm's monitor, a thread that would outlive it."""

    monitor_interval = 0


class Progress:
    """A bar that is drawn when `show` is called; a collector calls it a few times per second, not once per rollout."""

    def __init__(self, total: int, done: int, *, title: str = "Collecting rollouts") -> None:
        self._reward = "new rollouts' reward" if done else "reward"
        self._bar = ProgressBar(
            total=total, initial=done, desc=title, unit="it", file=sys.stderr, mininterval=0, dynamic_ncols=True
        )
        drawn = sys.stderr.isatty() or tqdm.__module__ == "tqdm.notebook"
        self.every_s = 0.2 if drawn else 10.0

    def show(self, done: int, failed: int, reward: float | None, total: int) -> None:
        """Draw the bar again."""
        notes = [] if reward is None else [f"{self._reward} {reward:.3f}"]
        if failed:
            notes.append(f"{failed} failed")
        self._bar.n, self._bar.total = done, total
        self._bar.set_postfix_str(", ".join(notes), refresh=False)
        self._bar.refresh()

    def note(self, text: str) -> None:
        """Lines above the bar."""
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
