"""Score a saved file: rollouts whose verification was deferred, or finished ones with another config.

The conversation is read from the file and passed to the same environment code. Scored rollouts go to a new file under
the same keys, so an interrupted pass resumes and nothing is overwritten. A row without an expected answer is refused
before anything runs, since its score would be meaningless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from velodrome.collector.account import account
from velodrome.collector.agents import Agents
from velodrome.collector.attempt import (
    Attempt,
    check_numbers,
    check_reward,
    encode_row,
    failed_attempt,
    uncancelled,
)
from velodrome.collector.collection import QUIET, Surface, conduct
from velodrome.collector.keys import Earlier, Entry, has_other, read_earlier
from velodrome.collector.plan import InputProblems, Job, Plan, Planned, key_conflict_error
from velodrome.collector.result import Run
from velodrome.collector.runfile import make_recipe
from velodrome.collector.settings import VerifySettings
from velodrome.collector.tasks import TaskFiles
from velodrome.collector.work import RunJob
from velodrome.context import RolloutContext, rollout_seed
from velodrome.contracts import Resources
from velodrome.errors import InputError, RolloutError, VerifyError, blame
from velodrome.records import rollout
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.other_files import foreign_file
from velodrome.records.task import ANSWER_KEYS, digest, hashed
from velodrome.serving.components import unknown
from velodrome.timing.spans import root, span

Json = dict[str, Any]

_EXAMPLES = "data/example.jsonl"
_TO_HAVE_FIELDS = (
    "hint: import the rollouts again with their *_materialized_inputs.jsonl beside them, or add the fields"
)


async def verify(settings: VerifySettings, agents: Agents, surface: Surface = QUIET) -> Run:
    """Score every rollout of the input that is not in the output yet."""
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
        pending_jobs = Planned(jobs(settings, settings.input.absolute(), plan, agents))
        return await conduct(settings, plan, pending_jobs, work, recipe, agents, earlier, surface)
    finally:
        await agents.aclose()


@dataclass(frozen=True)
class Scoring:
    """Score rollouts with the environments of agents."""

    agents: Agents
    names: Collection[str]

    def connect(self, around: Json) -> RunJob:
        """The function that scores one rollout."""
        return partial(score, environments=self.agents.environments(self.names), around=around)

    async def aclose(self) -> None:
        """Close the components of a configuration."""
        await self.agents.aclose()


def survey(settings: VerifySettings, source: Path, agents: Agents, earlier: Earlier) -> Plan:
    """Check that every line is a rollout of a known agent, and plan its scoring."""
    foreign = foreign_file(source)
    if foreign is not None:
        raise InputError(foreign)
    place = TaskFiles([source]).place
    plan, problems, rows_read = Plan(by_task=False), InputProblems(place), 0
    keys: set[int] = set()
    conflicts: list[tuple[int, str, str]] = []  # line number, key and digest
    needed_by = cache(lambda agent: needed_fields(agents.environment_folder(agent)))
    for line_number, line in read_lines(source):
        if settings.limit is not None and rows_read >= settings.limit:
            break
        rows_read += 1
        row = parse_rollout(line)
        if row is None:
            problems.add(line_number, "not a rollout")
            continue
        agent = agent_for(row, settings, agents)
        if agent not in agents.names:
            problems.add(line_number, unknown("agent", agent, list(agents.names)))
        elif "scored" not in row["meta"]:  # imported without its task
            for name in needed_by(agent):
                if row.get(name) is None:
                    problems.add(
                        line_number, f'no "{name}", which every example task of {agent} has; {_TO_HAVE_FIELDS}'
                    )
        key = hashed(row["meta"]["key"])
        if key in keys:
            problems.add(line_number, f"the key {row['meta']['key']!r} is in the file twice; a rollout is scored once")
        keys.add(key)
        plan.agents.add(agent)
        content_digest, rollouts = conversation_digest(row), earlier.rollouts(key)
        if has_other(rollouts, content_digest):
            conflicts.append((line_number, row["meta"]["key"], content_digest))
            task, repeat = rollout.split_key(row["meta"]["key"])
            plan.suffixes[plan.tasks] = new_key = f"{task}@{content_digest}/{repeat}"
            key = hashed(new_key)
            rollouts += earlier.rollouts(key)
        plan.add(key, content_digest, rollouts)
        plan.repeated = plan.repeated or row["meta"].get("rollout_index", 0) != 0
    problems.refuse()
    if conflicts and not settings.allow_mixed:
        raise key_conflict_error(conflicts, place, earlier.output)
    if not plan.tasks:
        raise InputError(f"{source}: no rollouts in it")
    return plan


def parse_rollout(line: bytes) -> Json | None:
    """The rollout on a line, or None if the line is not a rollout."""
    try:
        row: Json = loads(line, finite=True)
        rollout.split_key(row["meta"]["key"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return row


def conversation_digest(row: Json) -> str:
    """A digest of the conversation, which a score does not change: two rollouts can have the same key."""
    return digest({name: row.get(name) for name in ("responses_create_params", "output")})


def entry_of(line: bytes) -> Entry | None:
    """The key and the digest of a line of the output; None if it is not a rollout."""
    row = parse_rollout(line)
    return None if row is None else (row["meta"]["key"], 0, conversation_digest(row))


def agent_for(row: Json, settings: VerifySettings, agents: Agents) -> str:
    """The agent whose environment scores this row. A live environment scores every row."""
    return settings.agent or str(agents.sole or row["meta"].get("agent") or agents.default or "")


def jobs(settings: VerifySettings, source: Path, plan: Plan, agents: Agents) -> Iterator[Job]:
    """The rollouts still to score; the row takes the place of a task."""
    for index, (_, line) in enumerate(read_lines(source)):
        if index >= plan.tasks:
            return
        if plan.done[index]:
            continue
        row = parse_rollout(line)
        if row is None:
            continue
        meta = row["meta"]
        meta["key"] = plan.suffixes.get(index, meta["key"])
        task_index, rollout_index = meta.get("task_index", index), meta.get("rollout_index", 0)
        agent, digest = agent_for(row, settings, agents), plan.digest(index)
        yield Job(meta["key"], task_index, rollout_index, agent, row, digest=digest, place=index, seed=settings.seed)


async def score(job: Job, environments: Mapping[str, Resources], around: Json) -> Attempt:
    """Verify one saved rollout. Its conversation and its times stay as they were."""
    row, environment = job.task, environments[job.agent]
    with RolloutContext(seed=rollout_seed(job.seed, job.key)), root("rollout") as spans:
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
                total_s = spans.total("verify")
                kept = encode_row(rollout.rescored(row, task, result, verify_s=total_s))
            return Attempt(job, kept, {"total_s": total_s}, 0)
        except RolloutError as error:
            meta = {name: value for name, value in row["meta"].items() if name not in ("timing", "scored")}
            return failed_attempt(job, error, meta, account(spans, around), spans)


def default_output(source: Path) -> Path:
    """The default output, beside the input."""
    return rollout.beside(source, "verified.jsonl")


def needed_fields(folder: Path | None) -> set[str]:
    """The answer fields that every example task of an environment has: its `verify` needs them."""
    if folder is None:
        return set()
    needed: set[str] | None = None
    try:
        for _, line in read_lines(folder / _EXAMPLES):
            example = loads(line)
            present = {name for name in ANSWER_KEYS if example.get(name) is not None}
            needed = present if needed is None else needed & present
    except (InputError, ValueError, AttributeError):  # no examples, or broken ones: nothing is known
        return set()
    return needed or set()
