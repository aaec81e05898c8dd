"""Where attempts run. An executor takes jobs and hands back finished attempts; everything else is its caller's.

The caller plans, writes, counts, paces and stops. It sets `limit`, calls `stop` and `cancel`, and takes batches from
`run`. An attempt that is handed back is complete: its line is encoded, and nobody parses it again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from velodrome.collector.attempt import Attempt
from velodrome.collector.executors.copies import Copies
from velodrome.collector.plan import Job


class Jobs(Protocol):
    """What is left to do. `take` gives the next job, or None if there is none now; `ended` says if that is final."""

    @property
    def ended(self) -> bool: ...

    def take(self) -> Job | None: ...


class Executor(Protocol):
    """Runs jobs, `limit` at a time. A new job starts only after the attempts before it were taken."""

    limit: int
    copies: Copies

    @property
    def in_flight(self) -> int:
        """Attempts that were started and not handed back yet."""
        ...

    def run(self, jobs: Jobs) -> AsyncGenerator[list[Attempt], None]:
        """Batches of finished attempts until there are no jobs, or until it is stopped. Closing it cancels the rest."""
        ...

    def wake(self) -> None:
        """There may be something to do: a job arrived, or the limit rose."""
        ...

    def stop(self) -> None:
        """Start no more jobs. What is in flight finishes."""
        ...

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight. Its sessions are closed; `now` leaves a moment for that."""
        ...

    def finished(self) -> list[Attempt]:
        """Take what has finished and was not handed back; a caller that is cancelled still writes it."""
        ...
