"""One try: a row, or a failure with its boundary, whatever an agent does."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from velodrome.collector.attempt import Attempt, attempt
from velodrome.collector.plan import Job
from velodrome.errors import ModelError, StorageError, ToolError, VerifyError
from velodrome.records.rollout import encode
from velodrome.timing.spans import span, tally

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
    assert outcome.failure is not None
    result = dict(orjson.loads(encode(outcome.failure)))  # as it stands in the file
    assert result.pop("finished_at") > 1e9
    assert result.pop("timing")["total_s"] >= 0
    place = result.pop("place", None)
    if place is not None:  # these agents are in this file
        assert place.startswith("tests/collector/test_attempt.py:")
        assert result["error"].endswith(f" ({place})")
        result["error"] = result["error"].removesuffix(f" ({place})")
    return result


def blamed(agent: Solo | None) -> tuple[str, str]:
    result = failure(agent)
    return result["boundary"], result["error"]


def test_a_finished_rollout_is_a_line_and_its_facts():
    agent = returns({**TASK, "reward": 1.0, "response": RESPONSE})
    outcome = tried(agent)
    assert outcome.line is not None
    assert outcome.facts is not None
    assert agent.asked == [(TASK, True)]
    row = orjson.loads(outcome.line)
    meta = row["meta"]
    assert next(iter(meta)) == "key"
    assert {name: meta[name] for name in ("key", "task_index", "rollout_index", "agent", "schema", "scored")} == {
        "key": "t/1",
        "task_index": 4,
        "rollout_index": 1,
        "agent": "solo",
        "schema": 1,
        "scored": ["reward"],
    }
    assert (row["reward"], row["expected_answer"]) == (1.0, "36")
    assert (outcome.facts.key, outcome.facts.reward, outcome.facts.size) == ("t/1", 1.0, len(outcome.line))


def test_a_deferred_rollout_needs_no_reward():
    agent = returns({**TASK, "response": RESPONSE})
    outcome = tried(agent, verify=False)
    assert outcome.line is not None
    assert outcome.facts is not None
    assert agent.asked == [(TASK, False)]
    assert outcome.facts.deferred
    assert orjson.loads(outcome.line)["reward"] is None


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


def test_a_failure_tells_what_was_asked_unless_that_is_huge_or_cannot_be_written():
    error = ModelError("503")
    for params in ({"input": "x" * 256_000}, {"input": object()}):
        assert "responses_create_params" not in failure(
            raises(error), JOB._replace(task={"responses_create_params": params})
        )
    assert "responses_create_params" not in failure(raises(error), JOB._replace(task={}))
    long = {"input": "x" * 255_000}
    result = failure(raises(error), JOB._replace(task={"responses_create_params": long}))
    assert result["responses_create_params"] == long


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModelError("503", status=503), ("model", "503")),
        (VerifyError("no"), ("verify", "no")),
        (ZeroDivisionError("division by zero"), ("agent", "solo: ZeroDivisionError: division by zero")),
        (TimeoutError(), ("agent", "solo: TimeoutError")),
        (RecursionError("deep"), ("agent", "solo: RecursionError: deep")),
        (asyncio.CancelledError(), ("agent", "solo: something it waited for was cancelled")),
        (ToolError("\ud800 \x1b lone"), ("tool", "\\ud800 \x1b lone")),
    ],
)
def test_whatever_an_agent_raises_is_a_failure_with_a_boundary(error: BaseException, expected: tuple[str, str]):
    assert blamed(raises(error)) == expected


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (None, "the reward is not a number but None"),
        (True, "the reward is not a number but True"),
        ("1.0", "the reward is not a number but '1.0'"),
        (math.nan, "the reward is nan, not a number up to 1e+100"),
        (-math.inf, "the reward is -inf, not a number up to 1e+100"),
        (1e308, "the reward is 1e+308, not a number up to 1e+100"),
    ],
)
def test_a_reward_that_is_no_finite_number_is_the_verifiers_fault_and_no_zero(reward: Any, text: str):
    assert blamed(returns({**TASK, "reward": reward, "response": RESPONSE})) == ("verify", text)


@pytest.mark.parametrize("usage", [{"total_tokens": 2**64 - 1}, {"total_tokens": -5}, {"details": {"x_tokens": 2.5}}])
def test_token_counts_of_any_agent_that_cannot_be_true_are_the_models_fault(usage: Any):
    boundary, error = blamed(returns({**TASK, "reward": 1.0, "response": {**RESPONSE, "usage": usage}}))
    assert (boundary, error.startswith("usage.")) == ("model", True)


@pytest.mark.parametrize("value", [1e308, math.inf, math.nan, 2**70])
def test_a_number_of_the_score_that_cannot_be_added_up_is_the_verifiers_fault(value: Any):
    boundary, _ = blamed(returns({**TASK, "reward": 1.0, "loss": value, "response": RESPONSE}))
    assert boundary == "verify"


@pytest.mark.parametrize(
    "result", [None, "text", {**TASK, "reward": 1.0}, {**TASK, "reward": 1.0, "response": {"output": 5}}]
)
def test_a_result_that_is_no_rollout_is_the_agents_fault(result: Any):
    boundary, text = blamed(returns(result))
    assert boundary == "agent"
    assert text.startswith("solo: its result is not a rollout: ")


def test_a_score_that_is_not_json_is_the_verifiers_fault():
    result = {**TASK, "reward": 1.0, "extra": {1, 2}, "response": RESPONSE}
    collected = failure(returns(result))
    assert (collected["boundary"], collected["error"][:25]) == ("verify", "the score is not JSON: Ty")
    assert "scored" not in collected


def test_a_conversation_that_is_not_json_is_the_models_fault():
    response = {**RESPONSE, "output": [{"type": "message", "content": "\ud800"}]}
    boundary, text = blamed(returns({**TASK, "reward": 1.0, "response": response}))
    assert (boundary, text[:33]) == ("model", "the conversation is not JSON: Typ")


def deep(levels: int) -> Any:
    result: Any = []
    for _ in range(levels):
        result = [result]
    return result


@pytest.mark.parametrize(
    "partial",
    [["text", None, 5], [{"type": "function_call", "call_id": ["x"], "name": {}}], [{"type": "message", "content": 5}]],
)
def test_garbage_in_a_conversation_so_far_is_kept_and_stops_nobody(partial: list[Any]):
    result = failure(raises(ModelError("garbage", partial=partial)))
    assert result["partial"] == [{"role": "other", "item": item} for item in partial]


@pytest.mark.parametrize(
    "item", [{"type": "odd", "x": deep(400)}, {"type": "odd", "x": {1}}, {"type": "odd", "\ud800": 1}]
)
def test_a_conversation_so_far_that_cannot_be_written_does_not_hide_the_error(item: Any):
    result = failure(raises(ModelError("garbage", partial=[item])))
    assert (result["boundary"], result["error"], result["partial"]) == ("model", "garbage", [])


def test_an_endless_error_is_cut():
    assert len(blamed(raises(ModelError("x" * 10_000)))[1]) == 2000


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


def test_a_rollout_leaves_no_cycle_for_the_garbage_collector():
    async def act() -> Any:
        with span("model"), span("backoff"):
            tally("retries")
        return {**TASK, "reward": 1.0, "response": RESPONSE}

    async def main() -> int:
        await attempt(JOB, {"solo": Solo(act)}, verify=True)  # type: ignore[dict-item]
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await attempt(JOB, {"solo": Solo(act)}, verify=True)  # type: ignore[dict-item]
            return gc.collect()
        finally:
            gc.enable()

    assert asyncio.run(main()) == 0
