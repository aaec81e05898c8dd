"""A collection from beginning to end: plan, run, write, count.

    tasks ── plan ── jobs ──▶ executor (attempt ──▶ agent) ── batches ──▶ collector (sink, counts, readings)

Requested = kept + failed (+ skipped, when tasks are decided early) (+ not run, when it was stopped).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from velodrome.collector.agents import Agents
from velodrome.collector.collector import Collector
from velodrome.collector.decided import UndecidedJobs
from velodrome.collector.executors.choice import make_executor
from velodrome.collector.executors.executor import Jobs
from velodrome.collector.executors.inline import Inline
from velodrome.collector.keys import Earlier, read_earlier
from velodrome.collector.pace import Stop
from velodrome.collector.plan import Plan, Planned, TaskSelection, jobs, survey
from velodrome.collector.readings import Readings, read_output
from velodrome.collector.recording import make_recording
from velodrome.collector.result import Run
from velodrome.collector.runfile import RunFile, make_recipe, refuse_mixing, write_json
from velodrome.collector.settings import CollectSettings, SharedSettings, VerifySettings
from velodrome.collector.sink import Sink, open_sink
from velodrome.collector.stream import TaskStream
from velodrome.collector.tasks import TaskFiles, TaskList, Tasks
from velodrome.collector.watch.exporting import Exposed
from velodrome.collector.work import Collecting, Work
from velodrome.errors import ChangedError, InputError, StorageError
from velodrome.rates import REQUESTS, TOKENS
from velodrome.records.rollout import beside
from velodrome.settings.files import find_inputs

Json = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surface:
    """How a run reports to the user, and what can stop it."""

    say: Callable[[str], None] = lambda line: None
    progress: bool = False
    exposed: Exposed | None = None  # to Prometheus
    traced: bool = False  # request the spans of servers, and write each row's trace
    stop: Stop | None = None
    command: str | None = None  # for the run file


QUIET = Surface()


async def collect(
    settings: CollectSettings,
    agents: Agents,
    tasks: Iterable[Any] | AsyncIterable[Any] | None = None,
    surface: Surface = QUIET,
) -> Run:
    """Run every requested rollout that is not in the output yet. Without `tasks`, read them from `input`."""
    recording = make_recording(settings.model_cache, settings.model_cache_mode, agents.secrets)
    try:
        earlier = read_earlier(None if settings.overwrite else settings.output)
        plan, pending_jobs = _plan(settings, agents, tasks, earlier)
        if recording is not None:
            agents.record(plan.agents)
        live = agents.connect(plan.agents)
        for name, agent in live.items():
            if settings.defer and not await agent.deferrable():
                raise InputError(f"{name}: its verify reads the session, which is gone later; it cannot be deferred")
        recipe = make_recipe(agents.recipe(live), settings.params, deferred=settings.defer, seed=settings.seed)
        work = Collecting(agents, frozenset(live), not settings.defer, surface.traced, recording)
        run = await conduct(settings, plan, pending_jobs, work, recipe, agents, earlier, surface)
        if recording is not None:
            surface.say(recording.report())
        return run
    finally:
        await agents.aclose()
        if recording is not None:
            recording.close()


async def conduct(
    settings: SharedSettings,
    plan: Plan,
    pending_jobs: Jobs,
    work: Work,
    recipe: Json,
    agents: Agents,
    earlier: Earlier,
    surface: Surface,
) -> Run:
    """Run the jobs, write the output and the files beside it. No file is created before jobs can run."""
    say, scoring = surface.say, isinstance(settings, VerifySettings)
    for name in (REQUESTS, TOKENS):
        if getattr(settings, name) is not None:
            agents.refuse_servers(plan.agents, name, scoring=scoring)
    title = ("Verifying rollouts" if scoring else "Collecting rollouts") if surface.progress else ""
    stop = surface.stop or Stop()
    collector = Collector(
        settings, plan, pending_jobs, agents.secrets, stop, say=say, title=title, exposed=surface.exposed
    )
    runfile = RunFile(settings.output)
    if earlier.size and not settings.allow_mixed:
        refuse_mixing(runfile.problems(recipe), settings.output)
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(make_executor(collector, work))
        await stack.enter_async_context(collector.time_limit())
        stop.changed = executor.stop
        if stop.reason is not None:
            executor.stop()
        elif not pending_jobs.ended:
            await executor.begin()
        sink = stack.enter_context(open_sink(settings, earlier, by_task=plan.by_task))
        if isinstance(collector.jobs, Planned):
            earlier.free()
        name = "memory" if settings.output is None else settings.output.name
        readings = None  # with workers the output is read at the end: this process is busy meanwhile
        if isinstance(executor, Inline) or settings.output is None:
            readings = Readings(name, by_task=plan.repeated, profiled=not scoring)
        collector.begin(sink, readings)
        for note in (agents.note, *earlier.notes, *sink.notes, _already_there(settings, plan)):
            if note:
                say(note)
        entry = runfile.begin(recipe, _inputs(settings, plan, surface.command), agents.config)
        try:
            run = await collector.run(executor)
        except StorageError as error:
            raise collector.storage_error(error) from error
        for warning in _token_warnings(collector):
            (say if surface.progress else log.warning)(warning)  # without a bar, notes are easily missed
        if sink.changed is None:
            run = with_readings(run, collector, agents.config)
            if run.skipped:
                run.metrics["rollouts/skipped"] = run.skipped
        if sink.changed is None and settings.output is not None:
            entry.update(finished_at=round(time.time(), 3), **run.counts())
            run = replace(run, unwritten=tuple(write_side_files(settings.output, run, runfile)))
    if sink.changed is not None:
        raise collector.storage_error(ChangedError(sink.changed))
    return run


def _already_there(settings: SharedSettings, plan: Plan) -> str:
    if not plan.kept:
        return ""
    rest = "continuing with the rest" if plan.kept < plan.rollouts else "nothing is left to do"
    return f"{settings.output}: {plan.kept} of {plan.rollouts} rollouts are there already; {rest}"


def _token_warnings(collector: Collector) -> Iterator[str]:
    """Warnings that limits on tokens had no effect, because the model reports no token counts."""
    settings = collector.settings
    if collector.counts.tokens or not collector.counts.kept:
        return
    if collector.budget.max_total_tokens is not None:
        yield "the model reports no token counts, so max_total_tokens could not stop anything"
    if settings.tokens_per_minute is not None and isinstance(settings, CollectSettings):
        yield "the model reports no token counts, so tokens_per_minute could not limit anything"


def _inputs(settings: SharedSettings, plan: Plan, command: str | None) -> Json:
    """The fields of the run file about the input."""
    return {
        **({} if command is None else {"command": command}),
        "input": None if settings.input is None else str(settings.input),
        "limit": settings.limit,
        "repeats": plan.repeats,
        "requested": plan.rollouts,
    }


def with_readings(run: Run, collector: Collector, config: Json) -> Run:
    """Add metrics, findings and profile to a run. After a resume, and with workers, read the whole output for them."""
    counts, sink, readings = collector.counts, collector.sink, collector.readings
    failed = len(counts.unresolved)
    if isinstance(sink, Sink) and (sink.size_before or readings is None):
        readings = output_readings = read_output(
            sink.path,
            profiled=isinstance(collector.settings, CollectSettings),
            by_task=collector.plan.repeated or not collector.plan.by_task,
            progress=bool(collector.title),
        )
        failed = output_readings.failed
        missing = sink.rows_before + counts.kept - output_readings.rollouts
        if missing > 0:
            sink.stop_writing(f"{sink.path}: {missing:,} of its lines were lost to another program")
    assert readings is not None  # a run without an output has readings
    report = readings.report(config, run.output, failed=failed)
    if not counts.kept and not counts.failed:
        report["profile"] = None
    return replace(run, **report)


def write_side_files(output: Path, run: Run, runfile: RunFile) -> Iterator[str]:
    """Write the files about the run. Yields an error for each file that cannot be written."""
    writes: list[Callable[[], None]] = [runfile.save, lambda: write_json(beside(output, "metrics.json"), run.metrics)]
    if run.profile is not None:
        profile = run.profile
        writes.append(lambda: write_json(beside(output, "profile.json"), profile))
    for write in writes:
        try:
            write()
        except StorageError as error:
            yield str(error)


def _plan(
    settings: CollectSettings, agents: Agents, tasks: Iterable[Any] | AsyncIterable[Any] | None, earlier: Earlier
) -> tuple[Plan, Jobs]:
    """The plan and its jobs. Files and lists are checked before anything runs; other iterables are read as it runs."""
    selection = TaskSelection(
        settings.limit,
        settings.repeats,
        settings.agent or agents.sole,
        agents.default,
        settings.params,
        agents.names,
        settings.allow_mixed,
        settings.seed,
    )
    if settings.stop_task_when is not None and settings.defer:
        raise InputError(
            "stop_task_when needs rewards, which defer_verification leaves for later; leave one of them out"
        )
    if tasks is not None and not isinstance(tasks, list | tuple):
        for name in ("stop_task_when", "only"):
            if getattr(settings, name) is not None:
                raise InputError(f"{name} needs a file or a list of tasks, which can be read more than once")
        stream = TaskStream(tasks, selection, earlier)
        return stream.plan, stream
    if tasks is not None:
        source: Tasks = TaskList(tasks)
    elif settings.input is None:
        raise InputError("no input: give a file of tasks")
    else:
        source = TaskFiles(find_inputs(settings.input), settings.input)
    plan = survey(source, selection, earlier)
    if settings.only is not None:
        plan.request_only(settings.only, source.name)
    rule = settings.stop_task_when
    if rule is None:
        return plan, Planned(jobs(source, selection, plan))
    return plan, UndecidedJobs(jobs(source, selection, plan, in_rounds=True), plan, rule, settings.output)
