"""What every executor does: hand back what has finished, in batches, until nothing is left or it is stopped.

Where attempts run is `inline.py`'s and `workers.py`'s business: they start jobs, and put what comes back into
`_finished`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator
from time import perf_counter

from velodrome.collector.account import Surroundings
from velodrome.collector.attempt import Attempt
from velodrome.collector.executors import Jobs
from velodrome.collector.executors.copies import Copies
from velodrome.collector.plan import Job


class RunningJobs:
    """The jobs of an executor. `around` is written into the rows.

    `numbered` gives every attempt in flight the lowest free number, for a trace.
    """

    def __init__(self, *, limit: int, around: Surroundings | None = None, numbered: bool = False) -> None:
        self.limit = limit
        self.copies = Copies()
        self._around = around or Surroundings()
        self._slots = Slots() if numbered else None
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
        """Batches of finished attempts."""
        self._begin()
        try:
            while not self._cancelled:
                self._start(jobs)
                if not self.in_flight and (self._stopping or jobs.ended):
                    return
                if not self._finished and self._error is None:
                    self._woken = asyncio.get_running_loop().create_future()
                    await self._woken
                if self._error is not None:
                    raise self._error
                if self._finished:
                    yield self.finished()
        finally:
            self._woken = None
            await self._end()

    def wake(self) -> None:
        """Look for something to do."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def stop(self) -> None:
        """Start no more jobs."""
        self._stopping = True
        self.wake()

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight; sessions are closed."""
        self._stopping = self._cancelled = True
        self.wake()

    def finished(self) -> list[Attempt]:
        """Take what has finished."""
        batch, self._finished = self._finished, []
        self._handed_back += len(batch)
        self._around.in_flight = self.in_flight
        return batch

    def _next(self, jobs: Jobs) -> Job | None:
        """The next job, which counts as started; None if there is none now, or no room for it."""
        if self.in_flight >= self.limit or self._stopping:
            return None
        began = perf_counter()
        job = jobs.take()
        self._around.read_s += perf_counter() - began
        self._started += job is not None
        return job

    def _begin(self) -> None:
        """Before the first job."""
        raise NotImplementedError

    def _start(self, jobs: Jobs) -> None:
        """Start as many jobs as there is room for."""
        raise NotImplementedError

    async def _end(self) -> None:
        """Give up what is in flight, if anything is."""
        raise NotImplementedError


class Slots:
    """Numbers for what is in flight: each attempt has the lowest that was free when it began."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._made = 0

    def take(self) -> int:
        """The lowest free number."""
        if self._free:
            return heapq.heappop(self._free)
        self._made += 1
        return self._made - 1

    def give_back(self, slot: int) -> None:
        """It is free again."""
        heapq.heappush(self._free, slot)
