"""Attempts as tasks of this event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from velodrome import scope
from velodrome.collector.attempt import Attempt, Failed
from velodrome.collector.executors.executor import Executor, Jobs
from velodrome.collector.executors.outage import Outage
from velodrome.collector.plan import Job

Json = dict[str, Any]

CLOSING_S = 2.0
_MOMENT_S = 0.1


class Inline(Executor):
    """One task per attempt. `attempt` runs one job; only a fault of ours raises from it, and that ends the run.

    `dropped` gets a job that was given up, or waited for a server when the run was stopped.
    """

    def __init__(
        self,
        attempt: Callable[[Job], Awaitable[Attempt]],
        outage: Outage,
        *,
        limit: int,
        around: Json | None = None,
        dropped: Callable[[Job], None] = lambda job: None,
    ) -> None:
        super().__init__(limit=limit, around=around)
        self._dropped = dropped
        self._attempt = attempt
        self._outage = outage
        self._tasks: dict[asyncio.Task[None], Job] = {}
        self._scope: scope.Scope | None = None

    def stop(self) -> None:
        """Start no more jobs."""
        self._outage.stop()
        super().stop()

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight; sessions are closed."""
        if now and self._scope is not None:
            self._scope.hurry()
        super().cancel(now=now)

    async def begin(self) -> None:
        """Nothing has to be started."""
        self._scope = scope.current()
        if self._scope is not None:
            self._scope.waits_for_servers = True

    def _start(self, jobs: Jobs) -> None:
        around = self._around
        while (job := self._next(jobs)) is not None:
            around["limit"], around["in_flight"] = self.limit, self.in_flight
            task = asyncio.create_task(self._run(job))
            self._tasks[task] = job
            task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Give up what is in flight."""
        await self._outage.aclose()
        await give_up(self._tasks)
        await scope.finish_tasks()

    async def _run(self, job: Job) -> None:
        """Run one attempt until it reached its servers; nothing if the run stops before."""
        outage, unreachable, tokens = self._outage, None, 0
        try:
            while await outage.over():
                attempt = await self._attempt(job)
                away = attempt.result.away if isinstance(attempt.result, Failed) else None
                if unreachable is not None and (away is None or away.address != unreachable.address):
                    outage.returned(unreachable)
                if away is None or not await outage.explains(away):
                    attempt.tokens += tokens
                    self._finished.append(attempt)
                    self.wake()
                    return
                tokens += attempt.tokens
                outage.begin(unreachable := away)
            self._handed_back += 1
            self._dropped(job)
        except asyncio.CancelledError:
            self._dropped(job)
            raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            self._handed_back += 1
        else:
            error = task.exception()  # read from every task: the loop prints those that nobody reads
            self._error = self._error or error
        if not self._tasks or self._error is not None:
            self.wake()


async def give_up(tasks: Collection[asyncio.Task[None]]) -> None:
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
