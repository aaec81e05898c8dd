"""Where attempts run. An executor takes jobs and returns finished attempts in batches.

Its caller plans, writes, counts, paces and stops: it sets `limit`, calls `stop` and `cancel`, and iterates over `run`.
A returned attempt is complete: its line is encoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from time import perf_counter
from typing import Any, Protocol

from velodrome.collector.attempt import Attempt
from velodrome.collector.plan import Job

Json = dict[str, Any]

_LEAST_READ_S = 1e-4  # shorter times are left out of the row


class Jobs(Protocol):
    """The jobs still to run. `take` returns the next job, or None if there is none now; `ended`: there will be none."""

    @property
    def ended(self) -> bool: ...

    def take(self) -> Job | None: ...


class Executor:
    """Runs jobs, `limit` at a time. New jobs start only after the caller has received the finished attempts.

    `Inline` and `Workers` decide where attempts run: they start jobs and append finished attempts to `_finished`.
    `around` is written into the rows.
    """

    def __init__(self, *, limit: int, around: Json | None = None) -> None:
        self.limit = limit
        self._around = {} if around is None else around
        self._finished: list[Attempt] = []
        self._started = self._returned_count = 0
        self._stopping = self._cancelled = False
        self._error: BaseException | None = None
        self._woken: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """The number of attempts that were started and not returned yet."""
        return self._started - self._returned_count

    async def run(self, jobs: Jobs) -> AsyncGenerator[list[Attempt], None]:
        """Yield batches of finished attempts until there are no jobs, or until `stop`. Closing it cancels the rest."""
        try:
            if not jobs.ended:
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
        """Wait until `wake` is called, or raise the error that ended the workers or a task."""
        if not self._finished and self._error is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        """Look for work again: a job arrived, an attempt finished, or the limit rose."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def stop(self) -> None:
        """Start no more jobs. Attempts in flight finish."""
        self._stopping = True
        self.wake()

    def cancel(self, *, now: bool = False) -> None:
        """Cancel the attempts in flight. Their sessions are closed; `now` leaves only a moment for that."""
        self._stopping = self._cancelled = True
        self.wake()

    def finished(self) -> list[Attempt]:
        """Remove and return the finished attempts; a cancelled caller still writes them."""
        batch, self._finished = self._finished, []
        self._returned_count += len(batch)
        self._around["in_flight"] = self.in_flight
        return batch

    def _next(self, jobs: Jobs) -> Job | None:
        """Start the next job; None if there is no job now, or no room for it."""
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
        """Start jobs up to the limit."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Prepare to run jobs. May be called twice."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Cancel the attempts in flight. May be called twice."""
        raise NotImplementedError
