"""One try at one rollout: the agent runs, and out comes a row for the rollouts file or a line for the failures file."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from velodrome.collector.account import Surroundings, account
from velodrome.collector.plan import Job
from velodrome.contracts import Agent
from velodrome.errors import AgentError, Away, ModelError, RolloutError, TaskError, VerifyError, blame, describe
from velodrome.records import conversation, rollout
from velodrome.records.bounds import MAX_NUMBER, is_bounded, usage_flaw
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.timing.spans import Span, root
from velodrome.timing.trace import Trace

Json = dict[str, Any]

log = logging.getLogger(__name__)

_LONGEST_ERROR = 2000
_LONGEST_ASKED = 256_000  # bytes; a task can fail many times


class Kept(NamedTuple):
    """A finished rollout and its encoded line; encoding began at `encoded_at` (`time.perf_counter`)."""

    row: Json
    line: bytes
    encoded_at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed attempt, as it stands in the failures file but for the number of the attempt."""

    failure: Json
    away: Away | None = None  # the server that could not be reached, if that is why
    trace: str = ""  # the traceback, where somebody wants to see it


class Tried(NamedTuple):
    """How one attempt ended, where its time went, and the trace its calls belong to."""

    outcome: Kept | Failed
    spans: Span
    trace: Trace


async def attempt(
    job: Job, agent: Agent | None, *, verify: bool, around: Surroundings | None = None, recorded: bool = False
) -> Tried:
    """Run the job once. Only a fault of ours raises. `recorded` asks servers to tell their spans, for a trace."""
    meta: Json = {
        "key": job.key,
        **({"task_digest": job.digest} if job.digest else {}),
        "task_index": job.task_index,
        "rollout_index": job.rollout_index,
        "agent": job.agent,
        "schema": rollout.SCHEMA,
    }
    outcome: Kept | Failed
    try:
        with Trace(recorded=recorded) as trace, root("rollout") as spans:
            if job.problem is not None or agent is None:
                raise TaskError(job.problem or "no agent")
            with blame(AgentError, job.agent), uncancelled(job.agent):
                result = await agent.run(job.task, verify=verify)
        outcome = _kept(job, result, dict(meta), account(spans, around), verify)
    except RolloutError as error:
        outcome = failed(error, meta, account(spans, around), job.task)
    return Tried(outcome, spans, trace)


class uncancelled:
    """A cancellation that nobody asked this task for is a failure like any other; it must not lose the rollout."""

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


def _kept(job: Job, result: Json, meta: Json, timing: Json, verify: bool) -> Kept:
    meta["finished_at"] = round(time.time(), 6)
    meta["timing"] = timing
    with blame(AgentError, f"{job.agent}: its result is not a rollout"):
        if verify:
            check_reward(result.get("reward"))
        row = rollout.make_rollout(job.task, result, meta, deferred=not verify)
        check_numbers({name: row[name] for name in meta["scored"]})
        problem = usage_flaw(row["usage"])
        if problem is not None:
            raise ModelError(problem)
    encoded_at = time.perf_counter()
    try:
        line = rollout.encode(row)
    except TypeError as error:
        raise unwritable(row, error) from error
    if len(line) > MAX_LINE_BYTES:
        raise AgentError(f"the rollout takes {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
    return Kept(row, line, encoded_at)


def unwritable(row: Json, error: TypeError) -> RolloutError:
    """Whose fault it is that a row is not JSON: the model's if its conversation is not, else the verifier's."""
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
    """The line for the failures file."""
    place = {} if error.place is None else {"place": error.place}
    text = str(error)[:_LONGEST_ERROR] + (f" ({error.place})" if place else "")
    failure = {
        **meta,
        "boundary": error.boundary,
        "error": text.encode(errors="backslashreplace").decode(),
        **place,
        "finished_at": round(time.time(), 6),
        "timing": timing,
        "partial": partial(error),
        **asked(task),
    }
    shown = log.isEnabledFor(logging.INFO) and error.__cause__ is not None
    trace = "".join(traceback.format_exception(error.__cause__)) if shown else ""
    return Failed(failure, error.away, trace)


def asked(task: Json) -> Json:
    """What the task asked, so that a failure can be read alone; not what is huge or cannot be written."""
    found = {name: task[name] for name in ("responses_create_params",) if name in task}
    try:
        return found if len(rollout.encode(found)) <= _LONGEST_ASKED else {}
    except TypeError:
        return {}


def partial(error: RolloutError) -> list[Json]:
    """The conversation up to the error; without it if it cannot be written, which must not hide the error."""
    try:
        found = conversation.messages(error.partial or [])
        size = len(rollout.encode({"partial": found}))
    except TypeError:
        return []
    return found if size < MAX_LINE_BYTES // 2 else []
