"""A training on a terminal: its dashboard, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from types import FrameType

from velodrome.timing.stop_signals import StopSignals
from velodrome.training.run.dashboard import Dashboard
from velodrome.training.settings import RunSettings


def make_dashboard(settings: RunSettings) -> Dashboard | None:
    """The dashboard of a run on stderr, if its settings want one."""
    return Dashboard(sys.stderr, settings.trainer.total_timesteps) if settings.output.dashboard else None


class Interrupt:
    """Ctrl-C or SIGTERM once: stop after this epoch. Twice: at once."""

    def __init__(
        self, say: Callable[[str], None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._signals = StopSignals(clock=clock)
        self.requested = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals inside, as only a main thread can. What an environment prints goes to stderr."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._receive)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._signals.counts(number):
            return
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._say:
            with suppress(RuntimeError):  # the same stream is being written to
                self._say("stopping after this epoch; once more stops at once")
