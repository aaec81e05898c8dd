"""Attempts in workers: which worker runs which job, and what happens to the jobs of a worker that ends.

The jobs of a worker that ended run again. A job that was in flight when two workers ended fails, because it may have
ended them. Workers are processes of this machine; other kinds have their own `WorkerLink`.
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
_MOST_DEATHS = 2  # of workers with a job in flight, before the job fails
_MOST_IDLE_DEATHS = 3  # per worker, of workers without a job, before another rollout finishes
GRACE_S = 2 * CLOSING_S + 3.0  # to close the sessions of cancelled rollouts


class WorkerLink(Protocol):
    """A running worker: sends frames to it and receives frames from it (`executors/frames.py`)."""

    ending: str | None  # how it ended; None while it runs

    def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """The next frame; None once the worker has ended."""
        ...

    async def close(self, grace_s: float = ...) -> None:
        """Cancel its jobs and end it."""
        ...


StartWorker = Callable[[int], Awaitable[WorkerLink]]  # by its number


@asynccontextmanager
async def worker_processes(work: Work, settings: WorkerSettings) -> AsyncIterator[StartWorker]:
    """Yields the function that starts a worker on this machine. Shared components are served while the block runs."""
    async with packed(work) as data:

        async def start(number: int) -> WorkerLink:
            worker_settings = replace(settings, share=Share(number, settings.share.count))
            try:
                child = await spawn(_MAIN, pickle.dumps(worker_settings))
            except OSError as error:
                raise ServerError(f"a worker process cannot be started: {error}") from error
            child.send(data)
            return child

        yield start


class _Worker:
    """The place of one worker and its jobs. `link` is None while no worker runs there."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.link: WorkerLink | None = None
        self.ready = False
        self.jobs: dict[int, Job] = {}  # by place
        self.unsent: list[Job] = []  # for the next frame

    def assign(self, job: Job) -> None:
        self.jobs[job.place] = job
        self.unsent.append(job)

    def flush(self, around: Json) -> None:
        if self.unsent and self.link is not None:
            self.link.send(frame(jobs=self.unsent, around=around))
            self.unsent.clear()
            around.pop("pace", None)


