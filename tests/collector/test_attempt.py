"""One try: a row, or a failure with its boundary, whatever an agent does."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from velodrome.collector.attempt import Attempt, Failed, Kept, attempt
from velodrome.collector.plan import Job
from velodrome.errors import ModelError, StorageError, ToolError, VerifyError
from velodrome.records.rollout import encode

TASK = {"responses_create_params": {"input": "hi"}, "expected_answer": "36"}
RESPONSE = {"id": "r", "status": "completed", "output": [{"type": "message", "content": "36"}]}
JOB = Job("t/1", 4, 1, "solo", TASK)


class Solo:
    """An agent that does what a test says."""

    def __init__(self, act: Callable[[], Awaitable[Any]]) -> None:
        self._act = act
        self.asked: list[tuple[Any, bool]] = []

    async def run(self, task: Any, *, verify: bool = True) -> Any:
        self.asked.append((task, verify))
        return await self._act()


def returns(value: Any) -> Solo:
    async def act() -> Any:
        return value

    return Solo(act)


def raises(error: BaseException) -> Solo:
    async def act() -> Any:
        raise error

    return Solo(act)


def tried(agent: Solo | None, job: Job = JOB, *, verify: bool = True) -> Attempt:
    return asyncio.run(attempt(job, {} if agent is None else {"solo": agent}, verify=verify))  # type: ignore[dict-item]


def failure(agent: Solo | None, job: Job = JOB) -> dict[str, Any]:
    outcome = tried(agent, job)
    assert isinstance(outcome.result, Failed)
    result = dict(orjson.loads(encode(outcome.result.row)))  # as it stands in the file
    assert result.pop("finished_at") > 1e9
    assert result.pop("timing")["total_s"] >= 0
    place = result.pop("place", None)
    if place is not None:  # these agents are in this file
        assert place.startswith("tests/collector/test_attempt.py:")
        assert result["error"].endswith(f" ({place})")
        result["error"] = result["error"].removesuffix(f" ({place})")
    return result


def test_a_finished_rollout_is_a_line_and_its_facts():
    agent = returns({**TASK, "reward": 1.0, "response": RESPONSE})
    kept = tried(agent).result
    assert isinstance(kept, Kept)
    assert agent.asked == [(TASK, True)]
    row = orjson.loads(kept.line)
    meta = {**row["meta"]}
    assert (meta.pop("finished_at") > 1e9, meta.pop("timing")["total_s"] >= 0, meta.pop("outcome")) == (
        True,
        True,
        "finished",
    )
    bookkeeping = {"key": "t/1", "task_index": 4, "rollout_index": 1, "agent": "solo", "schema": 1}
    assert list(meta.items()) == [*bookkeeping.items(), ("scored", ["reward"])]
    assert (row["reward"], row["expected_answer"]) == (1.0, "36")
    assert (kept.facts.key, kept.facts.reward, kept.facts.size) == ("t/1", 1.0, len(kept.line))


def test_a_failure_names_boundary_and_error_and_keeps_the_conversation_so_far():
    error = ToolError("calculator: broke", partial=[{"type": "message", "content": "let me"}])
    assert failure(raises(error)) == {
        "key": "t/1",
        "task_index": 4,
        "rollout_index": 1,
        "agent": "solo",
        "schema": 1,
        "boundary": "tool",
        "error": "calculator: broke",
        "partial": [{"role": "assistant", "content": "let me"}],
        "responses_create_params": {"input": "hi"},
    }


@pytest.mark.parametrize(("asked", "told"), [("x" * 255_000, True), ("x" * 256_000, False), (object(), False)])
def test_a_failure_tells_what_was_asked_unless_that_is_huge_or_cannot_be_written(asked: Any, told: bool):
    task = {"responses_create_params": {"input": asked}}
    result = failure(raises(ModelError("503")), JOB._replace(task=task))
    assert result.get("responses_create_params") == (task["responses_create_params"] if told else None)


@pytest.mark.parametrize(
    ("error", "boundary", "text"),
    [
        (VerifyError("no"), "verify", "no"),
        (ZeroDivisionError("division by zero"), "agent", "solo: ZeroDivisionError: division by zero"),
        (asyncio.CancelledError(), "agent", "solo: something it waited for was cancelled"),
        (ToolError("\ud800 \x1b lone"), "tool", "\\ud800 \x1b lone"),
        (ModelError("x" * 10_000), "model", "x" * 2000),
    ],
)
def test_whatever_an_agent_raises_is_a_failure_with_a_boundary(error: BaseException, boundary: str, text: str):
    result = failure(raises(error))
    assert (result["boundary"], result["error"]) == (boundary, text)


@pytest.mark.parametrize("reward", [None, True, "1.0", math.nan, -math.inf, 1e308])
def test_a_reward_that_is_no_finite_number_is_the_verifiers_fault_and_no_zero(reward: Any):
    result = failure(returns({**TASK, "reward": reward, "response": RESPONSE}))
    assert (result["boundary"], "reward" in result) == ("verify", False)
    assert result["error"].startswith("the reward is ")


SCORED = {**TASK, "reward": 1.0}
ODD_TEXT = {**RESPONSE, "output": [{"type": "message", "content": "\ud800"}]}


@pytest.mark.parametrize(
    ("result", "boundary", "text"),
    [
        ({**SCORED, "response": {**RESPONSE, "usage": {"total_tokens": -5}}}, "model", "usage."),
        ({**SCORED, "response": ODD_TEXT}, "model", "the conversation is not JSON: "),
        *(({**SCORED, "loss": value, "response": RESPONSE}, "verify", "") for value in (1e308, math.nan, 2**70)),
        ({**SCORED, "extra": {1, 2}, "response": RESPONSE}, "verify", "the score is not JSON: "),
        *(
            (result, "agent", "solo: its result is not a rollout: ")
            for result in (None, SCORED, {**SCORED, "response": {"output": 5}})
        ),
    ],
)
def test_a_result_that_cannot_be_kept_is_the_fault_of_who_made_that_part(result: Any, boundary: str, text: str):
    collected = failure(returns(result))
    assert (collected["boundary"], "scored" in collected) == (boundary, False)
    assert collected["error"].startswith(text)


DEEP = orjson.loads(b"[" * 400 + b"]" * 400)


@pytest.mark.parametrize(
    ("partial", "kept"),
    [
        *(([item], [{"role": "other", "item": item}]) for item in ("text", None, {"type": "message", "content": 5})),
        *(([{"type": "odd", **field}], []) for field in ({"x": DEEP}, {"x": {1}}, {"\ud800": 1})),
    ],
)
def test_garbage_in_a_conversation_so_far_is_kept_where_it_can_be_written_and_hides_no_error(partial: Any, kept: Any):
    result = failure(raises(ModelError("garbage", partial=partial)))
    assert (result["boundary"], result["error"], result["partial"]) == ("model", "garbage", kept)


def test_a_row_that_went_bad_and_an_agent_that_is_not_there_are_the_inputs_fault():
    bad = Job("line 3/0", 2, 0, "", {}, "t.jsonl:3: the row changed")
    assert failure(returns({}), bad)["boundary"] == "input"
    assert (failure(None)["boundary"], failure(None)["error"]) == ("input", "no agent")


def test_a_fault_of_the_disk_and_a_real_cancellation_are_not_failures_of_the_rollout():
    with pytest.raises(StorageError):
        tried(raises(StorageError("full")))

    async def main() -> None:
        waiting = asyncio.Event()

        async def act() -> Any:
            waiting.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(attempt(JOB, {"solo": Solo(act)}, verify=True))  # type: ignore[dict-item]
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
