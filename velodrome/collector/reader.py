"""The collector reads its own rows: the metrics, what may be wrong with them, and where the time went.

Many at a time, because the code that reads them is quicker in a row than between other things.
"""

from __future__ import annotations

from typing import Any

from velodrome.checks import WHILE_COLLECTING, Checks
from velodrome.profiling.profile import Profile
from velodrome.profiling.profile_text import profile_tree
from velodrome.records.facts import RowFacts
from velodrome.stats.metrics import Tally

Json = dict[str, Any]

_AT_ONCE = 256
_BYTES_AT_ONCE = 1_000_000  # rows can be large, and are held until they are read


class Reader:
    """What the rows so far say; `profiled` unless they tell of another run."""

    def __init__(self, where: str, *, by_task: bool, profiled: bool) -> None:
        self.tally = Tally(by_task=by_task)
        self.checks = Checks(WHILE_COLLECTING, by_task=by_task)
        self.profile = Profile(where) if profiled else None
        self._waiting: list[tuple[Json, int]] = []  # kept rows with their size; failures with none, in their order
        self._bytes = 0

    def add(self, row: Json, size: int) -> None:
        """One kept rollout of so many bytes."""
        self._take(row, size)

    def fail(self, failure: Json) -> None:
        """One failed attempt."""
        self._take(failure, 0)

    def _take(self, row: Json, size: int) -> None:
        self._waiting.append((row, size))
        self._bytes += size
        if len(self._waiting) >= _AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self.up_to_date()

    def up_to_date(self) -> Reader:
        """Itself, with nothing waiting to be read."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for row, size in waiting:
            facts = RowFacts(row, size=size, failed=not size)
            if size:
                self.tally.add(facts)
                self.checks.add(facts)
            else:
                self.checks.fail(facts)
        profile = self.profile
        if profile is not None:
            for row, size in waiting:
                if size:
                    profile.add(row, size=size)
                else:
                    profile.fail(row)
        return self

    def tree(self) -> str:
        """Where the time of the rollouts so far went; nothing if they tell of another run."""
        self.up_to_date()
        if self.profile is None:
            return ""
        return profile_tree({"rollouts": self.profile.rollouts, "tree": self.profile.tree()})
