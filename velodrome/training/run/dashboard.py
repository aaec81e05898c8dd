"""Progress on the terminal: steps, speed, losses, return and the share of time of each part.

On a terminal it is one block that is redrawn; elsewhere, and with TERM=dumb, a line every ten seconds. It only reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from velodrome.timing.report import counted, figure, speaks_unicode
from velodrome.timing.screen import redraws, screen_width

if TYPE_CHECKING:  # it needs torch, and this is imported before
    from velodrome.training.run.time_account import TimeAccount

_EVERY_S, _LINE_EVERY_S = 0.5, 10.0
_BAR = 28
_PATIENCE_S = 2.0
_PARTS = (
    ("student forward", "rollout/student_forward"),
    ("teacher", "rollout/teacher"),
    ("environment", "rollout/environment"),
    ("store", "rollout/replay_store"),
    ("forward", "update/forward"),
    ("backward", "update/backward"),
    ("optimizer", "update/optimizer"),
)
_SHOWN = ("loss", "agreement", "entropy", "approx_kl", "clip_fraction", "explained_variance")
_RETURN = "rollout_return"  # reported only when an episode has ended; the last one is shown until then


@contextmanager
def announced(say: Callable[[str], None], text: str) -> Iterator[None]:
    """Say what is going on if it takes more than two seconds, and every ten seconds for how long."""
    over, began = threading.Event(), time.monotonic()

    def keep_saying() -> None:
        if not over.wait(_PATIENCE_S):
            say(text)
        while not over.wait(_LINE_EVERY_S):
            say(f"{text}; {time.monotonic() - began:.0f} s so far")

    thread = threading.Thread(target=keep_saying, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Dashboard:
    """Shows a run to one stream. `show` is called after every epoch and draws now and then."""

    def __init__(self, stream: IO[str], total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._total = total
        self._clock = clock
        self._live = redraws(stream)
        self._unicode = speaks_unicode(stream)
        self._next = clock() + (0.0 if self._live else _LINE_EVERY_S)
        self._drawn = 0
        self._return = ""

    def show(self, step: int, phase: str, account: TimeAccount, stats: Mapping[str, float]) -> None:
        """Draw, if it is time to."""
        if _RETURN in stats:
            over = counted(int(stats["episodes"]), "episode")
            self._return = f"return in rollouts {figure(stats[_RETURN])} (sampled, {over})"
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_EVERY_S if self._live else _LINE_EVERY_S)
        if self._live:
            width = screen_width(self._stream) - 1  # a wrapped line would be two
            numbers = self._numbers(stats)
            while len("  ".join(numbers)) > width:
                numbers.pop()  # whole ones only
            self._draw([self._progress(step, phase, account), "  ".join(numbers), *self._shares(account)], width)
        else:
            self._stream.write(f"{'  '.join([self._progress(step, phase, account), *self._numbers(stats)])}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the block, to make room for another line."""
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._stream.flush()
            self._drawn = 0

    def above(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """`say` with the block removed first."""

        def say_above(text: str) -> None:
            self.clear()
            say(text)

        return say_above

    def _draw(self, lines: list[str], width: int) -> None:
        self.clear()
        self._stream.write("\n".join(line[:width] for line in lines) + "\n")
        self._stream.flush()
        self._drawn = len(lines)

    def _progress(self, step: int, phase: str, account: TimeAccount) -> str:
        share = min(step / self._total, 1.0)
        return f"{phase:<10} {step:>12,} of {self._total:,} steps ({share:4.0%})  {account.sps(phase):>10,.0f} steps/s"

    def _numbers(self, stats: Mapping[str, float]) -> list[str]:
        shown = [f"{name} {figure(stats[name])}" for name in _SHOWN if name in stats]
        return list(filter(None, [*shown[:1], self._return, *shown[1:]]))

    def _shares(self, account: TimeAccount) -> list[str]:
        spent = account.whole
        whole = spent.sum_s("rollout") + spent.sum_s("update")
        if not whole:
            return []
        shares = [(name, spent.sum_s(path) / whole) for name, path in _PARTS]
        shares.append(("other", max(0.0, 1.0 - sum(share for _, share in shares))))
        full = "█" if self._unicode else "#"
        return [f"  {name:<16}{share:5.0%}  {full * round(share * _BAR)}" for name, share in shares if share >= 0.005]
