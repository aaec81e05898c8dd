"""Attempts as tasks of this event loop."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import perf_counter
from typing import Any

from velodrome import scope
from velodrome.collector.account import Surroundings
from velodrome.collector.attempt import Attempt
from velodrome.collector.executors import Jobs
from velodrome.collector.executors.outage import Outage
from velodrome.collector.plan import Job

CLOSING_S = 2.0
_MOMENT_S = 0.1


class Inline:
    """One task per attempt. `attempt` runs one job; only a fault of ours raises from it, and that ends the run.

    `around` is written into the rows. `numbered` gives every attempt in flight the lowest free number, for a trace.
    `dropped` gets a job that waited for a server when the run was stopped.
    """

    def __init__(
        self,
        attempt: Callable[[Job], Awaitable[Attempt]],
        outage: Outage,
        *,
        limit: int,
        around: Surroundings | None = None,
        numbered: bool = False,
        dropped: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.limit = limit
        self._dropped = dropped
        self._attempt = attempt
        self._outage = outage
        self._around = around or Surroundings()
        self._slots = Slots() if numbered else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished: list[Attempt] = []
        self._started = self._handed_back = 0
        self._stopping = self._cancelled = False
        self._error: BaseException | None = None
        self._scope: scope.Scope | None = None
        self._woken: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """Attempts that were started and not handed back yet."""
        return self._started - self._handed_back

    async def run(self, jobs: Jobs) -> AsyncGenerator[list[Attempt], None]:
        """Batches of finished attempts."""
        self._scope = scope.current()
        if self._scope is not None:
            self._scope.waits_for_servers = True
        try:
            while not self._cancelled:
                self._start(jobs)
                if not self._tasks and not self._finished and (self._stopping or jobs.ended):
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
            await self._outage.aclose()
            await give_up(self._tasks)
            await scope.settle()

    def wake(self) -> None:
        """Look for something to do."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def stop(self) -> None:
        """Start no more jobs."""
        self._stopping = True
        self._outage.stop()
        self.wake()

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight; sessions are closed."""
        self._stopping = self._cancelled = True
        if now and self._scope is not None:
            self._scope.hurry()
        self.wake()

    def finished(self) -> list[Attempt]:
        """Take what has finished."""
        batch, self._finished = self._finished, []
        self._handed_back += len(batch)
        self._around.in_flight = self.in_flight
        return batch

    def _start(self, jobs: Jobs) -> None:
        around = self._around
        while self.in_flight < self.limit and not self._stopping:
            began = perf_counter()
            job = jobs.take()
            around.read_s += perf_counter() - began
            if job is None:
                return
            around.limit = self.limit
            self._started += 1
            around.in_flight = self.in_flight
            task = asyncio.create_task(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def _run(self, job: Job) -> None:
        """One attempt that reached its servers; nothing if the run stops before it could."""
        outage, unreachable, tokens = self._outage, None, 0
        slot = 0 if self._slots is None else self._slots.take()
        try:
            while await outage.over():
                attempt = await self._attempt(job)
                away = attempt.away
                if unreachable is not None and (away is None or away.address != unreachable.address):
                    outage.returned(unreachable)
                if away is None or not await outage.explains(away):
                    attempt.slot = slot
                    attempt.tokens += tokens
                    self._finished.append(attempt)
                    self.wake()
                    return
                tokens += attempt.tokens
                outage.begin(unreachable := away)
            self._handed_back += 1
            self._dropped(job)
        finally:
            if self._slots is not None:
                self._slots.give_back(slot)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._handed_back += 1
        else:
            self._error = self._error or task.exception()
        if not self._tasks or self._error is not None:
            self.wake()


async def give_up(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel, wait a moment, and cancel again: work that does not end must not hold up the run."""
    remaining = set(tasks)
    try:
        for _ in range(2):
            if not remaining:
                return
            _cancel(remaining)
            _, remaining = await asyncio.wait(remaining, timeout=CLOSING_S)
    except asyncio.CancelledError:
        _cancel(remaining)
        await asyncio.wait(remaining, timeout=_MOMENT_S)
        raise


def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


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
