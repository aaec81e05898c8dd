"""A collection from beginning to end: survey, resume, run, account.

Requested = kept + failed (+ not started, when it was stopped), and the exit code says which of those it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from velodrome.collect.attempt import Failed, Kept, attempt
from velodrome.collect.budget import Budget
from velodrome.collect.pace import Auto, Fixed, Pace
from velodrome.collect.plan import Job, Selection, Survey, jobs, survey
from velodrome.collect.progress import Progress
from velodrome.collect.run import Stop, run
from velodrome.collect.runfile import RunFile, recipe, write_whole
from velodrome.collect.sink import Sink
from velodrome.config import Config, mask_text, secrets
from velodrome.errors import InputError
from velodrome.read.metrics import Tally, failed_keys, tally_file
from velodrome.records.jsonl import read_lines
from velodrome.records.rollout import beside, key_in
from velodrome.serving.connect import Components, Servers
from velodrome.timing.spans import Span

Json = dict[str, Any]

_MOST_REASONS = 50


@dataclass(frozen=True)
class Options:
    """What a collection is told, under its inner names."""

    input: Path
    output: Path
    agent: str | None = None
    limit: int | None = None
    repeats: int = 1
    parallel: int | Literal["auto"] = 16
    overrides: Json = field(default_factory=dict)
    defer: bool = False
    overwrite: bool = False
    allow_mixed: bool = False
    budget: Budget = field(default_factory=Budget)
    drain_s: float = 30.0
    sync_every_s: float = 1.0
    what: str = "Collecting rollouts"


@dataclass(frozen=True)
class Outcome:
    """How it ended."""

    requested: int
    kept: int
    failed: int
    left: int
    stopped: str | None
    metrics: Json
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 all kept, 3 some failed, 4 stopped by a budget, 130 interrupted."""
        if self.stopped is not None:
            return 130 if self.stopped == "interrupted" else 4
        return 3 if self.failed or self.left else 0

    def counts(self) -> Json:
        """The account, for the run file."""
        return {name: getattr(self, name) for name in ("requested", "kept", "failed", "left", "stopped")}

    def summary(self) -> str:
        """The account in one line."""
        why = self.stopped or "the input changed while it was read"
        left = f" + {self.left} not run ({why})" if self.left else ""
        return f"requested {self.requested} = kept {self.kept} + failed {self.failed}{left}"


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


Attempt = Callable[[Job], Awaitable[tuple[Kept | Failed, Span]]]


@dataclass(frozen=True)
class Work:
    """What is to be done, by whom, and what decides its result (the recipe)."""

    found: Survey
    jobs: Iterator[Job]
    attempt: Attempt
    components: Components
    recipe: Json


async def collect(
    options: Options, config: Config, say: Callable[[str], None], servers: Servers | None = None
) -> Outcome:
    """Make every rollout that is asked for and not in the output yet."""
    selection = Selection(
        options.input, options.limit, options.repeats, options.agent, default_agent(config), options.overrides
    )
    earlier = read_earlier(options)
    found = survey(selection, earlier.keys, config.agents())
    earlier.keys.clear()
    components = Components(config, servers=servers)
    agents = {name: components.agent(name) for name in sorted(found.agents)}
    for name, agent in agents.items():
        if options.defer and not await agent.deferrable():
            raise InputError(f"{name}: its verify reads the session, which is gone later; it cannot be deferred")
    made = recipe(components.family(agents), options.overrides, deferred=options.defer)

    async def try_once(job: Job) -> tuple[Kept | Failed, Span]:
        return await attempt(job, agents.get(job.agent), verify=not options.defer)

    work = Work(found, jobs(selection, found), try_once, components, made)
    return await conduct(work, options, config, earlier, say)


