"""One try at one rollout: the agent runs, and out comes a row for the rollouts file or a line for the failures file."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from velodrome.collect.plan import Job
from velodrome.contracts import Agent
from velodrome.errors import AgentError, ModelError, RolloutError, TaskError, VerifyError, blame, describe
from velodrome.records import conversation, rollout
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.timing.spans import Span, root
from velodrome.timing.trace import Trace

Json = dict[str, Any]

_LONGEST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class Kept:
    """A finished rollout and its encoded line."""

    row: Json
    line: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed attempt, as it stands in the failures file but for the number of the attempt."""

    failure: Json


async def attempt(job: Job, agent: Agent | None, *, verify: bool) -> tuple[Kept | Failed, Span]:
    """Run the job once. Only a fault of ours raises."""
    meta: Json = {
        "key": job.key,
        "task_index": job.task_index,
        "rollout_index": job.rollout_index,
        "agent": job.agent,
        "schema": rollout.SCHEMA,
    }
    with Trace(), root("rollout") as spans:
        try:
            if job.problem is not None or agent is None:
                raise TaskError(job.problem or "no agent")
            with blame(AgentError, job.agent), uncancelled(job.agent):
                result = await agent.run(job.task, verify=verify)
            return _kept(job, result, dict(meta), spans, verify), spans
        except RolloutError as error:
            return failed(error, meta, spans), spans


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


def _kept(job: Job, result: Json, meta: Json, spans: Span, verify: bool) -> Kept:
    meta["finished_at"] = round(time.time(), 6)
    meta["timing"] = timing(spans)
    with blame(AgentError, f"{job.agent}: its result is not a rollout"):
        if verify:
            check_reward(result.get("reward"))
        row = rollout.make_rollout(job.task, result, meta, deferred=not verify)
    try:
        line = rollout.encode(row)
    except TypeError as error:
        raise unwritable(row, error) from error
    if len(line) > MAX_LINE_BYTES:
        raise AgentError(f"the rollout takes {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
    return Kept(row, line)


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
    if not math.isfinite(reward):
        raise VerifyError(f"the reward is {reward}")


def failed(error: RolloutError, meta: Json, spans: Span) -> Failed:
    """The line for the failures file."""
    failure = {
        **meta,
        "boundary": error.boundary,
        "error": str(error)[:_LONGEST_ERROR].encode(errors="backslashreplace").decode(),
        "finished_at": round(time.time(), 6),
        "timing": timing(spans),
        "partial": partial(error),
    }
    return Failed(failure)


def partial(error: RolloutError) -> list[Json]:
    """The conversation up to the error; without it if it cannot be written, which must not hide the error."""
    try:
        found = conversation.messages(error.partial or [])
        size = len(rollout.encode({"partial": found}))
    except TypeError:
        return []
    return found if size < MAX_LINE_BYTES // 2 else []


def timing(spans: Span) -> Json:
    """The parts of one rollout's time, in seconds; docs/rollouts.md#timing names them."""
    found = {
        "queue_s": 0.0,
        "model_s": 0.0,
        "tools_s": 0.0,
        "verify_s": 0.0,
        "total_s": round(spans.seconds, 6),
        "model_calls": 0,
    }
    for part in spans.children:
        if part.name == "model":
            found["model_calls"] += 1
        name = f"{part.name}_s"
        found[name] = round(found.get(name, 0.0) + part.seconds, 6)
        for below in part.children:
            if below.name in ("queue", "backoff"):
                name = f"{below.name}_s"
                found[name] = round(found.get(name, 0.0) + below.seconds, 6)
    retries = spans.count("retries")
    if retries:
        found["retries"] = int(retries)
    return found
