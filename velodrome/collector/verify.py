"""Score a saved file: rollouts whose verification was deferred, or finished ones with another config.

The conversation is read from the file and given to the same environment code; the scored rollouts go to a new file,
with the same keys, so an interrupted pass resumes and nothing is written over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from velodrome.collector.account import Surroundings, account
from velodrome.collector.attempt import Failed, Kept, Tried, check_numbers, check_reward, failed, uncancelled
from velodrome.collector.collection import conduct, default_agent, read_earlier
from velodrome.collector.order import Options, Outcome, Work
from velodrome.collector.plan import Job, Problems, Survey, refuse_taken
from velodrome.collector.runfile import recipe
from velodrome.contracts import Resources
from velodrome.errors import InputError, RolloutError, VerifyError, blame
from velodrome.records import rollout
from velodrome.records.foreign import foreign_file
from velodrome.records.jsonl import read_lines
from velodrome.records.lenient import loads
from velodrome.records.task import digest
from velodrome.serving.connect import Components, Servers, unknown
from velodrome.settings import Config
from velodrome.timing.spans import root, span
from velodrome.timing.trace import Trace

Json = dict[str, Any]


async def verify(
    options: Options, config: Config, say: Callable[[str], None], servers: Servers | None = None
) -> Outcome:
    """Score every rollout of the input that the output does not have yet."""
    found = survey(options, config)
    earlier = read_earlier(options, lambda line: mark_line(found, line))
    found.places.clear()
    if not options.allow_mixed:
        refuse_taken(found, options.input, options.output, lambda row, index: row["meta"]["key"])
    components = Components(config, servers=servers)
    resources = {agent: components.resources_of(agent) for agent in sorted(found.agents)}
    for agent, environment in resources.items():
        if not await environment.deferrable():
            raise InputError(
                f"{agent}: its verify reads the session of the rollout, which is gone; it cannot score a file"
            )
    names = [config.instances[agent].references()["resources_server"] for agent in resources]
    made = recipe(components.family(names), {}, deferred=False, sources=components.sources)

    around = Surroundings()

    async def try_once(job: Job) -> Tried:
        return await score(job, resources[job.agent], around)

    work = Work(found, jobs(options, found, config), try_once, components, made, around)
    return await conduct(work, options, config, earlier, say)


def survey(options: Options, config: Config) -> Survey:
    """Every line must be a rollout of an agent that the config knows."""
    foreign = foreign_file(options.input)
    if foreign is not None:
        raise InputError(foreign)
    found = Survey()
    problems = Problems(options.input)
    for number, line in read_lines(options.input):
        if options.limit is not None and found.tasks >= options.limit:
            break
        row = parsed(line)
        if row is None:
            problems.add(number, "not a rollout")
            found.tasks += 1
            continue
        agent = agent_for(row, options, config)
        if agent not in config.agents():
            problems.add(number, unknown("agent", agent, config.agents()))
        else:
            found.agents.add(agent)
        key = hash(row["meta"]["key"])
        if key in found.places:
            problems.add(number, f"the key {row['meta']['key']!r} stands in the file twice; a rollout is scored once")
        found.places[key] = found.tasks
        found.add(content(row))
        found.repeated = found.repeated or row["meta"].get("rollout_index", 0) != 0
    problems.refuse()
    if not found.tasks:
        raise InputError(f"{options.input}: no rollouts in it")
    return found


def parsed(line: bytes) -> Json | None:
    """The rollout of one line, or None if there is none in it."""
    try:
        row: Json = loads(line, finite=True)
        rollout.split_key(row["meta"]["key"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return row


def content(row: Json) -> str:
    """A digest of what is scored, which the score does not change: two rollouts can have the same key."""
    return digest({name: row.get(name) for name in ("responses_create_params", "output")})


def mark_line(found: Survey, line: bytes) -> bool:
    """Note one line of the output; False if it is not a rollout."""
    row = parsed(line)
    if row is not None:
        found.mark(row["meta"]["key"], 0, content(row))
    return row is not None


def agent_for(row: Json, options: Options, config: Config) -> str:
    """Whose environment scores this row."""
    return options.agent or str(row["meta"].get("agent") or default_agent(config) or "")


def jobs(options: Options, found: Survey, config: Config) -> Iterator[Job]:
    """The rollouts still to score; the row stands where a task would."""
    for index, (_, line) in enumerate(read_lines(options.input)):
        if index >= found.tasks:
            return
        row = None if found.done[index] else parsed(line)
        if row is not None:
            meta = row["meta"]
            agent = agent_for(row, options, config)
            if index in found.taken:
                task, repeat = rollout.split_key(meta["key"])
                meta["key"] = f"{task}@{found.digest(index)}/{repeat}"
            yield Job(meta["key"], meta.get("task_index", index), meta.get("rollout_index", 0), agent, row)


async def score(job: Job, resources: Resources, around: Surroundings) -> Tried:
    """Verify one saved rollout. Its conversation and its times stay as they were."""
    row = job.task
    outcome: Kept | Failed
    try:
        with Trace() as trace, root("rollout") as spans:
            with blame(VerifyError, "not a rollout"):
                task, response = rollout.task_of(row), rollout.response_of(row)
            with span("verify"), blame(VerifyError, "verify"), uncancelled("verify"):
                session = await resources.open(task)
                try:
                    result = await resources.score(session, task, response)
                    check_reward(result.get("reward"))
                    check_numbers(result)
                finally:
                    with suppress(RolloutError), blame(VerifyError, "close_session"):
                        await resources.close(session)
        with blame(VerifyError, "the score is not JSON"):
            scored = rollout.rescored(row, task, result, verify_s=spans.total("verify"))
            encoded_at = time.perf_counter()
            outcome = Kept(scored, rollout.encode(scored), encoded_at)
    except RolloutError as error:
        meta = {name: value for name, value in row["meta"].items() if name not in ("timing", "scored")}
        outcome = failed(error, meta, account(spans, around), row)
    return Tried(outcome, spans, trace)


def default_output(source: Path) -> Path:
    """Where scores go when nobody says: beside the input."""
    return rollout.beside(source, "verified.jsonl")
