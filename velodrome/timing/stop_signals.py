"""Ctrl-C and SIGTERM, each counted once even if it is delivered twice.

`uv run` forwards signals that its child has already received: Ctrl-C 0.2 s later if its stdin is not a terminal,
SIGTERM at once under `timeout` or in a container. So a repeated signal within a second is a copy.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType

_SAME_S = 1.0


class StopSignals:
    """Distinguishes signals from their copies."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: dict[int, float] = {}

    def counts(self, number: int) -> bool:
        """Whether a signal that arrives now is a new one."""
        now = self._clock()
        if now - self._counted.get(number, -inf) < _SAME_S:
            return False
        self._counted[number] = now
        return True

    def pass_over(self, number: int) -> None:
        """From now on, ignore copies of a counted signal; a new signal has its current effect."""
        if number not in self._counted:
            return
        before = signal.getsignal(number)

        def arrived(number: int, frame: FrameType | None) -> None:
            if self.counts(number):
                signal.signal(number, before)
                signal.raise_signal(number)

        signal.signal(number, arrived)


@contextmanager
def on_stop_signal(
    react: Callable[[], None], numbers: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Inside, the running loop calls `react` for each signal. Later copies of the last one are ignored."""
    loop, signals, caught = asyncio.get_running_loop(), StopSignals(), []

    def arrived(number: int) -> None:
        if signals.counts(number):
            react()

    for number in numbers:
        with suppress(ValueError, RuntimeError):  # only the main thread can handle signals
            loop.add_signal_handler(number, arrived, number)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
            signals.pass_over(number)
