"""A collection from beginning to end: survey, resume, run, account.

Requested = kept + failed (+ not started, when it was stopped), and the exit code says which of those it was.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from velodrome.checks import short
from velodrome.collector.account import Surroundings
from velodrome.collector.attempt import Tried, attempt
from velodrome.collector.collector import Collector
from velodrome.collector.order import Options, Outcome, Work
from velodrome.collector.plan import Job, Selection, jobs, mark_line, refuse_taken, survey
from velodrome.collector.reread import reread
from velodrome.collector.runfile import RunFile, recipe, write_whole
from velodrome.collector.sink import Sink
from velodrome.errors import ChangedError, InputError, StorageError
from velodrome.profiling.profile_file import make_profile
from velodrome.records.jsonl import DAMAGED, Lost, read_lines
from velodrome.records.rollout import beside
from velodrome.records.task import task_id
from velodrome.serving.connect import Components, Servers
from velodrome.settings import Config, secrets

Json = dict[str, Any]

_MOST_NOTES = 20


async def collect(
    options: Options, config: Config, say: Callable[[str], None], servers: Servers | None = None
) -> Outcome:
    """Make every rollout that is asked for and not in the output yet."""
    selection = Selection(
        options.input, options.limit, options.repeats, options.agent, default_agent(config), options.overrides
    )
    found = survey(selection, config.agents())
    earlier = read_earlier(options, lambda line: mark_line(found, line))
    found.places.clear()
    if not options.allow_mixed:
        refuse_taken(found, options.input, options.output, lambda row, index: task_id(row) + found.again.get(index, ""))
    components = Components(config, servers=servers)
    components.check(found.agents)
    agents = {name: components.agent(name) for name in sorted(found.agents)}
    for name, agent in agents.items():
        if options.defer and not await agent.deferrable():
            raise InputError(f"{name}: its verify reads the session, which is gone later; it cannot be deferred")
    made = recipe(components.family(agents), options.overrides, deferred=options.defer, sources=components.sources)

    around, recorded = Surroundings(), bool(options.watchers)

    async def try_once(job: Job) -> Tried:
        agent = agents.get(job.agent)
        return await attempt(job, agent, verify=not options.defer, around=around, recorded=recorded)

    work = Work(found, jobs(selection, found), try_once, components, made, around, profiled=True)
    return await conduct(work, options, config, earlier, say)


async def conduct(
    work: Work, options: Options, config: Config, earlier: Earlier, say: Callable[[str], None]
) -> Outcome:
    """Do the work into the output, and leave the account beside it."""
    found = work.found
    runfile = RunFile(options.output)
    if earlier.size and not options.allow_mixed:
        refuse_mixing(runfile.problems(work.recipe), options.output)
    with open_sink(options, earlier) as sink:
        for note in (work.components.note, *earlier.notes, *sink.notes):
            if note:
                say(note)
        if found.kept:
            rest = "continuing with the rest" if found.kept < found.rollouts else "nothing is left to do"
            say(f"{options.output}: {found.kept} of {found.rollouts} rollouts are there already; {rest}")
        inputs = {
            "input": str(options.input),
            "limit": options.limit,
            "repeats": options.repeats,
            "requested": found.rollouts,
        }
        entry = runfile.begin(work.recipe, inputs, config.masked())
        try:
            collector = Collector(options, work, sink, secrets(config))
            outcome = await collector.run()
        except StorageError as error:
            raise collector.refused(error) from error
        finally:
            await work.components.aclose()
        if options.budget.max_total_tokens is not None and collector.counts.kept and not collector.counts.tokens:
            say("the model reports no token counts, so max_total_tokens could not stop anything")
        if sink.changed is None:
            outcome = with_readings(outcome, collector, config)
        if sink.changed is None:
            entry.update(finished_at=round(time.time(), 3), **outcome.counts())
            outcome = replace(outcome, unwritten=tuple(left_beside(options.output, outcome, runfile)))
    if sink.changed is not None:
        raise ChangedError("\n".join((*sink.told(), collector.account())))
    return outcome


def with_readings(outcome: Outcome, collector: Collector, config: Config) -> Outcome:
    """The outcome with what its rows say. After a resume the whole output is read, old rows and new."""
    counts, sink, reader = collector.counts, collector.sink, collector.reader.up_to_date()
    profiled = reader.profile is not None and bool(counts.kept or counts.failed)
    if not sink.size_before:
        profile = reader.profile.told(config.masked()) if reader.profile is not None and profiled else None
        return replace(outcome, findings=short(reader.checks.findings()), profile=profile)
    whole = reread(collector.options.output, profiled=profiled)
    missing = sink.rows_before + counts.kept - whole.rollouts
    if missing > 0:
        sink.rows.leave(f"{missing:,} of its lines were lost to another program")
    read = whole.profile
    if read is not None and not read.ordered:
        read = make_profile(collector.options.output)
    profile = None if read is None else read.told(config.masked())
    return replace(outcome, metrics=whole.metrics(), findings=short(whole.checks.findings()), profile=profile)


def left_beside(output: Path, outcome: Outcome, runfile: RunFile) -> Iterator[str]:
    """Write the files that tell of the run. One that cannot be written is told, and costs no other."""
    writes: list[Callable[[], None]] = [
        runfile.save,
        lambda: write_json(beside(output, "metrics.json"), outcome.metrics),
    ]
    if outcome.profile is not None:
        profile = outcome.profile
        writes.append(lambda: write_json(beside(output, "profile.json"), profile))
    for write in writes:
        try:
            write()
        except StorageError as error:
            yield str(error)


def write_json(path: Path, data: Json) -> None:
    """One JSON object as a file, whole or not at all."""
    write_whole(path, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def default_agent(config: Config) -> str | None:
    """The agent when nobody names one: the only one there is."""
    names = config.agents()
    return names[0] if len(names) == 1 else None


@dataclass
class Earlier:
    """What the output had before this run: its size, its rollouts, and notes about lines that are not rollouts."""

    size: int = 0
    rows: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep one of the first notes."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def lost(self, output: Path) -> Lost:
        """Note what cannot be read. A torn last line is left to the sink, which cuts it."""

        def told(number: int, reason: str, torn: bool) -> None:
            if reason.endswith(DAMAGED):
                self.note(f"{output}: {reason}; the rollouts that stood there count as not run")
            elif not torn:
                self.note(f"{output}:{number}: {reason}; it is left alone and counts as not run")

        return told


def read_earlier(options: Options, take: Callable[[bytes], bool]) -> Earlier:
    """Read the output that is there. `take` gets each line and says whether it is a rollout.

    A last line without its end may be torn: the sink looks at that one.
    """
    found = Earlier()
    if options.overwrite or not options.output.exists():
        return found
    found.size = options.output.stat().st_size
    for number, line in read_lines(options.output, lost=found.lost(options.output)):
        if take(line):
            found.rows += 1
        elif line.endswith(b"\n"):
            found.note(f"{options.output}:{number}: not a rollout; it is left alone and counts as not run")
    return found


def refuse_mixing(problems: list[str], output: Path) -> None:
    """Rollouts of two kinds in one file are asked for, or an error."""
    if problems:
        raise InputError(
            f"{output}: its rollouts were made with other settings or other code; +allow_mixed=true adds to them all "
            "the same, another +output_jsonl_fpath keeps them apart",
            *(f"  {problem}" for problem in problems[:20]),
        )


@contextlib.contextmanager
def open_sink(options: Options, earlier: Earlier) -> Iterator[Sink]:
    """The output, locked; refused if somebody wrote to it since it was read."""
    sink = Sink(options.output, overwrite=options.overwrite, sync_every_s=options.sync_every_s)
    sink.rows_before = earlier.rows
    try:
        if not options.overwrite and sink.size_found != earlier.size:
            raise InputError(f"{options.output}: another collection wrote to it just now; run the command again")
        yield sink
    finally:
        sink.close()
