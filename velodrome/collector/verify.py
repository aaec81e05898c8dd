"""Score a saved file: rollouts whose verification was deferred, or finished ones with another config.

The conversation is read from the file and given to the same environment code. Scored rollouts go to a new file under
the same keys, so an interrupted pass resumes and nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from velodrome.collector.account import Surroundings, account
from velodrome.collector.agents import Agents
from velodrome.collector.attempt import Attempt, check_numbers, check_reward, encode, fail, uncancelled
from velodrome.collector.collection import QUIET, Surface, conduct
from velodrome.collector.collector import Collector
from velodrome.collector.keys import Earlier, Entry, name_hash, read_earlier
from velodrome.collector.pace import Stop
from velodrome.collector.plan import InputProblems, Job, Plan, Planned, refuse_taken
from velodrome.collector.planning.task_sources import TaskFile
from velodrome.collector.result import Run
from velodrome.collector.runfile import make_recipe
from velodrome.collector.settings import VerifySettings
from velodrome.collector.work import RunJob
from velodrome.contracts import Resources
from velodrome.errors import InputError, RolloutError, VerifyError, blame
from velodrome.records import rollout
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.other_files import foreign_file
from velodrome.records.task import digest
from velodrome.seeds import rollout_seed
from velodrome.serving.connect import unknown
from velodrome.timing.spans import root, span
from velodrome.timing.trace import Trace

Json = dict[str, Any]


async def verify(settings: VerifySettings, agents: Agents, surface: Surface = QUIET) -> Run:
    """Score every rollout of the input that the output does not have yet."""
    try:
        if settings.input is None:
            raise InputError("no input: give a file of rollouts")
        earlier = read_earlier(None if settings.overwrite else settings.output, entry_of, by_task=False)
        plan = survey(settings, settings.input, agents, earlier)
        environments = agents.environments(plan.agents)
        for name, environment in environments.items():
            if not await environment.deferrable():
                raise InputError(
                    f"{name}: its verify reads the session of the rollout, which is gone; it cannot score a file"
                )
        recipe = make_recipe(agents.recipe(environments, scoring=True), {}, deferred=False, seed=settings.seed)
        work = Scoring(agents, frozenset(environments))
        waiting = Planned(jobs(settings, settings.input, plan, agents))
        collector = Collector(settings, plan, waiting, Surroundings(), surface.stop or Stop())
        return await conduct(collector, work, recipe, agents, earlier, surface)
    finally:
        await agents.aclose()


@dataclass(frozen=True)
class Scoring:
    """Score rollouts with the environments of agents."""

    agents: Agents
    names: Collection[str]

    def connect(self, around: Surroundings) -> RunJob:
        """The function that scores one rollout."""
        return partial(score, environments=self.agents.environments(self.names), around=around)

    async def aclose(self) -> None:
        """Close the components of a configuration."""
        await self.agents.aclose()


def survey(settings: VerifySettings, source: Path, agents: Agents, earlier: Earlier) -> Plan:
    """Every line must be a rollout of an agent that is known."""
    foreign = foreign_file(source)
    if foreign is not None:
        raise InputError(foreign)
    plan, problems, read = Plan(by_task=False), InputProblems(TaskFile(source).place), 0
    keys: set[int] = set()
    for number, line in read_lines(source):
        if settings.limit is not None and read >= settings.limit:
            break
        read += 1
        row = parsed(line)
        if row is None:
            problems.add(number, "not a rollout")
            continue
        agent = agent_for(row, settings, agents)
        if agent not in agents.names:
            problems.add(number, unknown("agent", agent, list(agents.names)))
        key = name_hash(row["meta"]["key"])
        if key in keys:
            problems.add(number, f"the key {row['meta']['key']!r} is in the file twice; a rollout is scored once")
        keys.add(key)
        plan.agents.add(agent)
        plan.add(key, content(row))
        plan.repeated = plan.repeated or row["meta"].get("rollout_index", 0) != 0
    problems.refuse()
    if not plan.tasks:
        raise InputError(f"{source}: no rollouts in it")
    taken = plan.mark(earlier)
    if taken:
        _rename(settings, source, plan, taken, earlier)
    return plan


def _rename(settings: VerifySettings, source: Path, plan: Plan, taken: list[int], earlier: Earlier) -> None:
    """Rollouts whose key the output has with other content get keys of their own, or are refused."""
    wanted = set(taken)
    for index, (number, line) in enumerate(read_lines(source)):
        if index in wanted:
            key, scored = (parsed(line) or {})["meta"]["key"], plan.digest(index)
            if not settings.allow_mixed:
                refuse_taken([(number, key, scored)], len(taken), TaskFile(source).place, earlier.output)
            task, repeat = rollout.split_key(key)
            plan.suffixes[index] = f"{task}@{scored}/{repeat}"
            plan.names[index] = name_hash(plan.suffixes[index])
    plan.mark(earlier)


def parsed(line: bytes) -> Json | None:
    """The rollout of one line, or None if it is not one."""
    try:
        row: Json = loads(line, finite=True)
        rollout.split_key(row["meta"]["key"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return row


def content(row: Json) -> str:
    """A digest of what is scored, which the score does not change: two rollouts can have the same key."""
    return digest({name: row.get(name) for name in ("responses_create_params", "output")})


def entry_of(line: bytes) -> Entry | None:
    """The key and content of a line of the output; None if it is not a rollout."""
    row = parsed(line)
    return None if row is None else (row["meta"]["key"], 0, content(row))


def agent_for(row: Json, settings: VerifySettings, agents: Agents) -> str:
    """Whose environment scores this row. A live environment scores every row."""
    return settings.agent or str(agents.sole or row["meta"].get("agent") or agents.default or "")


def jobs(settings: VerifySettings, source: Path, plan: Plan, agents: Agents) -> Iterator[Job]:
    """The rollouts still to score; the row takes the place of a task."""
    for index, (_, line) in enumerate(read_lines(source)):
        if index >= plan.tasks:
            return
        row = None if plan.done[index] else parsed(line)
        if row is not None:
            meta = row["meta"]
            meta["key"] = plan.suffixes.get(index, meta["key"])
            agent = agent_for(row, settings, agents)
            repeat = meta.get("rollout_index", 0)
            task = meta.get("task_index", index)
            yield Job(meta["key"], task, repeat, agent, row, None, plan.digest(index), index, settings.seed)


async def score(job: Job, environments: Mapping[str, Resources], around: Surroundings) -> Attempt:
    """Verify one saved rollout. Its conversation and its times stay as they were."""
    row, environment = job.task, environments[job.agent]
    with Trace() as trace, root("rollout") as spans, rollout_seed(job.seed, job.key):
        made = Attempt(job.key, job.place, job.task_index, job.rollout_index, job.agent, spans, trace, job.digest)
        try:
            with blame(VerifyError, "not a rollout"):
                task, response = rollout.task_of(row), rollout.response_of(row)
            with span("verify"), blame(VerifyError, "verify"), uncancelled("verify"):
                session = await environment.open(task)
                try:
                    result = await environment.score(session, task, response)
                    check_reward(result.get("reward"))
                    check_numbers(result)
                finally:
                    with suppress(RolloutError), blame(VerifyError, "close_session"):
                        await environment.close(session)
            with blame(VerifyError, "the score is not JSON"):
                made.total_s = spans.total("verify")
                encode(made, rollout.rescored(row, task, result, verify_s=made.total_s))
        except RolloutError as error:
            meta = {name: value for name, value in row["meta"].items() if name not in ("timing", "scored")}
            fail(made, error, meta, account(spans, around), row)
    return made


def default_output(source: Path) -> Path:
    """Where scores go by default: beside the input."""
    return rollout.beside(source, "verified.jsonl")
