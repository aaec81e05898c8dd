"""Which executor a run has: attempts in this process, or in workers."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from velodrome import scope
from velodrome.collector.collector import Collector
from velodrome.collector.executors import Executor
from velodrome.collector.executors.inline import Inline
from velodrome.collector.executors.outage import Outage
from velodrome.collector.settings import SharedSettings
from velodrome.collector.work import Work


def count_workers(settings: SharedSettings) -> int:
    """How many worker processes; 1 is none beside this process."""
    if settings.workers != "auto":
        return settings.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if settings.parallel == "auto" else min(cores, settings.parallel)


@asynccontextmanager
async def make_executor(collector: Collector, work: Work, workers: int) -> AsyncIterator[Executor]:
    """The executor for as long as the block runs."""
    settings, watched = collector.settings, bool(collector.watchers)
    if workers == 1:
        outage = Outage(settings.server_wait_s, collector.note, collector.stop.request)
        run_job = work.connect(collector.around)
        yield Inline(run_job, outage, limit=collector.pace.limit, around=collector.around, numbered=watched)
        return
    from velodrome.collector.executors.processes import worker_processes
    from velodrome.collector.executors.worker import WorkerInit
    from velodrome.collector.executors.workers import Workers

    most = scope.connections
    share = scope.PoolLimits(max(most.limit // workers, 1), max(most.limit_per_host // workers, 1))
    init = WorkerInit(work, workers, settings.server_wait_s, watched, share, logging.getLogger().getEffectiveLevel())
    async with worker_processes(init) as start:
        yield Workers(
            start,
            workers,
            limit=collector.pace.limit,
            around=collector.around,
            numbered=watched,
            note=collector.note,
            expire=collector.stop.request,
        )
