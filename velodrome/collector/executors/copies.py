"""Copies of the last rollouts of a run (`speculate`): which get one, which of the two attempts counts, what that costs.

When no job is left to start, a job that runs for more than twice as long as half of the others took gets one copy on
another worker. The first result counts, but a failure does not while the other attempt runs. The other is given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from math import inf
from statistics import median

_SHARE = 0.01  # of the rollouts of a run: so many copies run at once, and at least one
_TIMES = 2.0  # the median of what rollouts took
_LATELY = 1000  # rollouts whose time is remembered


class Copies:
    """The copies of a run. Jobs are known by their place in the plan."""

    def __init__(self, *, wanted: bool = False) -> None:
        self.wanted = wanted
        self.made = self.won = self.tokens = 0
        self._counted = 0  # of the tokens
        self._took: deque[float] = deque(maxlen=_LATELY)
        self._began: dict[int, float] = {}  # when each job began that runs and may get a copy, the oldest first
        self._holders: dict[int, Hashable] = {}  # which worker has the copy, or had it; None once both are gone
        self._twice: set[int] = set()  # jobs that run twice now
        self._decided: set[int] = set()

    @property
    def running(self) -> int:
        """How many run now."""
        return len(self._twice)

    def begin(self, place: int, now: float) -> None:
        """A job begins, or begins again."""
        if self.wanted:
            self._began.pop(place, None)
            self._began[place] = now

    def leave_out(self, place: int) -> None:
        """A job does not run any more, or must not be copied."""
        self._began.pop(place, None)
        if place in self._holders:
            self._holders[place] = None

    def due(self, now: float, started: int) -> tuple[int | None, float]:
        """The job to copy now; or None, and after how many seconds to ask again."""
        place = next((place for place in self._began if place not in self._holders), None)
        if place is None or not self._took or self.running >= max(1, started * _SHARE):
            return None, inf
        left_s = self._began[place] + _TIMES * median(self._took) - now
        return (place, 0.0) if left_s <= 0 else (None, left_s)

    def make(self, place: int, worker: Hashable) -> None:
        """This worker gets the copy."""
        self.made += 1
        self._holders[place] = worker
        self._twice.add(place)

    def is_lost(self, place: int, tokens: int, *, alone: bool) -> bool:
        """Whether an attempt that brought nothing is of no interest: its job is decided, or runs elsewhere."""
        self._twice.discard(place)
        if place not in self._holders or (alone and place not in self._decided):
            return False
        self.tokens += tokens
        return True

    def decided(self, place: int) -> bool:
        """Whether a job that had a copy has its result."""
        return place in self._decided

    def decide(self, place: int, worker: Hashable, took_s: float, *, kept: bool) -> None:
        """A job has its result, from this worker."""
        if self.wanted:
            self._began.pop(place, None)
            self._took.append(took_s)
            if place in self._holders:
                self._decided.add(place)
                self._twice.discard(place)
                self.won += kept and self._holders[place] == worker

    def uncounted(self) -> int:
        """The tokens of attempts that lost, since this was last called."""
        tokens, self._counted = self.tokens - self._counted, self.tokens
        return tokens

    def counts(self) -> dict[str, int]:
        """For the end of the run; nothing if no copies were wanted."""
        return {"made": self.made, "won": self.won, "tokens": self.tokens} if self.wanted else {}
