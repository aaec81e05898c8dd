"""The bar on stderr: how far, how fast, the mean reward so far, and how many failed."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm


class Progress:
    """A bar that is drawn when `show` is called; a collector calls it a few times a second, not once a rollout."""

    def __init__(self, total: int, done: int, *, what: str = "Collecting rollouts") -> None:
        self._reward = "new rollouts' reward" if done else "reward"
        self._bar = tqdm(
            total=total, initial=done, desc=what, unit="it", file=sys.stderr, mininterval=0, dynamic_ncols=True
        )
        self.every_s = 0.2 if sys.stderr.isatty() else 10.0

    def show(self, done: int, failed: int, reward: float | None) -> None:
        """Draw the bar anew."""
        notes = [] if reward is None else [f"{self._reward} {reward:.3f}"]
        if failed:
            notes.append(f"{failed} failed")
        self._bar.n = done
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
