"""Run jobs, a few at a time, and hand over what comes back.

A job that fails is handed over as a failure. It never becomes a reward of zero, and it never stops its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import Any, TypeVar

from velodrome.collector.pace import Pace

J = TypeVar("J")

CLOSING_S = 2.0
_LONGEST_TURN_S = 0.005


class Stop:
    """Why a run takes no new jobs. The first reason counts. `now` means: do not wait for what is in flight either."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._interrupted = False
        self._asked = asyncio.Event()
        self._now = asyncio.Event()

    def ask(self, reason: str) -> None:
        """Take no new jobs, and let what is in flight finish."""
        if self.reason is None:
            self.reason = reason
        self._asked.set()

    def interrupt(self) -> None:
        """Ctrl-C. The first one lets what is in flight finish, whoever asked to stop before; the second does not."""
        if self._interrupted:
            self._now.set()
        self._interrupted = True
        self.ask("interrupted")

    async def asked(self) -> None:
        """Return when somebody has asked to stop."""
        await self._asked.wait()

    async def too_late(self, drain_s: float) -> None:
        """Return when what is in flight has had its time."""
        await self._asked.wait()
        try:
            await asyncio.wait_for(self._now.wait(), drain_s)
        except TimeoutError:
            pass


async def run(
    jobs: Iterator[J], work: Callable[[J], Awaitable[bool]], pace: Pace, stop: Stop, *, drain_s: float
) -> bool:
    """Do all the work there is, `pace.limit` jobs at once. True unless jobs in flight had to be given up.

    `work` says whether the job met a rate limit. An exception from it ends the run: it is for faults of ours and of the
    disk, and a rollout's own failure is not one.
    """
    loop = asyncio.get_running_loop()
    active: set[asyncio.Task[Any]] = set()
    over: asyncio.Future[None] = loop.create_future()
    jobs, exhausted = _peekable(jobs)

    turned = 0.0

    async def worker() -> None:
        nonlocal turned
        for job in jobs:  # shared: a free worker takes the next job, so memory stays flat
            limited = await work(job)
            if perf_counter() - turned > _LONGEST_TURN_S:
                await asyncio.sleep(0)  # work that never waits would keep signals and timers from their turn
                turned = perf_counter()
            pace.finished(loop.time(), limited)
            if stop.reason is not None:
                return
            if len(active) > pace.limit:
                active.remove(own_task())  # now: workers that end together must not all count each other
                return
            if len(active) < pace.limit:
                start()

    def start() -> None:
        while len(active) < pace.limit and stop.reason is None and not exhausted():
            task = asyncio.create_task(worker())
            active.add(task)
            task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        active.discard(task)
        error = None if task.cancelled() else task.exception()
        if not over.done() and error is not None:
            over.set_exception(error)
        elif not over.done() and not active:
            over.set_result(None)

    start()
    if not active:
        return True
    deadline = asyncio.create_task(stop.too_late(drain_s))
    try:
        await asyncio.wait({over, deadline}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            return False
        over.result()
        return True
    finally:
        await give_up([*active, deadline])


async def give_up(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel, give closing a moment, then cancel that too: a session that will not close must not hold up the end."""
    for task in tasks:
        task.cancel()
    _, slow = await asyncio.wait(tasks, timeout=CLOSING_S)
    for task in slow:
        task.cancel()
    if slow:
        await asyncio.wait(slow, timeout=CLOSING_S)  # what swallows even that is left behind


def own_task() -> asyncio.Task[Any]:
    """The task that is running."""
    task = asyncio.current_task()
    assert task is not None
    return task


def _peekable(jobs: Iterator[J]) -> tuple[Iterator[J], Callable[[], bool]]:
    """The same jobs, and a way to ask whether there are any left."""
    waiting: list[J] = []
    ended = False

    def exhausted() -> bool:
        nonlocal ended
        if not waiting and not ended:
            try:
                waiting.append(next(jobs))
            except StopIteration:
                ended = True
        return ended and not waiting

    def rest() -> Iterator[J]:
        while not exhausted():
            yield waiting.pop()

    return rest(), exhausted
