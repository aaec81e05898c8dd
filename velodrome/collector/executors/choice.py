"""Chooses the executor of a run: this process, worker processes, or actors of a Ray cluster."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

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


@asynccontextmanager
async def make_executor(collector: Collector, work: Work) -> AsyncIterator[Executor]:
    """The executor of a run, open while the block runs."""
    settings = collector.settings
    async with AsyncExitStack() as stack:
        if settings.executor == "ray":
            if settings.workers != 1:
                raise InputError("num_workers is for processes of this machine; with executor=ray it is ray_actors")
            count, open_workers = await stack.enter_async_context(wing("ray_executor").open_cluster(settings))
        elif settings.ray_address is not None or settings.ray_actors != "auto":
            raise InputError("ray_address and ray_actors go with executor=ray; add it, or leave them out")
        elif (count := _processes(settings)) == 1:
            outage = Outage(settings.server_wait_s, collector.note, collector.stop.request)
            run_job = work.connect(collector.around)
            stack.enter_context(limited(make_rates(settings.requests_per_minute, settings.tokens_per_minute)))
            yield Inline(run_job, outage, limit=collector.pace.limit, around=collector.around)
            return
        else:
            from velodrome.collector.executors.workers import worker_processes as open_workers
        from velodrome.collector.executors.worker import WorkerSettings
        from velodrome.collector.executors.workers import Workers

        for_workers = WorkerSettings(
            Share(0, count),
            settings.server_wait_s,
            scope.connections,
            logging.getLogger().getEffectiveLevel(),
            settings.requests_per_minute,
            settings.tokens_per_minute,
        )
        executor = Workers(
            await stack.enter_async_context(open_workers(work, for_workers)),
            count,
            limit=collector.pace.limit,
            around=collector.around,
            note=collector.note,
            expire=collector.stop.request,
        )
        stack.push_async_callback(executor.aclose)
        yield executor


def _processes(settings: SharedSettings) -> int:
    """How many processes run rollouts; 1 is this process alone."""
    if settings.workers != "auto":
        return settings.workers
    return cores() if settings.parallel == "auto" else min(cores(), settings.parallel)
