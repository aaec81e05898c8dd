"""Progress of a run in one line: phase, steps, speed, return and losses.

On a terminal it is redrawn twice a second; elsewhere, and with TERM=dumb, it is printed every ten seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from velodrome.timing.figures import counted, figure
from velodrome.timing.screen import redraws, screen_width

_EVERY_S, _LINE_EVERY_S = 0.5, 10.0
_PATIENCE_S = 2.0
_SHOWN = ("agreement", "entropy", "approx_kl", "clip_fraction", "explained_variance")
_RETURN = "rollout_return"  # reported only when an episode has ended; the last one is shown until then


def silent(_: Any) -> None:
    """Report nothing."""


def never() -> bool:
    """Never stop."""
    return False


@contextmanager
def announced(say: Callable[[str], None], text: str) -> Iterator[None]:
    """Say the text if it takes more than two seconds."""
    timer = threading.Timer(_PATIENCE_S, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Dashboard:
    """Shows a run to one stream. `show` is called after every epoch and draws now and then."""

    def __init__(self, stream: IO[str], total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._total = total
        self._clock = clock
        self._live = redraws(stream)
        self._next = clock() + (0.0 if self._live else _LINE_EVERY_S)
        self._drawn = False
        self._return: list[str] = []

    def show(self, stats: Mapping[str, Any]) -> None:
        """Draw the metrics of an epoch, if it is time to."""
        if _RETURN in stats:
            over = counted(int(stats["episodes"]), "episode")
            self._return = [f"return in rollouts {figure(stats[_RETURN])} (sampled, {over})"]
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_EVERY_S if self._live else _LINE_EVERY_S)
        share = min(stats["step"] / self._total, 1.0)
        words = [f"{stats['phase']:<10} {stats['step']:,} of {self._total:,} steps ({share:.0%})"]
        words += [f"{stats['sps']:,.0f} steps/s"]
        words += [f"loss {figure(stats['loss'])}", *self._return]
        words += [f"{name} {figure(stats[name])}" for name in _SHOWN if name in stats]
        if not self._live:
            self._stream.write("  ".join(words) + "\n")
        else:
            while len("  ".join(words)) >= screen_width(self._stream) and len(words) > 1:
                words.pop()  # whole ones only
            self._stream.write(f"\r\x1b[K{'  '.join(words)}")
            self._drawn = True
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line, to make room for another."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False

    def above(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """`say` with the line removed first."""

        def say_above(text: str) -> None:
            self.clear()
            say(text)

        return say_above
