"""One run over the jobs that are left: try each, write it down, count it, and tell those who look on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from velodrome.collector.attempt import Failed, Kept, Tried
from velodrome.collector.order import Options, Outcome, Work
from velodrome.collector.outage import Outage
from velodrome.collector.pace import Auto, Fixed, Pace
from velodrome.collector.plan import Job
from velodrome.collector.reader import Reader
from velodrome.collector.run import Stop, own_task, run
from velodrome.collector.sink import Sink
from velodrome.collector.watch.progress import Progress
from velodrome.collector.watch.pulse import beating
from velodrome.collector.watch.watch import Done, Sample
from velodrome.errors import ChangedError, InputError, StorageError
from velodrome.records.jsonl import read_lines
from velodrome.records.rollout import key_in
from velodrome.settings import mask_text
from velodrome.stats.metrics import failed_keys
from velodrome.timing.stop_signals import on_stop_signal
from velodrome.timing.unseen import escaped

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MOST_REASONS = 50


@dataclass
class Counts:
    """What this run has done so far. `unresolved` holds keys that failed and are not kept, from any run."""

    kept: int = 0
    failed: int = 0
    tokens: int = 0
    unresolved: set[str] = field(default_factory=set)
    reasons: dict[str, int] = field(default_factory=dict)

    def blame(self, boundary: str, error: str) -> None:
        """Count one reason for a failure; the first few kinds are told at the end."""
        reason = f"{boundary}: {error[:200]}"
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


class Collector:
    """One run over the jobs that are left."""

    def __init__(self, options: Options, work: Work, sink: Sink, secrets: Collection[str]) -> None:
        self.options = options
        self.work = work
        self.found = work.found
        self.sink = sink
        self.secrets = secrets
        self.counts = Counts()
        self.stop = Stop()
        self.pace: Pace = Auto() if options.parallel == "auto" else Fixed(options.parallel)
        self.slots = Slots()
        self.workers: set[asyncio.Task[Any]] = set()
        self.reader = Reader(options.output.name, by_task=work.found.repeated, profiled=work.profiled)
        self.note: Callable[[str], None] = lambda text: None  # above the bar, while there is one
        self.outage = Outage(self.stop, options.server_wait_s, lambda text: self.note(text))
        self.places: set[str] = set()  # of faults in the user's code that were shown
        self.attempts = failed_keys(options.output)
        self.counts.unresolved = set(self.attempts)

    async def run(self) -> Outcome:
        """Until there are no jobs, a budget is reached, or somebody asks to stop."""
        options = self.options
        limit = time_limit(self.stop, options.budget.max_wall_s)
        with on_stop_signal(self.stop.interrupt), rare_garbage_collection():
            async with shown(self), limit, beating(self._sampled):
                try:
                    await run(self._timed(self._jobs()), self._work, self.pace, self.stop, drain_s=options.drain_s)
                finally:
                    await self.outage.aclose()
        self.sink.finish()
        return self.outcome()

    def outcome(self) -> Outcome:
        """The account. Of an output that another program changed, only what is in the file it names counts as kept."""
        kept = self.found.kept + self.counts.kept
        if self.sink.rows.changed is not None:
            missing = self.sink.rows_before + self.counts.kept - count_rollouts(self.sink.place)
            kept = max(kept - max(missing, 0), 0)
        left = self.found.rollouts - kept - self.counts.failed
        return Outcome(
            requested=self.found.rollouts,
            kept=kept,
            failed=self.counts.failed,
            left=left,
            stopped=self.stop.reason if left else None,
            metrics=self.reader.up_to_date().tally.metrics(failed=len(self.counts.unresolved)),
            reasons=dict(sorted(self.counts.reasons.items(), key=lambda each: -each[1])),
        )

    def account(self) -> str:
        """The account in one line, with the file that it is about."""
        return f"{self.outcome().summary()}  ->  {self.sink.place}"

    def refused(self, error: StorageError) -> StorageError:
        """The error of a disk that refused a write, with the account of what came before."""
        self.stop.ask("the disk refused a write")
        self.sink.close()
        if self.sink.changed is None:
            return StorageError(f"{error}\n{self.account()}")
        reason = str(error).partition(";")[0]  # the rest promises what the change has made false
        return ChangedError("\n".join((reason, *self.sink.told(), self.account())))

    def _look_at_output(self) -> None:
        """Take no new jobs once another program has changed the output."""
        changed = self.sink.changed
        if changed is not None and self.stop.reason is None:
            self.note(f"{changed}; no new rollouts are started")
            self.stop.ask("another program changed a file of the run")

    def _timed(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """The same jobs; how long it takes to read them is told in the rows, because nothing else runs meanwhile."""
        around = self.work.around
        while True:
            began = time.perf_counter()
            job = next(jobs, None)
            around.read_s += time.perf_counter() - began
            if job is None:
                return
            yield job

    def _jobs(self) -> Iterator[Job]:
        """The jobs, as far as the input can be read. What changed since it was surveyed is left."""
        try:
            yield from self.work.jobs
        except InputError as error:
            self.note(f"{error}; no new rollouts are started")

    async def _work(self, job: Job) -> bool:
        around, watchers = self.work.around, self.options.watchers
        self._enlist()
        around.limit = self.pace.limit
        slot = self.slots.take() if watchers else 0
        try:
            tried = await self._tried(job)
        finally:
            if watchers:
                self.slots.give_back(slot)
        if tried is None:
            return False
        written, error = self._settle(job, tried.outcome)
        if watchers:
            done = make_done(job, tried, slot, written, error)
            for watcher in watchers:
                watcher.finished(done)
        counts = self.counts
        counts.tokens += spent(tried)
        reason = self.options.budget.reached(tokens=counts.tokens, kept=counts.kept, failed=counts.failed)
        if reason is not None:
            self.stop.ask(reason)
        self._look_at_output()
        return bool(timing_of(tried.outcome).get("rate_limited"))

    async def _tried(self, job: Job) -> Tried | None:
        """One attempt that reached its servers; None if the run stops before it could."""
        outage, met = self.outage, None
        while await outage.over():
            tried = await self.work.attempt(job)
            away = tried.outcome.away if isinstance(tried.outcome, Failed) else None
            if met is not None and (away is None or away.address != met.address):
                outage.returned(met)
            if away is None or not await outage.explains(away):
                return tried
            self.counts.tokens += spent(tried)
            outage.begin(met := away)
        return None

    def _enlist(self) -> None:
        """Count the worker that runs this: between two jobs it is as good as in flight."""
        worker = own_task()
        if worker not in self.workers:
            self.workers.add(worker)
            worker.add_done_callback(self._dismiss)
            self.work.around.in_flight = len(self.workers)

    def _dismiss(self, worker: asyncio.Task[Any]) -> None:
        self.workers.discard(worker)
        self.work.around.in_flight = len(self.workers)

    def _settle(self, job: Job, outcome: Kept | Failed) -> tuple[tuple[float, float] | None, str | None]:
        """Write the attempt down and count it. Returns when its line was written, and its error."""
        counts = self.counts
        if isinstance(outcome, Kept):
            self.sink.keep(outcome.line)
            written = (outcome.encoded_at, time.perf_counter())
            self.work.around.write_s = written[1] - written[0]
            counts.kept += 1
            counts.unresolved.discard(job.key)
            self.reader.add(outcome.row, len(outcome.line))
            every = self.options.timing_every
            if every is not None and counts.kept % every == 0:
                self.note(self.reader.tree())
            return written, None
        tried = self.attempts[job.key] = self.attempts.get(job.key, 0) + 1
        failure = {**outcome.failure, "attempt": tried}
        failure |= {name: mask_text(failure[name], self.secrets) for name in ("error", "place") if name in failure}
        error = failure["error"]
        self.sink.fail(failure)
        counts.failed += 1
        counts.unresolved.add(job.key)
        counts.blame(failure["boundary"], error)
        self.reader.fail(failure)
        self._point_out(failure, outcome.trace)
        return None, f"{failure['boundary']}: {error}"

    def _point_out(self, failure: Json, trace: str) -> None:
        """Show a fault of the user's code the first time a line of it is at fault; with -v, its traceback."""
        place = failure.get("place")
        if place is not None and place not in self.places and len(self.places) < _MOST_REASONS:
            self.places.add(place)
            self.note(f"failed: {escaped(failure['error'])}")
            if trace:
                log.info("%s", mask_text(escaped(trace), self.secrets))

    def _sampled(self, cpu: float, lag_s: float) -> None:
        around, counts = self.work.around, self.counts
        around.cpu, around.lag_s = cpu, lag_s
        self._look_at_output()
        if self.options.watchers:
            size = self.sink.size - self.sink.size_before
            sample = Sample(
                time.perf_counter(),
                around.in_flight,
                self.pace.limit,
                counts.kept,
                counts.failed,
                cpu,
                lag_s,
                size,
                counts.tokens,
            )
            for watcher in self.options.watchers:
                watcher.sampled(sample)


