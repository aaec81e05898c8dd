"""Attempts in workers, wherever those are: who gets which job, and what becomes of the jobs of a worker that ends.

A worker that ends gives its jobs back, and they run again. A job that was in two workers that ended is a suspect: it
runs alone in a worker from then on. If two workers end while they run it alone it fails, at the boundary it was in.
So a job that ends its workers is found, and no other is blamed for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Any, Protocol

import orjson

from velodrome import scope
from velodrome.collector.account import Surroundings, account
from velodrome.collector.attempt import Attempt, fail, meta_of
from velodrome.collector.executors import Jobs
from velodrome.collector.executors.copies import Copies
from velodrome.collector.executors.frames import attempts_in, jobs_frame, read_frame_from_worker
from velodrome.collector.executors.inline import CLOSING_S
from velodrome.collector.executors.places import RunPlaces
from velodrome.collector.executors.running import RunningJobs
from velodrome.collector.plan import Job
from velodrome.errors import AgentError, InputError, ModelError, RolloutError, ServerError, ToolError, VerifyError
from velodrome.rates import Lending, Permit, run_rates
from velodrome.timing.spans import root
from velodrome.timing.trace import Trace

Json = dict[str, Any]

_ERRORS: dict[str, type[RolloutError]] = {
    each.boundary: each for each in (ModelError, ToolError, VerifyError, AgentError)
}
_COMPANY = 2  # ends of workers that a job may share with others before it runs alone
_ALONE = 2  # ends of workers that ran it alone before it fails
_FRUITLESS = 3  # times that each worker may end without a job to suspect before the next rollout is finished
_GRACE_S = 2 * CLOSING_S + 3.0  # for the sessions of what is given up


class WorkerLink(Protocol):
    """A worker that runs: frames to it and from it (`executors/frames.py`)."""

    def send(self, frame: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        """The next frame; None once it has ended."""
        ...

    def ending(self) -> str:
        """How it ended."""
        ...

    def boundary(self) -> str:
        """Where the job was that it ran alone when it ended."""
        ...

    async def close(self, grace_s: float) -> None:
        """Give up what it runs and end it."""
        ...


class _Worker:
    """One place for a worker, and the jobs that are there."""

    def __init__(self) -> None:
        self.link: WorkerLink | None = None
        self.ready = False
        self.jobs: dict[int, Job] = {}  # by place
        self.waiting: list[Job] = []  # for the next frame
        self.alone = False  # it runs one suspect, or will
        self.suspect: int | None = None  # the place of that job
        self.lending: Lending | None = None

    def borrow(self, places: RunPlaces) -> None:
        """Permits for model calls and places of limiters go to the worker that is there now."""
        places.leave(self)
        if self.lending is not None:
            self.lending.close()
        rates, link = run_rates(), self.link
        self.lending = None
        if link is None:
            return
        places.join(self, lambda *lent: link.send(orjson.dumps({"places": lent})))
        if rates is not None:
            self.lending = Lending(
                rates, lambda permits: link.send(orjson.dumps({"permits": list(map(tuple, permits))}))
            )

    def give(self, job: Job) -> None:
        self.jobs[job.place] = job
        self.waiting.append(job)

    def flush(self, around: Surroundings) -> None:
        if self.waiting and self.link is not None:
            self.link.send(jobs_frame(self.waiting, around, alone=self.alone))
            self.waiting.clear()
            around.read_s, around.decisions = 0.0, []


class Workers(RunningJobs):
    """An executor over `count` workers. `start` makes one; `note` reports, `expire` stops the run.

    `speculate` gives the last jobs that take long a copy.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[WorkerLink]],
        count: int,
        *,
        limit: int,
        around: Surroundings,
        numbered: bool,
        note: Callable[[str], None],
        expire: Callable[[str], None],
        speculate: bool = False,
    ) -> None:
        super().__init__(limit=limit, around=around, numbered=numbered)
        self.copies = Copies(wanted=speculate)
        self._look_again: asyncio.TimerHandle | None = None
        self._launch = start
        self._workers = [_Worker() for _ in range(count)]
        self._slot: dict[int, int] = {}
        self._note, self._expire = note, expire
        self._notes: dict[str, set[int]] = {}  # which workers said it
        self._returned: deque[Job] = deque()  # to run again
        self._suspects: deque[Job] = deque()  # to run alone
        self._ends: dict[int, tuple[int, int]] = {}  # of workers, by place: in company, alone
        self._places = RunPlaces(count)
        self._fruitless = 0
        self._closing = False
        self._lives: list[asyncio.Task[None]] = []
        self._endings: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        """Start no more jobs. Those that came back from a worker that ended are not run again, either."""
        self._handed_back += len(self._returned) + len(self._suspects)
        self._returned.clear()
        self._suspects.clear()
        self._tell({"stop": True})
        super().stop()

    def cancel(self, *, now: bool = False) -> None:
        """Give up what is in flight; sessions are closed. `now`: workers that end already are not waited for."""
        self._tell({"cancel": now})
        for ending in self._endings if now else ():
            ending.cancel()
        super().cancel(now=now)

    def _begin(self) -> None:
        self._lives = [asyncio.create_task(self._live(worker)) for worker in self._workers]
        for life in self._lives:
            life.add_done_callback(self._life_ended)

    def _tell(self, message: Json, workers: Iterable[_Worker] | None = None) -> None:
        for worker in self._workers if workers is None else workers:
            if worker.link is not None:
                worker.link.send(orjson.dumps(message))

    # ---- who gets which job

    def _start(self, jobs: Jobs) -> None:
        around = self._around
        around.limit = self.limit
        if self._suspects:
            self._isolate()
        while not self._stopping:
            worker = self._freest()
            if worker is None:
                break
            job = self._returned.popleft() if self._returned else self._next(jobs)
            if job is None:
                break
            if self._slots is not None and job.place not in self._slot:
                self._slot[job.place] = self._slots.take()
            self.copies.begin(job.place, asyncio.get_running_loop().time())
            worker.give(job)
        if self.copies.wanted and not self._stopping and not self._suspects and jobs.ended:
            self._copy_last()
        around.in_flight = self.in_flight
        for worker in self._workers:
            worker.flush(around)

    def _copy_last(self) -> None:
        """Give the jobs that take long a copy, while there is room for it."""
        loop = asyncio.get_running_loop()
        if self._look_again is not None:
            self._look_again.cancel()
        while self.in_flight + self.copies.running < self.limit:
            place, wait_s = self.copies.due(loop.time(), self._started)
            if place is None:
                self._look_again = loop.call_later(wait_s, self.wake) if wait_s < inf else None
                return
            owner = next(worker for worker in self._workers if place in worker.jobs)
            worker = self._freest(owner)
            if worker is None:
                return
            self.copies.make(place, worker)
            worker.give(owner.jobs[place])

    def _freest(self, without: _Worker | None = None) -> _Worker | None:
        """The worker with the fewest jobs. None has more than its share, also while others still start."""
        able = [worker for worker in self._workers if worker.ready and not worker.alone and worker is not without]
        freest = min(able, key=lambda worker: len(worker.jobs), default=None)
        share = -(-self.limit // len(self._workers))
        return freest if freest is not None and len(freest.jobs) < share else None

    def _isolate(self) -> None:
        """Give each suspect a worker that has nothing else; one worker is kept free for them."""
        cells = [worker for worker in self._workers if worker.ready and worker.alone]
        if not cells:
            able = [worker for worker in self._workers if worker.ready]
            cells = sorted(able, key=lambda worker: len(worker.jobs))[:1]
            for worker in cells:
                worker.alone = True
        for worker in cells:
            if self._suspects and not worker.jobs:
                worker.suspect = self._suspects[0].place
                worker.give(self._suspects.popleft())

    # ---- the life of a worker

    async def _live(self, worker: _Worker) -> None:
        """Start a worker, and again whenever it ends, until the run is over."""
        while not self._closing and not self._stopping:
            link, ended = await self._launch(), False
            try:
                if self._closing:
                    return
                worker.link = link
                worker.borrow(self._places)
                while (frame := await link.receive()) is not None:
                    self._take(worker, *read_frame_from_worker(frame))
                ended = True
            finally:
                worker.link, worker.ready = None, False
                worker.borrow(self._places)
                if not ended:
                    await link.close(0.0 if self._closing else _GRACE_S)
            if not self._closing and not self._cancelled:
                self._bury(worker, link)

    def _take(self, worker: _Worker, header: Json, lines: memoryview) -> None:
        if "attempts" in header:
            for attempt in attempts_in(header, lines, worker.jobs):
                del worker.jobs[attempt.place]
                self._finish(attempt, worker)
            self._fruitless = 0
            worker.alone = worker.alone and bool(worker.jobs or self._suspects)
        elif "ready" in header:
            worker.ready = True
        elif "note" in header:
            said_by = self._notes.setdefault(header["note"], set())
            if not said_by or id(worker) in said_by:  # every worker may have the same to say
                said_by.clear()
                self._note(header["note"])
            said_by.add(id(worker))
        elif "log" in header:
            level, name, text = header["log"]
            logging.getLogger(name).log(level, "%s", text)
        elif "stop" in header:
            self._expire(header["stop"])
        elif "rate_limited" in header:
            call = scope.current()
            if call is not None:
                call.rate_limited(header["rate_limited"])
        elif "permits" in header and worker.lending is not None:
            worker.lending.ask(header["permits"])
        elif "places" in header:
            self._places.trade(worker, *header["places"])
        elif "used" in header and (rates := run_rates()) is not None:
            permit, tokens = header["used"]
            rates.settle(Permit(*permit), tokens)
        elif "dropped" in header:
            place, tokens = header["dropped"]
            worker.jobs.pop(place, None)
            self._handed_back += not self._is_lost(place, tokens)
        elif "refused" in header:
            raise InputError(*header["refused"])
        self.wake()

    def _is_lost(self, place: int, tokens: int = 0) -> bool:
        """Whether nothing is lost with an attempt that brought nothing: its job is decided, or runs elsewhere too."""
        return self.copies.is_lost(place, tokens, alone=not self._holders(place))

    def _holders(self, place: int) -> list[_Worker]:
        return [worker for worker in self._workers if place in worker.jobs]

    def _finish(self, attempt: Attempt, worker: _Worker | None = None) -> None:
        """Take the result of a job. If it had a copy, the other attempt is given up."""
        place, kept = attempt.place, attempt.line is not None
        if self.copies.made and (self.copies.decided(place) or not kept) and self._is_lost(place, attempt.tokens):
            return
        self.copies.decide(place, worker, attempt.total_s, kept=kept)
        if self.copies.decided(place):
            self._tell({"drop": place}, self._holders(place))
        if self._slots is not None:
            attempt.slot = self._slot.pop(attempt.place, 0)
            self._slots.give_back(attempt.slot)
        self._ends.pop(attempt.place, None)
        self._finished.append(attempt)

    def _bury(self, worker: _Worker, link: WorkerLink) -> None:
        """A worker ended: its jobs run again, or alone; one that ended two workers alone fails."""
        jobs, worker.jobs = list(worker.jobs.values()), {}
        worker.waiting.clear()
        self._fruitless += not jobs
        jobs = [job for job in jobs if not self._is_lost(job.place)]
        if self._fruitless > _FRUITLESS * len(self._workers):
            raise ServerError(f"workers end before they run a rollout; the last one ended with {link.ending()}")
        if self._stopping:
            self._handed_back += len(jobs)
            self._note(f"a worker ended ({link.ending()}); of its rollouts {len(jobs)} were not finished")
            jobs = []
        else:
            what = f"{len(jobs)} rollouts that it ran are not finished" if jobs else "another one takes its place"
            self._note(f"a worker ended ({link.ending()}); {what}")
        for job in jobs:
            self.copies.leave_out(job.place)
            company, alone = self._ends.get(job.place, (0, 0))
            was_alone = job.place == worker.suspect
            self._ends[job.place] = ends = (company + (not was_alone), alone + was_alone)
            if ends[1] >= _ALONE:
                self._finish(_killer(job, link))
            elif sum(ends) >= _COMPANY:
                self._suspects.append(job)
            else:
                self._returned.append(job)
        worker.alone, worker.suspect = False, None
        self.wake()

    def _life_ended(self, life: asyncio.Task[None]) -> None:
        if not life.cancelled() and life.exception() is not None:
            self._error = self._error or life.exception()
            self.wake()

    async def _end(self) -> None:
        self._closing = True
        if self._look_again is not None:
            self._look_again.cancel()
        try:
            await self._wait_for_lost()
        finally:
            held_up = self._lost()
            links = [(worker.link, worker in held_up) for worker in self._workers if worker.link is not None]
            self._endings = [asyncio.create_task(link.close(0.0 if held else _GRACE_S)) for link, held in links]
            ends = await asyncio.gather(*self._endings, return_exceptions=True)
            await self._end_lives()
            for fault in (end for end in ends if isinstance(end, Exception)):
                raise fault

    async def _wait_for_lost(self) -> None:
        """Attempts that were given up say what they cost, unless they hold up their worker."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CLOSING_S
        while self._lost() and not self._cancelled and (left_s := until - loop.time()) > 0:
            self._woken = loop.create_future()
            await asyncio.wait([self._woken], timeout=left_s)

    def _lost(self) -> list[_Worker]:
        """The workers with an attempt whose job is decided."""
        return [worker for worker in self._workers if any(map(self.copies.decided, worker.jobs))]

    async def _end_lives(self) -> None:
        _, unfinished = await asyncio.wait(self._lives, timeout=_GRACE_S)
        for life in unfinished:  # it was being started
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)


def _killer(job: Job, link: WorkerLink) -> Attempt:
    """The failure of a job that ends its workers."""
    spans = root("rollout")
    with spans:
        pass
    made = Attempt(job.key, job.place, job.task_index, job.rollout_index, job.agent, spans, Trace(), job.digest)
    error = _ERRORS.get(link.boundary(), AgentError)(
        f"the worker process ended ({link.ending()}) while it ran this rollout alone, {_ALONE} times"
    )
    fail(made, error, meta_of(job), account(spans, None), job.task)
    return made
