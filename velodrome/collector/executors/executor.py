"""Where attempts run. An executor takes jobs and hands back finished attempts; everything else is its caller's.

The caller plans, writes, counts, paces and stops. It sets `limit`, calls `stop` and `cancel`, and takes batches from
`run`. An attempt that is handed back is complete: its line is encoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from time import perf_counter
from typing import Any, Protocol

from velodrome.collector.attempt import Attempt
from velodrome.collector.plan import Job

Json = dict[str, Any]

_LEAST_READ_S = 1e-4  # that is worth a field of the row


class Jobs(Protocol):
    """The jobs that are left. `take` gives the next one, None if there is none now; `ended`: whether that is final."""

    @property
    def ended(self) -> bool: ...

    def take(self) -> Job | None: ...


class Executor:
    """Runs jobs, `limit` at a time. A new job starts only after the attempts before it were taken.

    Where attempts run is up to `Inline` and `Workers`: they start jobs, and put what comes back into `_finished`.
    `around` is written into the rows.
    """

    def __init__(self, *, limit: int, around: Json | None = None) -> None:
        self.limit = limit
        self._around = {} if around is None else around
        self._finished: list[Attempt] = []
        self._started = self._handed_back = 0
        self._stopping = self._cancelled = False
        self._error: BaseException | None = None
        self._woken: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """Attempts that were started and not handed back yet."""
        return self._started - self._handed_back

    async def run(self, jobs: Jobs) -> AsyncGenerator[list[Attempt], None]:
        """Batches of finished attempts until there are no jobs, or until it is stopped. Closing it cancels the rest."""
        try:
            await self.begin()
            while not self._cancelled:
                self._start(jobs)
                if not self.in_flight and (self._stopping or jobs.ended):
                    return
                await self._until_woken()
                if self._finished:
                    yield self.finished()
        finally:
            await self.aclose()

    async def _until_woken(self) -> None:
        """Wait for something to do. Raises the fault that ended what runs the jobs, if there is one."""
        if not self._finished and self._error is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        """Look for work again: a job arrived, or the limit rose."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def stop(self) -> None:
        """Start no more jobs. What is in flight finishes."""
        self._stopping = True
        self.wake()

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight. Its sessions are closed; `now` leaves a moment for that."""
        self._stopping = self._cancelled = True
        self.wake()

    def finished(self) -> list[Attempt]:
        """Take what has finished and was not handed back; a caller that is cancelled still writes it."""
        batch, self._finished = self._finished, []
        self._handed_back += len(batch)
        self._around["in_flight"] = self.in_flight
        return batch

    def _next(self, jobs: Jobs) -> Job | None:
        """The next job, which counts as started; None if there is none now, or no room for it."""
        if self.in_flight >= self.limit or self._stopping:
            return None
        began = perf_counter()
        job = jobs.take()
        read_s = perf_counter() - began
        self._around.pop("read_s", None)
        if read_s >= _LEAST_READ_S:
            self._around["read_s"] = round(read_s, 6)
        self._started += job is not None
        return job

    def _start(self, jobs: Jobs) -> None:
        """Start as many jobs as there is room for."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Get ready to run jobs, or raise what prevents it. Beginning twice is fine."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Give up what is in flight, if anything is. Closing twice is fine."""
        raise NotImplementedError
