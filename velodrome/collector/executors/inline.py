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
_LAST_WAIT_S = 0.1


class Inline(Executor):
    """One task per attempt. `attempt` runs one job; an exception from it is a bug, and ends the run.

    `dropped` is called with a job that was cancelled, or was waiting for a server when the run stopped.
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
        """Cancel the attempts in flight; their sessions are closed."""
        if now and self._scope is not None:
            self._scope.hurry()
        super().cancel(now=now)

    async def begin(self) -> None:
        """Let the run wait for unreachable servers, not each call."""
        self._scope = scope.current()
        if self._scope is not None:
            self._scope.waits_for_servers = True

    def _start(self, jobs: Jobs) -> None:
        around = self._around
        while (job := self._next(jobs)) is not None:
            around["limit"], around["in_flight"] = self.limit, self.in_flight
            task = asyncio.create_task(self._run(job))
            self._tasks[task] = job
            task.add_done_callback(self._task_ended)

    async def aclose(self) -> None:
        """Cancel the attempts in flight."""
        await self._outage.aclose()
        await give_up(self._tasks)
        await scope.finish_tasks()

    async def _run(self, job: Job) -> None:
        """Run a job, again after each outage of a server; the job is dropped if the run stops meanwhile."""
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
            self._returned_count += 1
            self._dropped(job)
        except asyncio.CancelledError:
            self._dropped(job)
            raise

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            self._returned_count += 1
        else:
            error = task.exception()  # always read: asyncio prints an exception that is never read
            self._error = self._error or error
        if not self._tasks or self._error is not None:
            self.wake()


async def give_up(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks, wait, and cancel once more: a task that does not end must not hold up the run."""
    remaining = set(tasks)
    try:
        for _ in range(2):
            if not remaining:
                return
            _cancel(remaining)
            _, remaining = await asyncio.wait(remaining, timeout=CLOSING_S)
    except asyncio.CancelledError:
        _cancel(remaining)
        await asyncio.wait(remaining, timeout=_LAST_WAIT_S)
        raise


def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
