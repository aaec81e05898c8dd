"""Receives finished attempts: writes them, counts them, sets the pace, and decides when to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from velodrome.collector.attempt import Attempt, Failed, Kept
from velodrome.collector.decided import UndecidedJobs
from velodrome.collector.executors.executor import Executor, Jobs
from velodrome.collector.executors.inline import give_up
from velodrome.collector.keys import Entry, count_rollouts
from velodrome.collector.pace import Auto, Budget, Fixed, Pace, Pacing, Stop
from velodrome.collector.plan import KEPT, Job, Plan, Planned
from velodrome.collector.readings import Readings
from velodrome.collector.result import CHANGED, REFUSED, TERMINATED, Run
from velodrome.collector.settings import CollectSettings, SharedSettings
from velodrome.collector.sink import MemorySink, Sink
from velodrome.collector.stream import TaskStream
from velodrome.collector.watch.exporting import Exposed
from velodrome.collector.watch.live_state import LiveState
from velodrome.collector.watch.progress import RunState, showing
from velodrome.collector.watch.samples import SampleFile, sampling
from velodrome.errors import ChangedError, StorageError, describe
from velodrome.records.facts import RowFacts, failure_reason
from velodrome.settings import mask_text
from velodrome.stats.metrics import failed_keys
from velodrome.timing.invisible import escaped

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MOST_REASONS = 50
_MOST_REFUSALS = 5  # of one agent, in a row


@dataclass
class Counts:
    """The counts of this run so far. `unresolved` holds keys that failed in any run and are not kept."""

    kept: int = 0
    failed: int = 0
    tokens: int = 0
    rewards: float = 0.0  # the sum over `scored` rollouts
    scored: int = 0
    unresolved: set[str] = field(default_factory=set)
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def mean_reward(self) -> float | None:
        """For the progress bar; the metrics are exact."""
        return self.rewards / self.scored if self.scored else None

    def blame(self, boundary: str, error: str) -> None:
        """Count one reason for a failure; the first few kinds are reported at the end."""
        reason = failure_reason(boundary, error[:200])
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


class Collector:
    """One run over the jobs still to run. `begin` sets the open output.

    `say` reports to the user; without a `title` there is no progress bar.
    """

    def __init__(
        self,
        settings: SharedSettings,
        plan: Plan,
        jobs: Jobs,
        secrets: Collection[str],
        stop: Stop,
        *,
        say: Callable[[str], None],
        title: str,
        exposed: Exposed | None = None,
    ) -> None:
        collecting = settings if isinstance(settings, CollectSettings) else CollectSettings()
        self.settings = settings
        self.plan = plan
        self.jobs = jobs
        self.around: Json = {}  # the load around the rollouts, for their rows
        self.stop = stop
        self.exposed = exposed
        self.title = title
        self._secrets = secrets
        self._note = say
        self.budget = Budget(collecting.max_total_tokens, settings.max_failures)
        self.pace: Pace = Auto() if settings.parallel == "auto" else Fixed(settings.parallel)
        self.counts = Counts()
        self._agents: set[str] = set()  # agents with a kept rollout
        self._refusals: dict[str, int] = {}  # by agent, since its last kept rollout
        self._places: set[str] = set()  # lines of the user's code whose failures were shown
        self._drain: asyncio.TimerHandle | None = None
        self._interrupted = False
        if isinstance(jobs, Planned):
            jobs.note = self.note

    def begin(self, sink: Sink | MemorySink, readings: Readings | None) -> None:
        """Set the open output. Without `readings` it is read at the end."""
        self.sink = sink
        self.readings = readings
        self._attempts = {} if self.settings.output is None else failed_keys(self.settings.output)
        self.counts.unresolved = set(self._attempts)

    def note(self, text: str) -> None:
        """Report to the user while the run is in progress."""
        self._note(text)

    async def run(self, executor: Executor) -> Run:
        """Run until there are no jobs, a budget is reached, or the run is stopped."""
        self._executor = executor
        self.stop.changed = self._stop_executor
        self._pacing = Pacing(self.pace, executor, self.around)
        self._samples = SampleFile(self.settings.output, fresh=not self.sink.size_before)
        self._live = LiveState(self.settings.output, self.state)
        try:
            async with self._show_progress(), self._feed_tasks(), sampling(self._add_sample):
                self._stop_executor()
                await self._receive(executor)
            self._live.end(self.stop.reason)
        except BaseException as error:
            self._live.end(describe(error))
            raise
        finally:
            self._samples.flush()
            self.stop.changed = lambda: None
            if self._drain is not None:
                self._drain.cancel()
        self.sink.finish()
        return self.result()

    async def _receive(self, executor: Executor) -> None:
        """Write and count finished attempts, also those that finished before the run was cancelled."""
        try:
            async with aclosing(executor.run(self.jobs)) as batches:
                async for batch in batches:
                    self._record_all(batch)
                    for attempt in batch:
                        self._pacing.finished(attempt, executor.in_flight + len(batch))
                    self.sink.seal()
                    self._pacing.apply()
                    self._compare_output()
        finally:
            self._record_all(executor.finished())
        self.sink.seal()

    def _stop_executor(self) -> None:
        if self.stop.interrupted and not self._interrupted:
            self._interrupted = True
            self.note(
                f"interrupted: no more rollouts start, and {self._executor.in_flight} in flight may finish within "
                f"{self.settings.drain_s:g} s (drain_s); a second Ctrl-C stops at once"
            )
        if self.stop.now:
            self._executor.cancel(now=True)
        elif self.stop.reason is not None and self._drain is None:
            drain_s = self.settings.drain_s
            if self.stop.reason == TERMINATED:
                drain_s = self.settings.sigterm_drain_s
                self.note(
                    f"terminated: no more rollouts start, and {self._executor.in_flight} in flight may finish within "
                    f"{drain_s:g} s (sigterm_drain_s); a second signal stops at once"
                )
            self._executor.stop()
            loop = asyncio.get_running_loop()
            self._drain = loop.call_later(drain_s, self._executor.cancel)

    def _record_all(self, attempts: list[Attempt]) -> None:
        """Write and count every attempt. An error of one file is raised last, since the other file may still work."""
        storage_error: StorageError | None = None
        for attempt in attempts:
            try:
                self._record(attempt)
            except StorageError as error:
                storage_error = storage_error or error
        if storage_error is not None:
            raise storage_error

    def _record(self, attempt: Attempt) -> None:
        """Write one attempt and count it."""
        result = attempt.result
        if isinstance(result, Failed):
            self._record_failure(attempt.job, result)
        elif self.plan.done[attempt.job.place]:
            return  # it is in the output already
        else:
            self._record_rollout(attempt.job, result)
        counts = self.counts
        counts.tokens += attempt.tokens
        if self.exposed is not None:
            if isinstance(result, Kept):
                self.exposed.finished(result.facts.timing, kept=True)
            else:
                self.exposed.finished(result.row["timing"], kept=False)
        reason = self.budget.reached(tokens=counts.tokens, kept=counts.kept, failed=counts.failed)
        if reason is not None:
            self.stop.request(reason)

    def _entry(self, job: Job) -> Entry:
        """The entry of a rollout in the keys file."""
        if not self.plan.by_task:
            return job.key, 0, job.digest
        name, _, repeat = job.key.rpartition("/")
        return name, int(repeat), job.digest

    def _record_rollout(self, job: Job, kept: Kept) -> None:
        started = time.perf_counter() - kept.encode_s  # without the wait between encoding and writing
        self.sink.keep(kept.line, self._entry(job))
        self.plan.done[job.place] = KEPT
        reward = kept.facts.reward
        if isinstance(self.jobs, UndecidedJobs):
            self.jobs.decide(job.place, reward)
        self.around["write_s"] = round(time.perf_counter() - started, 6)
        counts = self.counts
        counts.kept += 1
        self._refusals.pop(job.agent, None)
        counts.unresolved.discard(job.key)
        if reward is not None:
            counts.rewards += reward
            counts.scored += 1
        if self.readings is not None:
            self.readings.keep(kept.facts)
        if job.agent not in self._agents and isinstance(self.settings, CollectSettings):
            self._agents.add(job.agent)
            self._report_token_flaws(kept.facts)

    def _report_token_flaws(self, facts: RowFacts) -> None:
        """Report missing token ids of an agent's first rollout: later rollouts will miss them, too."""
        flaws = facts.token_flaws
        if flaws:
            report = self.note if self.title else log.warning  # without a bar, notes are easily missed
            report(
                f"{facts.key}: token ids or log-probabilities were asked for and did not come: {', '.join(flaws)}"
                " (docs/models.md#token-ids says what each server gives)"
            )

    def _record_failure(self, job: Job, failed: Failed) -> None:
        counts, attempt_number = self.counts, self._attempts.get(job.key, 0) + 1
        self._attempts[job.key] = attempt_number
        failure = {**failed.row, "attempt": attempt_number}
        failure |= {name: mask_text(failure[name], self._secrets) for name in ("error", "place") if name in failure}
        error: str = failure["error"]
        self.sink.fail(failure)
        counts.failed += 1
        counts.unresolved.add(job.key)
        counts.blame(failure["boundary"], error)
        if self.readings is not None:
            self.readings.fail(failure)  # without secrets, as in the file
        self._show_failure(failure, failed.traceback)
        if failed.refused:
            self._count_refusal(job.agent, escaped(error))

    def _count_refusal(self, agent: str, error: str) -> None:
        """Stop after several refused rollouts of an agent in a row: the rest would be refused, too."""
        self._refusals[agent] = count = self._refusals.get(agent, 0) + 1
        if count == _MOST_REFUSALS and self.stop.reason is None:
            self.note(f"no more rollouts start: {count} in a row were refused: {error}")
            self.stop.request(REFUSED)

    def _show_failure(self, failure: Json, traceback: str) -> None:
        """Show the first failure at each line of the user's code; with -v, its traceback."""
        place = failure.get("place")
        if place is not None and place not in self._places and len(self._places) < _MOST_REASONS:
            self._places.add(place)
            self.note(f"failed: {escaped(failure['error'])}")
            if traceback:
                log.info("%s", mask_text(escaped(traceback), self._secrets))

    def result(self) -> Run:
        """The counts. If another program changed the output, only rollouts that are still in it count as kept."""
        plan, counts, sink = self.plan, self.counts, self.sink
        kept = plan.kept
        if isinstance(sink, Sink) and sink.changed is not None:
            missing = sink.rows_before + counts.kept - count_rollouts(sink.path)
            kept = max(kept - max(missing, 0), 0)
        left = plan.rollouts - kept - counts.failed - plan.skipped
        return Run(
            requested=plan.rollouts,
            kept=kept,
            failed=counts.failed,
            left=left,
            stopped=self.stop.reason if left or isinstance(self.jobs, TaskStream) else None,
            metrics={},  # added by `with_readings`
            reasons=dict(sorted(counts.reasons.items(), key=lambda item: -item[1])),
            output=self.settings.output,
            lines=sink.lines if isinstance(sink, MemorySink) else [],
            failed_attempts=sink.failed if isinstance(sink, MemorySink) else [],
            skipped=plan.skipped,
        )

    def state(self) -> RunState:
        """The numbers for the progress."""
        counts, done = self.counts, self.plan.kept + self.plan.skipped + self.counts.failed
        limit = self.pace.limit if isinstance(self.pace, Auto) else None
        return RunState(done, self.plan.rollouts, counts.failed, self._executor.in_flight, counts.mean_reward, limit)

    def summary(self) -> str:
        """The counts in one line, with the output's name."""
        return f"{self.result().summary()}  ->  {self.sink.path}"

    def storage_error(self, error: StorageError) -> StorageError:
        """Close the output, and return the error that ended the run with the counts so far."""
        self.sink.close()
        changed = self.sink.changed
        if changed is None:
            self.stop.request("the disk refused a write")
            return StorageError(f"{error}\n{self.summary()}")
        self.stop.request(CHANGED)
        hint = "the same command again continues with what is in the file"
        return ChangedError(f"{changed} during the run; {hint}\n{self.summary()}")

    def _compare_output(self) -> None:
        """Stop at once if another program has changed the output, because nothing more can be written."""
        if self.sink.changed is not None and self.stop.reason is None:
            self.stop.now = True
            self.stop.request(CHANGED)

    def _add_sample(self, busy: dict[str, float]) -> None:
        counts = self.counts
        self.around.update(busy)
        self._live.update()
        self._compare_output()
        sample = {
            "at": round(time.time(), 3),
            "in_flight": self._executor.in_flight,
            "limit": self.pace.limit,
            "kept": counts.kept,
            "failed": counts.failed,
            **busy,
            "bytes": self.sink.size - self.sink.size_before,
            "tokens": counts.tokens,
            "pace": self._pacing.take_decisions(),
        }
        self._samples.add(sample)
        if self.exposed is not None:
            self.exposed.sampled(sample, counts.mean_reward)

    @asynccontextmanager
    async def _show_progress(self) -> AsyncIterator[None]:
        """Show the progress while the block runs."""
        if not self.title:
            yield
            return
        note = self._note
        async with showing(self.title, self.state) as progress:
            self._note = progress.note
            try:
                yield
            finally:
                self._note = note

    @asynccontextmanager
    async def time_limit(self) -> AsyncIterator[None]:
        """Stop when the run's time is over."""
        seconds = self.settings.max_wall_s
        if seconds is None:
            yield
            return
        alarm = asyncio.get_running_loop().call_later(seconds, self.stop.request, f"max_wall_s={seconds:g} reached")
        try:
            yield
        finally:
            alarm.cancel()

    @asynccontextmanager
    async def _feed_tasks(self) -> AsyncIterator[None]:
        """Read an asynchronous source of tasks while the block runs. Its error is raised after rollouts in flight."""
        if not isinstance(self.jobs, TaskStream):
            yield
            return
        if not self.jobs.asynchronous:
            yield
            self.jobs.raise_fault()
            return
        feeding = asyncio.create_task(self.jobs.feed(self._executor.wake))
        try:
            yield
        finally:
            await give_up({feeding})
        if feeding.done() and not feeding.cancelled():
            feeding.result()
