"""One attempt at one rollout: run the agent, and turn its result into a line of the rollouts file or a failure."""

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
    """The line of a rollout, its facts for the readings, and the time to encode it."""

    line: bytes
    facts: RowFacts
    encode_s: float


@dataclass(slots=True)
class Failed:
    """A row of the failures file, without the number of the attempt."""

    row: Json
    away: Away | None = None  # the unreachable server that caused the failure
    refused: bool = False  # a server refused a call, and would refuse any other, too
    traceback: str = ""  # of a failure in foreign code, with -v


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
    """Run the job once. Failures are returned; with `raising` they are raised. Any other exception is a bug.

    `recorded` requests the spans of servers, and writes the trace header of the calls into the row.
    `recording` returns the recording of a rollout's model calls, by the key of the rollout.
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
        row_meta = {**meta, "finished_at": round(time.time(), 6), "timing": timing}
        kept = encode_row(row_of(job, result, row_meta, verify))
        return Attempt(job, kept, timing, kept.facts.total_tokens or 0)
    except RolloutError as error:
        if raising:
            raise
        return failed_attempt(job, error, meta, account(spans, around), spans)


def failed_attempt(job: Job, error: RolloutError, meta: Json, timing: Json, spans: Span) -> Attempt:
    """A failed attempt. Its tokens count, because they cost money."""
    return Attempt(job, failure_of(error, meta, timing, job.task), timing, int(spans.count("tokens")))


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
    """Turns `SystemExit`, and a cancellation by foreign code, into a failure of the rollout.

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


def encode_row(row: Json) -> Kept:
    """Encode the row as a line. A row that is not JSON, or too long, is a failure."""
    started = time.perf_counter()
    try:
        line = rollout.encode(row)
    except TypeError as error:
        raise encoding_error(row, error) from error
    if len(line) > MAX_LINE_BYTES:
        raise AgentError(f"the rollout takes {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
    return Kept(line, RowFacts(row, size=len(line)), time.perf_counter() - started)


def encoding_error(row: Json, error: TypeError) -> RolloutError:
    """The error for a row that is not JSON: of the model if its conversation is not JSON, else of the verifier."""
    try:
        rollout.encode({name: row[name] for name in ("output", "response", "usage")})
    except TypeError:
        return ModelError(f"the conversation is not JSON: {describe(error)}")
    return VerifyError(f"the score is not JSON: {describe(error)}")


def check_reward(reward: Any) -> None:
    """Check that the reward is a finite number. Anything else is a failure of the verifier, not a zero."""
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise VerifyError(f"the reward is not a number but {reward!r:.100}")
    if not is_bounded(reward):
        raise VerifyError(f"the reward is {reward!r:.40}, not a number up to {MAX_NUMBER:g}")


def check_numbers(score: Json) -> None:
    """Check that each number of a score is finite and within bounds, because scores are averaged."""
    for name, value in score.items():
        if isinstance(value, int | float) and not is_bounded(value):
            raise VerifyError(f'"{name}" is {value!r:.40}, not a number up to {MAX_NUMBER:g}')


def failure_of(error: RolloutError, meta: Json, timing: Json, task: Json) -> Failed:
    """The row of the failures file for an error."""
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
    refused = error.refused and error.boundary != "tool"  # the model chooses what a tool requests
    return Failed(row, error.away, refused, lines.encode(errors="backslashreplace").decode())


def request_of(task: Json) -> Json:
    """The request of the task, for the failure's row; empty if it is huge or not JSON."""
    request = {name: task[name] for name in ("responses_create_params",) if name in task}
    try:
        return request if len(rollout.encode(request)) <= _LONGEST_REQUEST else {}
    except TypeError:
        return {}


def partial(error: RolloutError) -> list[Json]:
    """The conversation up to the error; empty if it cannot be encoded, because that must not hide the error."""
    try:
        messages = conversation.messages(error.partial or [])
        size = len(rollout.encode({"partial": messages}))
    except TypeError:
        return []
    return messages if size < MAX_LINE_BYTES // 2 else []
