"""Attempts in workers: who gets which job, and what happens to the jobs of a worker that ends.

A worker that ends gives its jobs back, and they run again. A job that was in flight when two workers ended fails: it
may be what ends them. Workers are processes of this machine; another kind brings its own `WorkerLink`.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from velodrome import scope
from velodrome.children import spawn
from velodrome.collector.account import account
from velodrome.collector.attempt import Attempt, failed_attempt, meta_of
from velodrome.collector.executors.executor import Executor, Jobs
from velodrome.collector.executors.frames import attempts_in, frame
from velodrome.collector.executors.inline import CLOSING_S
from velodrome.collector.executors.worker import WorkerSettings
from velodrome.collector.plan import Job
from velodrome.collector.work import Work, packed
from velodrome.errors import AgentError, InputError, ServerError
from velodrome.http.limiter import Share
from velodrome.timing.spans import root

Json = dict[str, Any]

_MAIN = "velodrome.collector.executors.worker:main"
_DEATHS = 2  # of workers while a job was in flight in them, before it fails
_FRUITLESS = 3  # times that each worker may end without a job before the next rollout is finished
GRACE_S = 2 * CLOSING_S + 3.0  # for the sessions of what is given up


class WorkerLink(Protocol):
    """A worker that runs: frames to it and from it (`executors/frames.py`)."""

    ending: str | None  # how it ended; None while it runs

    def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """The next frame; None once it has ended."""
        ...

    async def close(self, grace_s: float = ...) -> None:
        """Give up what it runs and end it."""
        ...


StartWorker = Callable[[int], Awaitable[WorkerLink]]  # by its number


@asynccontextmanager
async def worker_processes(work: Work, settings: WorkerSettings) -> AsyncIterator[StartWorker]:
    """Starts workers of this machine; components that are shared are served from here as long as the block runs."""
    async with packed(work) as data:

        async def start(number: int) -> WorkerLink:
            own = replace(settings, share=Share(number, settings.share.count))
            try:
                child = await spawn(_MAIN, pickle.dumps(own))
            except OSError as error:
                raise ServerError(f"a worker process cannot be started: {error}") from error
            child.send(data)
            return child

        yield start


class _Worker:
    """A worker, or its place while none runs there, and its jobs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.link: WorkerLink | None = None
        self.ready = False
        self.jobs: dict[int, Job] = {}  # by place
        self.waiting: list[Job] = []  # for the next frame

    def give(self, job: Job) -> None:
        self.jobs[job.place] = job
        self.waiting.append(job)

    def flush(self, around: Json) -> None:
        if self.waiting and self.link is not None:
            self.link.send(frame(jobs=self.waiting, around=around))
            self.waiting.clear()
            around.pop("pace", None)


