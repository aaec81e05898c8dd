"""What a run may use up: tokens, time, failures. Reaching one stops it cleanly; the same command goes on."""

from __future__ import annotations

from dataclasses import dataclass

_ENOUGH = 20  # finished rollouts before a share of failures means anything


@dataclass(frozen=True)
class Budget:
    """Limits of one run. `max_failures` below 1 is a share, from 1 on a count, and 0 tolerates none."""

    max_total_tokens: int | None = None
    max_wall_s: float | None = None
    max_failures: float | None = None

    def reached(self, *, tokens: int, kept: int, failed: int) -> str | None:
        """The limit that is used up, in words, or None."""
        if self.max_total_tokens is not None and tokens >= self.max_total_tokens:
            return f"max_total_tokens={self.max_total_tokens} reached ({tokens} tokens)"
        if self.max_failures is None or not failed:
            return None
        if 0 < self.max_failures < 1:
            finished = kept + failed
            if finished >= _ENOUGH and failed > self.max_failures * finished:
                return f"max_failures={self.max_failures:g} reached ({failed} of {finished} failed)"
        elif failed > self.max_failures:
            return f"max_failures={self.max_failures:g} reached ({failed} failed)"
        return None
