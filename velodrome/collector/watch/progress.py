"""The progress bar, in a terminal or a notebook: how far, how fast, the mean reward so far, and how many failed."""

from __future__ import annotations

import sys
from types import TracebackType

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