def count_rollouts(path: Path) -> int:
    """How many rollouts a file has."""
    if not path.is_file():
        return 0
    return sum(key_in(line) is not None for _, line in read_lines(path, lost=lambda *_: None))


class Slots:
    """Numbers for what is in flight: each has the lowest that was free when it began."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._made = 0

    def take(self) -> int:
        """The lowest free number."""
        if self._free:
            return heapq.heappop(self._free)
        self._made += 1
        return self._made - 1

    def give_back(self, slot: int) -> None:
        """It is free again."""
        heapq.heappush(self._free, slot)


def make_done(job: Job, tried: Tried, slot: int, written: tuple[float, float] | None, error: str | None) -> Done:
    """One attempt, for those who look on."""
    outcome = tried.outcome
    return Done(
        key=job.key,
        task_index=job.task_index,
        rollout_index=job.rollout_index,
        agent=job.agent,
        kept=isinstance(outcome, Kept),
        reward=outcome.row.get("reward") if isinstance(outcome, Kept) else None,
        error=error,
        spans=tried.spans,
        trace=tried.trace.header,
        slot=slot,
        written=written,
    )


def timing_of(outcome: Kept | Failed) -> Json:
    """The timing of one attempt."""
    found: Json = outcome.row["meta"]["timing"] if isinstance(outcome, Kept) else outcome.failure["timing"]
    return found


def spent(tried: Tried) -> int:
    """The tokens of one attempt; those of a failed one were paid for too."""
    outcome = tried.outcome
    if isinstance(outcome, Failed):
        return int(tried.spans.count("tokens"))
    tokens = outcome.row["usage"].get("total_tokens")
    return tokens if isinstance(tokens, int) else 0


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cycles less often: a rollout makes none, and a search walks everything in flight."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def shown(collector: Collector) -> AsyncIterator[None]:
    """The progress bar, drawn at its own pace."""
    counts, found = collector.counts, collector.found

    def draw() -> None:
        done = found.kept + counts.kept + counts.failed
        progress.show(done, counts.failed, collector.reader.up_to_date().tally.mean("reward"))

    async def keep_drawing() -> None:
        while True:
            await asyncio.sleep(progress.every_s)
            draw()

    with Progress(found.rollouts, found.kept, what=collector.options.what) as progress:
        drawing = asyncio.create_task(keep_drawing())
        collector.note = progress.note
        try:
            yield
        finally:
            drawing.cancel()
            draw()


@asynccontextmanager
async def time_limit(stop: Stop, seconds: float | None) -> AsyncIterator[None]:
    """Ask to stop when the run's time is over."""
    if seconds is None:
        yield
        return
    alarm = asyncio.get_running_loop().call_later(seconds, stop.ask, f"max_wall_s={seconds:g} reached")
    try:
        yield
    finally:
        alarm.cancel()
