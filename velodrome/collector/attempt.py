"""One attempt at one rollout: the agent runs, and what it returns is a line for the rollouts file, or a failure."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from velodrome.collector.account import account
from velodrome.collector.plan import Job
from velodrome.context import RolloutContext, rollout_seed
from velodrome.contracts import Agent
from velodrome.errors import AgentError, Away, ModelError, RolloutError, TaskError, VerifyError, blame, describe
from velodrome.records import conversation, rollout
from velodrome.records.bounds import MAX_NUMBER, is_bounded, usage_flaw
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.timing.spans import Span, root

Json = dict[str, Any]

log = logging.getLogger(__name__)

_LONGEST_ERROR = 2000
_LONGEST_REQUEST = 256_000  # bytes; a task can fail many times


@dataclass(slots=True)
class Kept:
    """The line of a rollout, what readings need of it, and how long it took to encode."""

    line: bytes
    facts: RowFacts
    encode_s: float


@dataclass(slots=True)
class Failed:
    """A row of the failures file, without the number of the attempt."""

    row: Json
    away: Away | None = None  # the server that could not be reached, if that is why it failed
    refused: bool = False  # by a server that would refuse any other rollout, too, if that is why it failed
    traceback: str = ""  # of a failure in foreign code, where somebody wants to see it


@dataclass(slots=True)
class Attempt:
    """One finished attempt at a job."""

    job: Job
    result: Kept | Failed
    timing: Json  # as in its row
    tokens: int


async def attempt(
    job: Job,
    agents: Mapping[str, Agent],
    *,
    verify: bool,
    around: Json | None = None,
    recorded: bool = False,
    recording: Callable[[str], Any] | None = None,
    raising: bool = False,
) -> Attempt:
    """Run the job once. Only a fault of ours raises, unless `raising` is set: then a failure does, too.

    `recorded` asks servers for their spans, and writes the header that calls carried into the row: for a trace.
    `recording` makes what records the model calls of the rollout with a key.
    """
    meta, spans = meta_of(job), root("rollout")
    context = RolloutContext(seed=rollout_seed(job.seed, job.key), sampled=recorded)
    context.recording = None if recording is None else recording(job.key)
    if recorded:
        meta["trace"] = context.trace
    try:
        with context, spans:
            agent = agents.get(job.agent)
            if job.problem is not None or agent is None:
                raise TaskError(job.problem or "no agent")
            with blame(AgentError, job.agent), uncancelled(job.agent):
                result = await agent.run(job.task, verify=verify)
        timing = account(spans, around)
        whole = {**meta, "finished_at": round(time.time(), 6), "timing": timing}
        kept = encoded(row_of(job, result, whole, verify))
        return Attempt(job, kept, timing, kept.facts.total_tokens or 0)
    except RolloutError as error:
        if raising:
            raise
        return failed_attempt(job, error, meta, account(spans, around), spans)


def failed_attempt(job: Job, error: RolloutError, meta: Json, timing: Json, spans: Span) -> Attempt:
    """A failed attempt. Its tokens count, since they were paid for."""
    return Attempt(job, failed(error, meta, timing, job.task), timing, int(spans.count("tokens")))


def meta_of(job: Job) -> Json:
    """The fields of `meta` that each row of a job has."""
    return {
        "key": job.key,
        **({"task_digest": job.digest} if job.digest else {}),
        "task_index": job.task_index,
        "rollout_index": job.rollout_index,
        "agent": job.agent,
        "schema": rollout.SCHEMA,
    }


class uncancelled:
    """Turns `SystemExit`, and a cancellation that nobody requested, into a failure of the rollout.

    Ctrl-C and a cancellation of this task pass.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise AgentError(f"{self._what}: something it waited for was cancelled") from error
        elif error is not None and not isinstance(error, Exception | KeyboardInterrupt | GeneratorExit):
            raise AgentError(f"{self._what}: {describe(error)}") from error


def row_of(job: Job, result: Json, meta: Json, verify: bool) -> Json:
    """The row of an agent's result."""
    with blame(AgentError, f"{job.agent}: its result is not a rollout"):
        if verify:
            check_reward(result.get("reward"))
        row = rollout.make_rollout(job.task, result, meta, deferred=not verify)
        check_numbers({name: row[name] for name in meta["scored"]})
        problem = usage_flaw(row["usage"])
        if problem is not None:
            raise ModelError(problem)
    return row


def encoded(row: Json) -> Kept:
    """The row as a line."""
    begun = time.perf_counter()
    try:
        line = rollout.encode(row)
    except TypeError as error:
        raise unwritable(row, error) from error
    if len(line) > MAX_LINE_BYTES:
        raise AgentError(f"the rollout takes {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
    return Kept(line, RowFacts(row, size=len(line)), time.perf_counter() - begun)


def unwritable(row: Json, error: TypeError) -> RolloutError:
    """The error of a row that is not JSON: the model's if its conversation is not, else the verifier's."""
    try:
        rollout.encode({name: row[name] for name in ("output", "response", "usage")})
    except TypeError:
        return ModelError(f"the conversation is not JSON: {describe(error)}")
    return VerifyError(f"the score is not JSON: {describe(error)}")


def check_reward(reward: Any) -> None:
    """A reward is a finite number; anything else is the verifier's fault, not a zero."""
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise VerifyError(f"the reward is not a number but {reward!r:.100}")
    if not is_bounded(reward):
        raise VerifyError(f"the reward is {reward!r:.40}, not a number up to {MAX_NUMBER:g}")


def check_numbers(score: Json) -> None:
    """The numbers of a score are averaged, so each is finite and within bounds."""
    for name, value in score.items():
        if isinstance(value, int | float) and not is_bounded(value):
            raise VerifyError(f'"{name}" is {value!r:.40}, not a number up to {MAX_NUMBER:g}')


def failed(error: RolloutError, meta: Json, timing: Json, task: Json) -> Failed:
    """The failed attempt of an error."""
    place = {} if error.place is None else {"place": error.place}
    text = str(error)[:_LONGEST_ERROR] + (f" ({error.place})" if place else "")
    lines = ""
    if error.__cause__ is not None and log.isEnabledFor(logging.INFO):
        lines = "".join(traceback.format_exception(error.__cause__))
    row = {
        **meta,
        "boundary": error.boundary,
        "error": text.encode(errors="backslashreplace").decode(),
        **place,
        "finished_at": round(time.time(), 6),
        "timing": timing,
        "partial": partial(error),
        **request_of(task),
    }
    refused = error.refused and error.boundary != "tool"  # what a tool asks for is the model's choice
    return Failed(row, error.away, refused, lines.encode(errors="backslashreplace").decode())


def request_of(task: Json) -> Json:
    """The request of the task, so that a failure can be read alone; nothing if it is huge or not JSON."""
    request = {name: task[name] for name in ("responses_create_params",) if name in task}
    try:
        return request if len(rollout.encode(request)) <= _LONGEST_REQUEST else {}
    except TypeError:
        return {}


def partial(error: RolloutError) -> list[Json]:
    """The conversation up to the error; nothing if it cannot be written, which must not hide the error."""
    try:
        messages = conversation.messages(error.partial or [])
        size = len(rollout.encode({"partial": messages}))
    except TypeError:
        return []
    return messages if size < MAX_LINE_BYTES // 2 else []
