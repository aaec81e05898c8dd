"""Workers that are actors of a Ray cluster: `executor=ray`.

An actor runs a worker. Jobs are sent to it as calls, and its finished rollouts are a stream of objects. Ray repeats no
call and restarts no actor by itself: an actor that is lost ends its worker, whose jobs run again in a new actor
(`collector/executors/workers.py`). Knows nothing of tasks, rows or files.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

from velodrome.collector.executors.frames import frame
from velodrome.collector.executors.worker import WorkerCore, WorkerSettings
from velodrome.collector.executors.workers import GRACE_S, StartWorker, WorkerLink
from velodrome.collector.settings import SharedSettings
from velodrome.collector.work import Work, packed
from velodrome.errors import InputError, describe
from velodrome.http.limiter import Share

_REACH_S = 10.0  # for a cluster to answer at its address
_BATCH_S = 0.005  # how long a finished rollout waits for others
_NOT_SENT = [".[!.]*", "__pycache__", "venv", "node_modules", "*.jsonl", "*.jsonl.zst"]  # to nodes, as in a .gitignore


@asynccontextmanager
async def open_cluster(settings: SharedSettings) -> AsyncIterator[tuple[int, Any]]:
    """Connect to the cluster at `ray_address` while the block runs: how many actors, and what starts them."""
    address = settings.ray_address or "auto"
    if address != "auto":
        await asyncio.to_thread(_refuse_unreachable, address)
    with redirect_stdout(sys.stderr), _connected(address):  # Ray prints there what happens to its processes
        import ray

        cpus = int(ray.cluster_resources().get("CPU", 0))
        most = cpus if settings.parallel == "auto" else settings.parallel
        count = max(min(cpus, most), 1) if settings.ray_actors == "auto" else settings.ray_actors
        yield count, partial(ray_workers, 1.0 if count <= cpus else 0.0)


@asynccontextmanager
async def ray_workers(cpus_each: float, work: Work, settings: WorkerSettings) -> AsyncIterator[StartWorker]:
    """Starts workers in actors. Components that are shared are served from here as long as the block runs."""
    import ray

    async with packed(work, str(ray.util.get_node_ip_address())) as data:
        stored = ray.put(data)
        make = ray.remote(RolloutActor).options(num_cpus=cpus_each, scheduling_strategy="SPREAD")

        async def start(number: int) -> WorkerLink:
            own = replace(settings, share=Share(number, settings.share.count))
            return _ActorLink(make.remote(), own, stored)

        yield start


class _ActorLink:
    """A link to the actor that runs a worker."""

    def __init__(self, actor: Any, settings: WorkerSettings, work: Any) -> None:
        self.ending: str | None = None
        self._actor = actor
        self._batches = actor.run.options(num_returns="streaming").remote(version("velodrome"), settings, work)
        self._frames: list[bytes] = []  # received, the last one first
        self._unsent: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Send a frame, in one call with others of this turn of the loop."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        frames, self._unsent = self._unsent, []
        if self.ending is None:
            self._actor.feed.remote(frames)

    async def receive(self) -> bytes | None:
        """The next frame; None once the actor is lost, or ended its worker."""
        from ray.exceptions import RayError, RuntimeEnvSetupError

        while not self._frames and self.ending is None:
            try:
                self._frames = (await (await anext(self._batches)))[::-1]
            except StopAsyncIteration:
                self.ending = "its worker gave up"
            except RuntimeEnvSetupError as error:
                raise InputError(f"ray: the code cannot be sent to a node: {_last_line(error)}") from error
            except RayError as error:
                self.ending = f"a lost actor: {_last_line(error)}"
        return self._frames.pop() if self._frames else None

    async def close(self, grace_s: float = GRACE_S) -> None:
        """Give up what it runs and end it."""
        import ray

        try:
            if self.ending is None:
                with suppress(Exception):  # it is killed anyway
                    await asyncio.wait_for(self._actor.end.remote(), grace_s)
        finally:
            ray.kill(self._actor)


class RolloutActor:
    """A worker in a process of Ray's."""

    def __init__(self) -> None:
        gc.set_threshold(50_000, 20, 20)
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._core = WorkerCore(self._frames.put_nowait, _no_wait, _refusal)
        self._work: asyncio.Task[None] | None = None

    async def run(self, wanted: str, settings: WorkerSettings, work: bytes) -> AsyncIterator[list[bytes]]:
        """Run the worker; its frames, in batches, soon after each."""
        if wanted != version("velodrome"):
            problem = f"a node has velodrome {version('velodrome')}, but {wanted} is here"
            yield [frame(refused=[f"ray: {problem}; hint: install the same version on every node"])]
            return
        self._work = asyncio.create_task(self._core.run(settings, work))
        self._work.add_done_callback(lambda _: self._frames.put_nowait(None))
        while (first := await self._frames.get()) is not None:
            await asyncio.sleep(_BATCH_S)
            more = [self._frames.get_nowait() for _ in range(self._frames.qsize())]
            yield [each for each in (first, *more) if each is not None]
            if None in more:
                break
        self._work.result()

    async def feed(self, frames: list[bytes]) -> None:
        """Take frames."""
        for each in frames:
            self._core.feed(each)

    async def end(self) -> None:
        """Give up what runs, and close the components."""
        self._core.end()
        if self._work is not None:
            await asyncio.wait([self._work])


async def _no_wait() -> None:
    """Frames wait in the actor; there are never more than the rollouts it was given."""


def _refusal(reason: str) -> str:
    from ray.util import get_node_ip_address

    return f"ray: node {get_node_ip_address()}: {reason}; hint: what your code imports must be on every node"


@contextmanager
def _connected(address: str) -> Iterator[None]:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    try:
        import ray
    except ImportError as error:
        raise InputError(
            f"executor: ray is not installed ({describe(error)}); hint: pip install 'velodrome[ray]'"
        ) from None
    if ray.is_initialized():
        raise InputError("ray: this process is connected to a cluster already; hint: call ray.shutdown() before")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        code = {"working_dir": os.getcwd(), "excludes": _NOT_SENT}
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, runtime_env=code)
    except Exception as error:
        ray.shutdown()
        raise InputError(f"ray: no connection: {' '.join(str(error).split())[:500]}") from error
    finally:
        with suppress(ValueError):  # Ray's own handler, which it sets in the main thread, ends this process at once
            signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_unreachable(address: str) -> None:
    """Ray itself would wait for minutes, and end the process."""
    host, colon, port = address.rpartition(":")
    if "://" in address or not (host and colon and port.isdigit()):
        raise InputError(f"ray_address: expected the host:port of a cluster's head node, or auto, not {address!r:.80}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"ray_address {address}: no Ray cluster answers there ({describe(error)}); "
            f"hint: see `ray status --address {address}`"
        ) from None


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else describe(error)
