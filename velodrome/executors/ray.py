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
import platform
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

from velodrome import errors
from velodrome.collector.executors.choice import WorkerPlace
from velodrome.collector.executors.frames import event
from velodrome.collector.executors.worker import WorkerCore, WorkerSettings
from velodrome.collector.executors.workers import GRACE_S, StartWorker, WorkerLink
from velodrome.collector.settings import SharedSettings
from velodrome.collector.work import Work, packed
from velodrome.errors import InputError, ServerError, describe
from velodrome.http.limiter import Share
from velodrome.serving.components import source_digest
from velodrome.serving.process.probe import listens

_REACH_S = 10.0  # for a cluster to answer at its address
_BATCH_S = 0.005  # how long a finished rollout waits for others
_WATCH_S = 2.0  # between two looks at the head node
_RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"  # after so long without the head Ray ends the process, by itself
_NOT_SENT = [".[!.]*", "__pycache__", "venv", "node_modules", "*.jsonl", "*.jsonl.zst"]  # to nodes, as in a .gitignore


@asynccontextmanager
async def open_place(settings: SharedSettings) -> AsyncIterator[WorkerPlace]:
    """Connect to the cluster at `ray_address`, or start one here, for as long as the block runs."""
    address = settings.ray_address
    values = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    options: dict[str, Any] = {"address": address, "runtime_env": {"working_dir": os.getcwd(), "excludes": _NOT_SENT}}
    if address is None:
        values |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        options = {"address": "local", "include_dashboard": False}
    elif address != "auto":
        await asyncio.to_thread(_refuse_unreachable, address)
    with ExitStack() as stack:
        stack.enter_context(_environment(values))
        stack.enter_context(redirect_stdout(sys.stderr))  # Ray prints there what happens to its processes
        stack.enter_context(_connected(**options))
        import ray

        cpus = int(ray.cluster_resources().get("CPU", 0))
        most = cpus if settings.parallel == "auto" else settings.parallel
        count = max(min(cpus, most), 1) if settings.ray_actors == "auto" else settings.ray_actors
        host = "127.0.0.1" if address is None else str(ray.util.get_node_ip_address())
        cluster = Cluster(host, 1.0 if count <= cpus else 0.0)
        watch = asyncio.create_task(_watch_head(ray.get_runtime_context().gcs_address, cluster.lost))
        try:
            yield WorkerPlace(count, partial(ray_workers, cluster))
        finally:
            watch.cancel()


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process, reached by actors at `host`, is connected to."""

    host: str
    cpus_each: float  # of an actor
    lost: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@asynccontextmanager
async def ray_workers(cluster: Cluster, work: Work, settings: WorkerSettings) -> AsyncIterator[StartWorker]:
    """Starts workers in actors. Components that are shared are served from here as long as the block runs."""
    import ray

    async with packed(work, cluster.host) as data:
        stored = ray.put(data)
        make = ray.remote(RolloutActor).options(num_cpus=cluster.cpus_each, scheduling_strategy="SPREAD")

        async def start(number: int) -> WorkerLink:
            own = replace(settings, share=Share(number, settings.share.count))
            return _ActorLink(make.remote(), own, stored, cluster.lost)

        yield start


class _ActorLink:
    """An actor that runs a worker, from its start to its loss."""

    def __init__(self, actor: Any, settings: WorkerSettings, work: Any, lost: asyncio.Future[None]) -> None:
        self.ending: str | None = None
        self._actor = actor
        self._lost = lost  # the cluster is, as an error
        self._batches = actor.run.options(num_returns="streaming").remote(versions(), settings, work)
        self._frames: list[bytes] = []  # received, the last one first
        self._unsent: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Send a frame, together with others of this moment."""
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
            batch = asyncio.ensure_future(self._next_batch())
            either: set[asyncio.Future[Any]] = {batch, self._lost}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                self._frames = (await batch if batch.done() else [])[::-1]
                if self._lost.done():
                    self._lost.result()
            except StopAsyncIteration:
                self.ending = "its worker gave up"
            except RuntimeEnvSetupError as error:
                raise InputError(f"ray: the code cannot be sent to a node: {_last_line(error)}") from error
            except RayError as error:
                self.ending = f"a lost actor: {_last_line(error)}"
            finally:
                batch.cancel()
        return self._frames.pop() if self._frames else None

    async def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = await (await anext(self._batches))
        return batch

    async def close(self, grace_s: float = GRACE_S) -> None:
        """Give up what it runs and end it. Without the head node only its own node can."""
        import ray

        if self._lost.done():
            return
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
        if wanted != versions():
            problem = f"a node has {versions()}, but {wanted} is here; hint: install the same versions on every node"
            yield [event(refused=[f"ray: {problem}"])]
            return
        self._work = asyncio.create_task(self._core.run(settings, work))
        self._work.add_done_callback(lambda _: self._frames.put_nowait(None))
        while (frame := await self._frames.get()) is not None:
            await asyncio.sleep(_BATCH_S)
            more = [self._frames.get_nowait() for _ in range(self._frames.qsize())]
            yield [each for each in (frame, *more) if each is not None]
            if None in more:
                break
        self._work.result()

    async def feed(self, frames: list[bytes]) -> None:
        """Take frames."""
        for frame in frames:
            self._core.feed(frame)

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


async def _watch_head(address: str, lost: asyncio.Future[None]) -> None:
    """Wait until the head node does not answer for half the time that Ray waits for it."""
    limit_s = float(os.environ.get(_RECONNECT) or 60) / 2
    host, _, port = address.rpartition(":")
    answered = monotonic()
    while monotonic() < answered + limit_s:
        if await listens(host.strip("[]"), int(port), timeout_s=limit_s):
            answered = monotonic()
        await asyncio.sleep(min(_WATCH_S, limit_s / 4))
    lost.set_exception(
        ServerError(
            f"ray: the head node at {address} does not answer any more; what is finished is in the output; "
            "hint: start the cluster again, and give the same command"
        )
    )


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables of this process while the block runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _connected(**options: Any) -> Iterator[None]:
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
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except Exception as error:
        ray.shutdown()
        what = "a cluster cannot be started here" if options["address"] == "local" else "no connection"
        raise InputError(f"ray: {what}: {' '.join(str(error).split())[:500]}") from error
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


@cache
def versions() -> str:
    """What every node must have in common with this machine. Copies in development have one version, but other code."""
    code = source_digest(Path(errors.__file__))
    return f"Python {platform.python_version()} and velodrome {version('velodrome')} (code {code[:8]})"


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else describe(error)
