"""Which executor a run has: attempts in this process, in worker processes, or in actors of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from velodrome import scope
from velodrome.collector.collector import Collector
from velodrome.collector.executors import Executor
from velodrome.collector.executors.inline import Inline
from velodrome.collector.executors.outage import Outage
from velodrome.collector.settings import CollectSettings, SharedSettings
from velodrome.collector.work import Work
from velodrome.errors import InputError
from velodrome.rates import REQUESTS, TOKENS

if TYPE_CHECKING:
    from velodrome.collector.executors.worker import WorkerInit
    from velodrome.collector.executors.workers import WorkerLink


@dataclass(frozen=True)
class WorkerPlace:
    """Where rollouts run: in so many workers that `open` starts, or without it in this process."""

    workers: int
    open: Callable[[WorkerInit], AbstractAsyncContextManager[Callable[[], Awaitable[WorkerLink]]]] | None = None


@asynccontextmanager
async def make_place(settings: SharedSettings) -> AsyncIterator[WorkerPlace]:
    """Where the rollouts of a run are made, for as long as the block runs."""
    if isinstance(settings, CollectSettings) and settings.speculate:
        _refuse_copies(settings)
    if settings.executor == "local":
        if settings.ray_address is not None or settings.ray_actors != "auto":
            raise InputError("ray_address and ray_actors go with executor=ray; add it, or leave them out")
        workers = _count(settings, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
        if workers == 1:
            yield WorkerPlace(1)
        else:
            from velodrome.collector.executors.processes import worker_processes

            yield WorkerPlace(workers, worker_processes)
        return
    if settings.workers != 1:
        raise InputError("num_workers is for processes of this machine; with executor=ray it is ray_actors")
    from velodrome.collector.executors.ray_cluster import ray_cluster, refuse_without_ray

    refuse_without_ray()
    from velodrome.collector.executors.ray_actors import ray_workers

    most = None if settings.parallel == "auto" else settings.parallel
    async with ray_cluster(settings.ray_address, settings.ray_actors, most) as cluster:
        yield WorkerPlace(cluster.actors, partial(ray_workers, cluster=cluster))


def speculates(settings: SharedSettings) -> bool:
    """Whether the last rollouts get copies."""
    return isinstance(settings, CollectSettings) and settings.speculate


def _refuse_copies(settings: CollectSettings) -> None:
    """Raise if copies cannot be made."""
    if settings.executor == "local" and settings.workers == 1:
        raise InputError("speculate: copies run on another worker; add num_workers, or executor=ray")
    if settings.model_cache is not None and settings.model_cache_mode in ("record", "auto"):
        raise InputError(
            "speculate: a rollout and its copy would store different answers in model_cache; leave out one"
        )


def _count(settings: SharedSettings, cores: int | None) -> int:
    """How many processes; 1 is this one alone."""
    if settings.workers != "auto":
        return settings.workers
    return cores or 1 if settings.parallel == "auto" else min(cores or 1, settings.parallel)


@asynccontextmanager
async def make_executor(collector: Collector, work: Work, place: WorkerPlace) -> AsyncIterator[Executor]:
    """The executor for as long as the block runs."""
    settings, watched, workers = collector.settings, bool(collector.watchers), place.workers
    if speculates(settings) and workers == 1:
        collector.note("speculate: there is one worker here, so no copies are made")
    if place.open is None:
        outage = Outage(settings.server_wait_s, collector.note, collector.stop.request)
        run_job = work.connect(collector.around)
        yield Inline(run_job, outage, limit=collector.pace.limit, around=collector.around, numbered=watched)
        return
    from velodrome.collector.executors.worker import WorkerInit
    from velodrome.collector.executors.workers import Workers

    most = scope.connections
    share = scope.PoolLimits(max(most.limit // workers, 1), max(most.limit_per_host // workers, 1))
    rates = {REQUESTS: settings.requests_per_minute, TOKENS: settings.tokens_per_minute}
    level = logging.getLogger().getEffectiveLevel()
    init = WorkerInit(work, workers, settings.server_wait_s, watched, share, level, rates)
    async with place.open(init) as start:
        yield Workers(
            start,
            workers,
            limit=collector.pace.limit,
            around=collector.around,
            numbered=watched,
            note=collector.note,
            expire=collector.stop.request,
            speculate=speculates(settings),
        )