class Workers(Executor):
    """An executor with `count` workers. `start` starts one; `note` reports to the user, `expire` stops the run."""

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
        self._start_worker = start
        self._workers = [_Worker(number) for number in range(count)]
        self._note, self._expire = note, expire
        self._notes: dict[str, set[int]] = {}  # note -> the numbers of the workers that sent it
        self._jobs_to_rerun: deque[Job] = deque()
        self._deaths: dict[int, int] = {}  # job place -> workers that ended with the job in flight
        self._idle_deaths = 0
        self._closing = False
        self._worker_tasks: list[asyncio.Task[None]] = []
        self._closing_tasks: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        """Start no more jobs. Jobs of a worker that ended are not run again, either."""
        self._returned_count += len(self._jobs_to_rerun)
        self._jobs_to_rerun.clear()
        self._send_to_all(frame(stop=True))
        super().stop()

    def cancel(self, *, now: bool = False) -> None:
        """Cancel the attempts in flight; their sessions are closed. `now`: do not wait for workers that are closing."""
        self._send_to_all(frame(cancel=now))
        for task in self._closing_tasks if now else ():
            task.cancel()
        super().cancel(now=now)

    async def begin(self) -> None:
        """Start the workers, and wait until one of them can run jobs."""
        if self._worker_tasks:
            return
        self._worker_tasks = [asyncio.create_task(self._keep_running(worker)) for worker in self._workers]
        for task in self._worker_tasks:
            task.add_done_callback(self._worker_task_ended)
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
            worker = self._least_busy_worker()
            if worker is None:
                break
            job = self._jobs_to_rerun.popleft() if self._jobs_to_rerun else self._next(jobs)
            if job is None:
                break
            worker.assign(job)
        around["in_flight"] = self.in_flight
        for worker in self._workers:
            worker.flush(around)

    def _least_busy_worker(self) -> _Worker | None:
        """The ready worker with the fewest jobs; None if it has its share, even while other workers still start."""
        ready = [each for each in self._workers if each.ready]
        worker = min(ready, key=lambda each: len(each.jobs), default=None)
        share = -(-self.limit // len(self._workers))
        return worker if worker is not None and len(worker.jobs) < share else None

    async def _keep_running(self, worker: _Worker) -> None:
        """Start a worker, and replace it whenever it ends, until the run is over."""
        while not self._closing and not self._stopping:
            link, ended = await self._start_worker(worker.number), False
            try:
                if self._closing:
                    return
                worker.link = link
                while (data := await link.receive()) is not None:
                    self._handle_message(worker, pickle.loads(data))
                ended = True
            finally:
                worker.link, worker.ready = None, False
                if not ended:
                    await link.close(0.0 if self._closing else GRACE_S)
            if not self._closing and not self._cancelled:
                self._take_back_jobs(worker, link.ending)

    def _handle_message(self, worker: _Worker, message: Json) -> None:
        """Handle a message from a worker."""
        if "attempts" in message:
            for attempt in attempts_in(message["attempts"], worker.jobs):
                del worker.jobs[attempt.job.place]
                self._finish(attempt)
            self._idle_deaths = 0
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
            self._returned_count += 1
        elif "refused" in message:
            raise InputError(*message["refused"])
        self.wake()

    def _note_once(self, worker: _Worker, note: str) -> None:
        """Report a worker's note, unless another worker has sent the same note."""
        senders = self._notes.setdefault(note, set())
        if not senders or worker.number in senders:
            senders.clear()
            self._note(note)
        senders.add(worker.number)

    def _finish(self, attempt: Attempt) -> None:
        """Queue the result of a job for the caller."""
        self._deaths.pop(attempt.job.place, None)
        self._finished.append(attempt)

    def _take_back_jobs(self, worker: _Worker, ending: str | None) -> None:
        """Run the jobs of a worker that ended again. A job fails if this is the second worker that ended with it."""
        jobs, worker.jobs = list(worker.jobs.values()), {}
        worker.unsent.clear()
        self._idle_deaths += not jobs
        if self._idle_deaths > _MOST_IDLE_DEATHS * len(self._workers):
            raise ServerError(f"workers end before they run a rollout; the last one ended with {ending}")
        if self._stopping:
            self._returned_count += len(jobs)
            self._note(f"a worker ended ({ending}); of its rollouts {len(jobs)} were not finished")
            jobs = []
        else:
            effect = f"{len(jobs)} rollouts that it ran are not finished" if jobs else "another one takes its place"
            self._note(f"a worker ended ({ending}); {effect}")
        for job in jobs:
            self._deaths[job.place] = deaths = self._deaths.get(job.place, 0) + 1
            if deaths < _MOST_DEATHS:
                self._jobs_to_rerun.append(job)
            else:
                self._finish(_lost_attempt(job, ending))
        self.wake()

    def _worker_task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()
            self.wake()

    async def aclose(self) -> None:
        """Cancel the attempts in flight, and end the workers."""
        self._closing = True
        links = [worker.link for worker in self._workers if worker.link is not None]
        self._closing_tasks = [asyncio.create_task(link.close(GRACE_S)) for link in links]
        results = await asyncio.gather(*self._closing_tasks, return_exceptions=True)
        await self._end_worker_tasks()
        for error in (result for result in results if isinstance(result, Exception)):
            raise error

    async def _end_worker_tasks(self) -> None:
        for task in (await asyncio.wait(self._worker_tasks, timeout=GRACE_S))[1] if self._worker_tasks else ():
            task.cancel()  # the worker was still starting
        await asyncio.gather(*self._worker_tasks, return_exceptions=True)


def _lost_attempt(job: Job, ending: str | None) -> Attempt:
    """The failure of a job that was in flight when two workers ended."""
    spans = root("rollout")
    with spans:
        pass
    error = AgentError(
        f"{_MOST_DEATHS} worker processes ended while this rollout was in flight, the last with {ending}"
    )
    return failed_attempt(job, error, meta_of(job), account(spans, None), spans)
