"""Workers that are actors of a Ray cluster.

An actor holds a worker. Frames of jobs are pushed to it, and its frames are pulled in batches: a batch is what was
finished within a few milliseconds, and a finished rollout never waits for one that is not. Ray restarts an actor that
is lost but repeats no call: its rollouts are given back (`workers.py`), as an actor call can fail after it succeeded.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

from velodrome.collector.executors.frames import event
from velodrome.collector.executors.ray_cluster import RayCluster, last_line, versions
from velodrome.collector.executors.worker import WorkerCore, WorkerInit
from velodrome.collector.executors.workers import WorkerLink
from velodrome.collector.work import packed
from velodrome.errors import InputError, ServerError

_EMPTY_S = 0.25  # after which a pull returns with nothing
_BATCH_S = 0.005  # how long a finished rollout waits for others, for one actor; more actors, less often
_CALL_S = 0.001  # the driver's time for two calls of an actor
_BATCH_BYTES = 16 << 20
_lives = count(1)


@asynccontextmanager
async def ray_workers(init: WorkerInit, cluster: RayCluster) -> AsyncIterator[Callable[[], Awaitable[WorkerLink]]]:
    """What starts a worker. Components that are shared are served from here as long as the block runs."""
    import ray

    async with packed(init, cluster.host) as data:
        make = ray.remote(RolloutActor).options(
            num_cpus=cluster.cpus_each, max_restarts=-1, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        stored = ray.put(data)
        batch_s = min(max(_BATCH_S, _CALL_S * cluster.actors), _EMPTY_S)
        idle: list[Any] = [make.remote(batch_s) for _ in range(cluster.actors)]

        async def start() -> WorkerLink:
            return _ActorLink(idle.pop(), stored, idle, cluster.lost)

        yield start


class _ActorLink:
    """An actor that runs a worker, from its start to its loss. Then the actor is there for another start."""

    def __init__(self, actor: Any, stored: Any, idle: list[Any], lost: asyncio.Future[None]) -> None:
        self._actor = actor
        self._stored = stored
        self._idle = idle
        self._lost = lost  # the cluster is, as an error
        self._life = f"velo-{os.getpid()}-{next(_lives)}-{secrets.token_hex(4)}"
        self._frames: deque[bytes] = deque()
        self._unsent: list[bytes] = []
        self._feeds: list[Any] = []  # calls that were not checked yet
        self._begun = False
        self._ending: str | None = None

    def send(self, frame: bytes) -> None:
        """Push a frame, together with others of this moment."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(frame)

    def _flush(self) -> None:
        frames, self._unsent = self._unsent, []
        if self._ending is None:
            self._feeds.append(self._actor.feed.remote(self._life, frames))

    async def receive(self) -> bytes | None:
        """The next frame; None once the actor is lost, or ended its worker."""
        while not self._frames and self._ending is None:
            try:
                await _unless(self._lost, self._pull() if self._begun else self._begin())
            except Exception as error:  # noqa: BLE001 - whatever a call fails with, its actor is not to be relied on
                self._end(_reason(error))
        return self._frames.popleft() if self._frames else None

    async def _begin(self) -> None:
        """Wait until the actor runs. Ray repeats this call while it restarts the actor; it may run twice."""
        from ray.exceptions import ActorDiedError, RuntimeEnvSetupError

        begin = self._actor.begin.options(max_task_retries=-1)
        try:
            refusal = await begin.remote(self._life, versions(), self._stored)
        except RuntimeEnvSetupError as error:
            raise InputError(f"ray: the code cannot be sent to a node: {last_line(error)}") from error
        except ActorDiedError as error:  # it could not be made, as it restarts otherwise
            refusal = f"a node cannot run {versions()}: {last_line(error)}"
        self._begun = True
        if refusal:
            self._frames.append(event(refused=[f"ray: {refusal}; hint: install the same versions on every node"]))

    async def _pull(self) -> None:
        frames = await self._actor.pull.remote(self._life)
        feeds, self._feeds = self._feeds, []
        for feed in feeds:  # what they pushed is lost if one of them failed
            await feed
        if frames is None:
            self._end("it gave up")
        else:
            self._frames.extend(frames)

    def _end(self, reason: str) -> None:
        self._ending = reason
        self._idle.append(self._actor)

    def ending(self) -> str:
        """How it ended."""
        return self._ending or "running"

    def boundary(self) -> str:
        """Where the job was that it ran alone when it ended."""
        from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get

        with suppress(Exception):  # without the cluster nobody knows
            value: bytes | None = _internal_kv_get(self._life)
            _internal_kv_del(self._life)
            return (value or b"").decode()
        return ""

    async def close(self, grace_s: float) -> None:
        """Give up what it runs and end it. Without the head node only its own node can."""
        import ray

        if self._lost.done():
            return
        try:
            if self._begun and self._ending is None:
                with suppress(Exception):  # it is ended anyway
                    await asyncio.wait_for(_result(self._actor.end.remote(self._life)), grace_s)
        finally:
            ray.kill(self._actor)