class Workers(Executor):
    """An executor over `count` workers. `start` makes one; `note` reports, `expire` stops the run."""

    def __init__(
        self,
        start: StartWorker,
        count: int,
        *,
        limit: int,
        around: Json,
        note: Callable[[str], None],
        expire: Callable[[str], None],
    ) -> None:
        super().__init__(limit=limit, around=around)
        self._launch = start
        self._workers = [_Worker(number) for number in range(count)]
        self._note, self._expire = note, expire
        self._notes: dict[str, set[int]] = {}  # which workers sent it
        self._returned: deque[Job] = deque()  # to run again
        self._deaths: dict[int, int] = {}  # of workers while a job was in flight in them, by its place
        self._fruitless = 0
        self._closing = False
        self._lives: list[asyncio.Task[None]] = []
        self._endings: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        """Start no more jobs. Those that came back from a worker that ended are not run again, either."""
        self._handed_back += len(self._returned)
        self._returned.clear()
        self._send_to_all(frame(stop=True))
        super().stop()

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight; sessions are closed. `now`: workers that end already are not waited for."""
        self._send_to_all(frame(cancel=now))
        for ending in self._endings if now else ():
            ending.cancel()
        super().cancel(now=now)

    async def begin(self) -> None:
        """Start the workers, and wait until one of them can run jobs."""
        if self._lives:
            return
        self._lives = [asyncio.create_task(self._live(worker)) for worker in self._workers]
        for life in self._lives:
            life.add_done_callback(self._life_ended)
        while not self._stopping and not any(worker.ready for worker in self._workers):
            await self._until_woken()

    def _send_to_all(self, message: bytes) -> None:
        for worker in self._workers:
            if worker.link is not None:
                worker.link.send(message)

    def _start(self, jobs: Jobs) -> None:
        around = self._around
        around["limit"] = self.limit
        while not self._stopping:
            worker = self._freest()
            if worker is None:
                break
            job = self._returned.popleft() if self._returned else self._next(jobs)
            if job is None:
                break
            worker.give(job)
        around["in_flight"] = self.in_flight
        for worker in self._workers:
            worker.flush(around)

    def _freest(self) -> _Worker | None:
        """The worker with the fewest jobs. None has more than its share, also while others still start."""
        ready = [worker for worker in self._workers if worker.ready]
        freest = min(ready, key=lambda worker: len(worker.jobs), default=None)
        share = -(-self.limit // len(self._workers))
        return freest if freest is not None and len(freest.jobs) < share else None

    async def _live(self, worker: _Worker) -> None:
        """Start a worker, and again whenever it ends, until the run is over."""
        while not self._closing and not self._stopping:
            link, ended = await self._launch(worker.number), False
            try:
                if self._closing:
                    return
                worker.link = link
                while (data := await link.receive()) is not None:
                    self._take(worker, pickle.loads(data))
                ended = True
            finally:
                worker.link, worker.ready = None, False
                if not ended:
                    await link.close(0.0 if self._closing else GRACE_S)
            if not self._closing and not self._cancelled:
                self._take_back_jobs(worker, link.ending)

    def _take(self, worker: _Worker, message: Json) -> None:
        """Handle a frame from a worker."""
        if "attempts" in message:
            for attempt in attempts_in(message["attempts"], worker.jobs):
                del worker.jobs[attempt.job.place]
                self._finish(attempt)
            self._fruitless = 0
        elif "ready" in message:
            worker.ready = True
        elif "note" in message:
            self._note_once(worker, message["note"])
        elif "log" in message:
            level, name, text = message["log"]
            logging.getLogger(name).log(level, "%s", text)
        elif "stop" in message:
            self._expire(message["stop"])
        elif "rate_limited" in message:
            call = scope.current()
            if call is not None:
                call.rate_limited(message["rate_limited"])
        elif "dropped" in message:
            worker.jobs.pop(message["dropped"], None)
            self._handed_back += 1
        elif "refused" in message:
            raise InputError(*message["refused"])
        self.wake()

    def _note_once(self, worker: _Worker, note: str) -> None:
        """Report a worker's note, unless another worker has sent the same."""
        senders = self._notes.setdefault(note, set())
        if not senders or worker.number in senders:
            senders.clear()
            self._note(note)
        senders.add(worker.number)

    def _finish(self, attempt: Attempt) -> None:
        """Take the result of a job."""
        self._deaths.pop(attempt.job.place, None)
        self._finished.append(attempt)

    def _take_back_jobs(self, worker: _Worker, ending: str | None) -> None:
        """A worker ended: its jobs run again, or fail if it was their second death."""
        jobs, worker.jobs = list(worker.jobs.values()), {}
        worker.waiting.clear()
        self._fruitless += not jobs
        if self._fruitless > _FRUITLESS * len(self._workers):
            raise ServerError(f"workers end before they run a rollout; the last one ended with {ending}")
        if self._stopping:
            self._handed_back += len(jobs)
            self._note(f"a worker ended ({ending}); of its rollouts {len(jobs)} were not finished")
            jobs = []
        else:
            what = f"{len(jobs)} rollouts that it ran are not finished" if jobs else "another one takes its place"
            self._note(f"a worker ended ({ending}); {what}")
        for job in jobs:
            self._deaths[job.place] = deaths = self._deaths.get(job.place, 0) + 1
            if deaths < _DEATHS:
                self._returned.append(job)
            else:
                self._finish(_lost_again(job, ending))
        self.wake()

    def _life_ended(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled() and life.exception() is not None:
            self._error = self._error or life.exception()
            self.wake()

    async def aclose(self) -> None:
        """Give up what is in flight, and end the workers."""
        self._closing = True
        links = [worker.link for worker in self._workers if worker.link is not None]
        self._endings = [asyncio.create_task(link.close(GRACE_S)) for link in links]
        ends = await asyncio.gather(*self._endings, return_exceptions=True)
        await self._end_lives()
        for fault in (end for end in ends if isinstance(end, Exception)):
            raise fault

    async def _end_lives(self) -> None:
        for life in (await asyncio.wait(self._lives, timeout=GRACE_S))[1] if self._lives else ():
            life.cancel()  # it was being started
        await asyncio.gather(*self._lives, return_exceptions=True)


def _lost_again(job: Job, ending: str | None) -> Attempt:
    """The failure of a job whose workers ended."""
    spans = root("rollout")
    with spans:
        pass
    error = AgentError(f"{_DEATHS} worker processes ended while this rollout was in flight, the last with {ending}")
    return failed_attempt(job, error, meta_of(job), account(spans, None), spans)
