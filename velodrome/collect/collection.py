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

from velodrome.collect.account import Surroundings
from velodrome.collect.attempt import Tried, attempt
from velodrome.collect.collector import Collector
from velodrome.collect.order import Options, Outcome, Work
from velodrome.collect.plan import Job, Selection, jobs, mark_line, refuse_taken, survey
from velodrome.collect.runfile import RunFile, recipe, write_whole
from velodrome.collect.sink import Sink
from velodrome.config import Config, secrets
from velodrome.errors import InputError
from velodrome.read.checks import WHILE_COLLECTING, Finding, run_checks, short
from velodrome.read.profile import read_profile
from velodrome.records.jsonl import DAMAGED, Lost, read_lines
from velodrome.records.rollout import beside
from velodrome.records.task import task_id
from velodrome.serving.connect import Components, Servers

Json = dict[str, Any]

_REREAD_BYTES = 256_000_000  # a few seconds
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
    with open_sink(options, earlier.size) as sink:
        for note in (work.components.note, *earlier.notes, *sink.notes):
            if note:
                say(note)
        if found.kept:
            rest = "going on with the rest" if found.kept < found.rollouts else "nothing is left to do"
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
        finally:
            await work.components.aclose()
        if options.budget.max_total_tokens is not None and collector.counts.kept and not collector.counts.tokens:
            say("the model reports no token counts, so max_total_tokens could not stop anything")
        entry.update(finished_at=round(time.time(), 3), **outcome.counts())
        runfile.save()
        write_json(beside(options.output, "metrics.json"), outcome.metrics)
        findings = made_findings(collector)
        outcome = replace(outcome, findings=short(findings))
        profile = made_profile(collector, config)
        if profile is not None:
            outcome = replace(outcome, profile=profile)
            write_json(beside(options.output, "profile.json"), profile)
    return outcome


def made_findings(collector: Collector) -> list[Finding]:
    """What may be wrong with the rollouts; after a resume with all of the file, unless that takes long to read."""
    sink = collector.sink
    if sink.size_before and sink.size <= _REREAD_BYTES:
        return run_checks(collector.options.output, only=WHILE_COLLECTING)
    return collector.reader.up_to_date().checks.findings()


def made_profile(collector: Collector, config: Config) -> Json | None:
    """Where the time went; after a resume in the whole file, unless that takes long. None if nothing was done."""
    profile, counts, sink = collector.reader.up_to_date().profile, collector.counts, collector.sink
    if profile is None or not (counts.kept or counts.failed):
        return None
    if sink.size_before and sink.size <= _REREAD_BYTES:
        return read_profile(collector.options.output)
    return profile.told(config.masked())


def write_json(path: Path, data: Json) -> None:
    """One JSON object as a file, whole or not at all."""
    write_whole(path, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def default_agent(config: Config) -> str | None:
    """The agent when nobody names one: the only one there is."""
    names = config.agents()
    return names[0] if len(names) == 1 else None


@dataclass
class Earlier:
    """What the output had before this run: its size, and notes about lines that are not rollouts."""

    size: int = 0
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
        if not take(line) and line.endswith(b"\n"):
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
def open_sink(options: Options, size: int) -> Iterator[Sink]:
    """The output, locked; refused if somebody wrote to it since it was read."""
    sink = Sink(options.output, overwrite=options.overwrite, sync_every_s=options.sync_every_s)
    try:
        if not options.overwrite and sink.size_found != size:
            raise InputError(f"{options.output}: another collection wrote to it just now; run the command again")
        yield sink
    finally:
        sink.close()