async def _unless(lost: asyncio.Future[None], call: Coroutine[Any, Any, None]) -> None:
    """Wait for a call; raise if the cluster is lost before."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    await (task if task.done() else lost)


async def _result(call: Any) -> Any:
    return await call


class RolloutActor:
    """A worker in a process of Ray's. Every call names the life of the worker that it is for."""

    def __init__(self, batch_s: float) -> None:
        gc.set_threshold(50_000, 20, 20)
        self._batch_s = batch_s
        self._life = ""
        self._core: WorkerCore | None = None
        self._work: asyncio.Task[None] | None = None
        self._frames: deque[bytes] = deque()
        self._woken = asyncio.Event()

    async def begin(self, life: str, wanted: str, data: bytes) -> str:
        """Start the worker; what is wrong with this node, if anything is."""
        if wanted != versions():
            return f"a node has {versions()}, but {wanted} is here"
        if life != self._life:
            await self.end(self._life)
            self._life, self._frames = life, deque()
            self._core = WorkerCore(self._put, _no_wait, self._keep, _refusal)
            self._work = asyncio.create_task(self._core.run(data))
            self._work.add_done_callback(lambda _: self._woken.set())
        return ""

    def _put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._woken.set()

    def _keep(self, boundary: str) -> None:
        """Keep the name of a boundary where it outlives this process."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(self._life, boundary.encode())

    async def feed(self, life: str, frames: list[bytes]) -> None:
        """Take frames."""
        core, _ = self._alive(life)
        for frame in frames:
            core.feed(frame)

    async def pull(self, life: str) -> list[bytes] | None:
        """What is finished, soon after something is; None once the worker has ended."""
        _, work = self._alive(life)
        if not self._frames and not work.done():
            self._woken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _EMPTY_S)
            if self._frames and not work.done():
                await asyncio.sleep(self._batch_s)
        if work.done() and not self._frames:
            work.result()
            return None
        frames, size = [], 0
        while self._frames and size < _BATCH_BYTES:
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        return frames

    async def end(self, life: str) -> None:
        """Give up what runs, and close the components."""
        if self._core is not None and self._work is not None and life == self._life:
            self._core.end()
            await asyncio.wait([self._work])

    def _alive(self, life: str) -> tuple[WorkerCore, asyncio.Task[None]]:
        if life != self._life or self._core is None or self._work is None:
            raise RuntimeError("the actor was restarted")  # a plain error: it must cross to the driver
        return self._core, self._work


def _refusal(reason: str) -> str:
    from ray.util import get_node_ip_address

    return f"ray: node {get_node_ip_address()}: {reason}; hint: what your code imports must be on every node"


async def _no_wait() -> None:
    """Frames wait in the actor; there are never more than the rollouts it was given."""


def _reason(error: Exception) -> str:
    from ray.exceptions import RayActorError

    if isinstance(error, InputError | ServerError):
        raise error
    return "its process or its node was lost" if isinstance(error, RayActorError) else last_line(error)
