"""Which executor a run has: attempts in this process, in worker processes, or in actors of a Ray cluster."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velodrome import scope
from velodrome.collector.collector import Collector
from velodrome.collector.executors.executor import Executor
from velodrome.collector.executors.inline import Inline
from velodrome.collector.executors.outage import Outage
from velodrome.collector.settings import SharedSettings
from velodrome.collector.work import Work
from velodrome.errors import InputError
from velodrome.http.limiter import Share
from velodrome.machine import cores
from velodrome.rates import limited, make_rates
from velodrome.wings import wing

if TYPE_CHECKING:
    from velodrome.collector.executors.worker import WorkerSettings
    from velodrome.collector.executors.workers import StartWorker


@dataclass(frozen=True)
class WorkerPlace:
    """Where rollouts run: in so many workers that `open` starts, or without it in this process."""

    workers: int
    open: Callable[[Work, WorkerSettings], AbstractAsyncContextManager[StartWorker]] | None = None


@asynccontextmanager
async def make_place(settings: SharedSettings) -> AsyncIterator[WorkerPlace]:
    """Where the rollouts of a run are made, for as long as the block runs."""
    if settings.executor == "local":
        if settings.ray_address is not None or settings.ray_actors != "auto":
            raise InputError("ray_address and ray_actors go with executor=ray; add it, or leave them out")
        workers = _count(settings)
        if workers == 1:
            yield WorkerPlace(1)
        else:
            from velodrome.collector.executors.workers import worker_processes

            yield WorkerPlace(workers, worker_processes)
        return
    if settings.workers != 1:
        raise InputError("num_workers is for processes of this machine; with executor=ray it is ray_actors")
    async with wing("ray_executor").open_place(settings) as place:
        yield place


def _count(settings: SharedSettings) -> int:
    """How many processes; 1 is this one alone."""
    if settings.workers != "auto":
        return settings.workers
    return cores() if settings.parallel == "auto" else min(cores(), settings.parallel)


@asynccontextmanager
async def make_executor(collector: Collector, work: Work, place: WorkerPlace) -> AsyncIterator[Executor]:
    """The executor for as long as the block runs."""
    settings, workers = collector.settings, place.workers
    if place.open is None:
        outage = Outage(settings.server_wait_s, collector.note, collector.stop.request)
        run_job = work.connect(collector.around)
        with limited(make_rates(settings.requests_per_minute, settings.tokens_per_minute)):
            yield Inline(run_job, outage, limit=collector.pace.limit, around=collector.around)
        return
    from velodrome.collector.executors.worker import WorkerSettings
    from velodrome.collector.executors.workers import Workers

    for_workers = WorkerSettings(
        Share(0, workers),
        settings.server_wait_s,
        scope.connections,
        logging.getLogger().getEffectiveLevel(),
        settings.requests_per_minute,
        settings.tokens_per_minute,
    )
    async with place.open(work, for_workers) as start:
        executor = Workers(
            start,
            workers,
            limit=collector.pace.limit,
            around=collector.around,
            note=collector.note,
            expire=collector.stop.request,
        )
        try:
            yield executor
        finally:
            await executor.aclose()