async def conduct(
    work: Work, options: Options, config: Config, earlier: Earlier, say: Callable[[str], None]
) -> Outcome:
    """Do the work into the output, and leave the account beside it."""
    found = work.found
    runfile = RunFile(options.output)
    if earlier.size and not options.allow_mixed:
        refuse_mixing(runfile.problems(work.recipe), options.output)
    with open_sink(options, earlier.size) as sink:
        for note in (work.components.note, *earlier.notes, *sink.notes):
            if note:
                say(note)
        if found.kept:
            rest = "going on with the rest" if found.kept < found.rollouts else "nothing is left to do"
            say(f"{options.output}: {found.kept} of {found.rollouts} rollouts are there already; {rest}")
        inputs = {"input": str(options.input), "limit": options.limit, "repeats": options.repeats}
        entry = runfile.begin(work.recipe, inputs, config.masked())
        try:
            collector = Collector(options, work, sink, secrets(config))
            outcome = await collector.run()
        finally:
            await work.components.aclose()
        if options.budget.max_total_tokens is not None and collector.counts.kept and not collector.counts.tokens:
            say("the model reports no token counts, so max_total_tokens could not stop anything")
        entry.update(finished_at=round(time.time(), 3), **outcome.counts())
        runfile.save()
        data = orjson.dumps(outcome.metrics, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        write_whole(beside(options.output, "metrics.json"), data)
    return outcome


def default_agent(config: Config) -> str | None:
    """The agent when nobody names one: the only one there is."""
    names = config.agents()
    return names[0] if len(names) == 1 else None


@dataclass
class Earlier:
    """What the output had before this run: its size, a hash of each key, and notes about lines that are no rollouts."""

    size: int = 0
    keys: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def read_earlier(options: Options) -> Earlier:
    """Read the output that is there. A last line without its end may be torn: the sink looks at that one."""
    found = Earlier()
    if options.overwrite or not options.output.exists():
        return found
    found.size = options.output.stat().st_size
    for number, line in read_lines(options.output, mendable=True):
        key = key_in(line)
        if key is not None:
            found.keys.add(hash(key))
        elif line.endswith(b"\n") and len(found.notes) < 20:
            found.notes.append(f"{options.output}:{number}: not a rollout; it is left alone and counts as not run")
    return found


def refuse_mixing(problems: list[str], output: Path) -> None:
    """Rollouts of two kinds in one file are asked for, or an error."""
    if problems:
        raise InputError(
            f"{output}: its rollouts were made with other settings; +allow_mixed=true adds to them all the same, "
            "another +output_jsonl_fpath keeps them apart",
            *(f"  {problem}" for problem in problems[:20]),
        )


@contextlib.contextmanager
def open_sink(options: Options, size: int) -> Iterator[Sink]:
    """The output, locked; refused if somebody wrote to it since it was read."""
    sink = Sink(options.output, overwrite=options.overwrite, sync_every_s=options.sync_every_s)
    try:
        if not options.overwrite and sink.size_found != size:
            raise InputError(f"{options.output}: another collection wrote to it just now; run the command again")
        yield sink
    finally:
        sink.close()


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
        self.tally = Tally(by_task=work.found.repeated)
        self.attempts = failed_keys(options.output)
        self.counts.unresolved = set(self.attempts)

    async def run(self) -> Outcome:
        """Until there are no jobs, a budget is reached, or somebody asks to stop."""
        options = self.options
        pace: Pace = Auto() if options.parallel == "auto" else Fixed(options.parallel)
        async with interruptible(self.stop), shown(self), time_limit(self.stop, options.budget.max_wall_s):
            with rare_garbage_collection():
                await run(self.work.jobs, self._work, pace, self.stop, drain_s=options.drain_s)
        kept = self.found.kept + self.counts.kept
        left = self.found.rollouts - kept - self.counts.failed
        return Outcome(
            requested=self.found.rollouts,
            kept=kept,
            failed=self.counts.failed,
            left=left,
            stopped=self.stop.reason if left else None,
            metrics=self._metrics(),
            reasons=dict(sorted(self.counts.reasons.items(), key=lambda each: -each[1])),
        )

    async def _work(self, job: Job) -> bool:
        outcome, spans = await self.work.attempt(job)
        counts = self.counts
        if isinstance(outcome, Kept):
            self.sink.keep(outcome.line)
            self.tally.add(outcome.row)
            counts.kept += 1
            counts.unresolved.discard(job.key)
        else:
            tried = self.attempts[job.key] = self.attempts.get(job.key, 0) + 1
            error = mask_text(outcome.failure["error"], self.secrets)
            self.sink.fail({**outcome.failure, "error": error, "attempt": tried})
            counts.failed += 1
            counts.unresolved.add(job.key)
            counts.blame(outcome.failure["boundary"], error)
        counts.tokens += spent(outcome, spans)
        reason = self.options.budget.reached(tokens=counts.tokens, kept=counts.kept, failed=counts.failed)
        if reason is not None:
            self.stop.ask(reason)
        return spans.count("rate_limited") > 0

    def _metrics(self) -> Json:
        if not self.sink.size_before:
            return self.tally.metrics(failed=len(self.counts.unresolved))
        tally = Tally()
        _, failed = tally_file(self.options.output, tally)
        return tally.metrics(failed=len(failed))


def spent(outcome: Kept | Failed, spans: Span) -> int:
    """The tokens of one attempt; those of a failed one were paid for too."""
    if isinstance(outcome, Failed):
        return int(spans.count("tokens"))
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
async def interruptible(stop: Stop) -> AsyncIterator[None]:
    """Ctrl-C and SIGTERM ask to stop: once lets what is in flight finish, twice does not."""
    loop = asyncio.get_running_loop()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread: nobody presses Ctrl-C here
            loop.add_signal_handler(number, stop.ask, "interrupted")
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def shown(collector: Collector) -> AsyncIterator[None]:
    """The progress bar, drawn at its own pace."""
    counts, found = collector.counts, collector.found

    def draw() -> None:
        done = found.kept + counts.kept + counts.failed
        progress.show(done, counts.failed, collector.tally.mean("reward"))

    async def keep_drawing() -> None:
        while True:
            await asyncio.sleep(progress.every_s)
            draw()

    with Progress(found.rollouts, found.kept, what=collector.options.what) as progress:
        drawing = asyncio.create_task(keep_drawing())
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
