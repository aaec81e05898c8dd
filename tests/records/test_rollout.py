"""A row holds the conversation once, gives its task back, and its key can be read from its end alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.records.conversation import messages
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import beside, encode, key_in, make_rollout, rescored, response_of, split_key, task_of

TASK = {"responses_create_params": {"input": "15% of 240?"}, "expected_answer": "36", "tags": ["a"]}
TEXT = [{"type": "output_text", "text": "36", "annotations": []}]
USAGE = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "m",
    "status": "completed",
    "incomplete_details": None,
    "output": [{"type": "message", "role": "assistant", "status": "completed", "content": TEXT}],
    "usage": USAGE,
}
META = {"key": "t/0", "agent": "a"}


def result(**score: Any) -> dict[str, Any]:
    return {**TASK, "response": RESPONSE, **score}


def again(value: dict[str, Any]) -> dict[str, Any]:
    """The same value, no part of it the same object: as it comes over HTTP."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(value))
    return found


def test_a_row_holds_the_task_the_conversation_once_and_the_score():
    assert make_rollout(TASK, result(reward=1.0, accuracy=1), dict(META)) == {
        "responses_create_params": {"input": "15% of 240?"},
        "output": [{"role": "assistant", "content": "36"}],
        "response": {"id": "resp_1", "model": "m", "status": "completed", "content": "36"},
        "usage": USAGE,
        "expected_answer": "36",
        "tags": ["a"],
        "reward": 1.0,
        "accuracy": 1,
        "meta": {"key": "t/0", "agent": "a", "outcome": "finished", "scored": ["reward", "accuracy"]},
    }
    line = encode(make_rollout(TASK, result(reward=1.0), dict(META)))
    assert line.endswith(b',"meta":{"key":"t/0","agent":"a","outcome":"finished","scored":["reward"]}}\n')


def test_a_deferred_reward_is_null_whatever_the_task_has():
    task = {**TASK, "reward": 0.25}
    row = make_rollout(task, {**task, "response": RESPONSE}, dict(META), deferred=True)
    assert (row["reward"], row["meta"]["verification"]) == (None, "deferred")
    assert task_of(again(row)) == task


def test_the_task_comes_back_out_of_its_row_even_if_its_fields_have_names_a_row_needs():
    task = {**TASK, "output": "o", "response": "r", "usage": 1, "meta": {"key": "mine"}, "reward": 9, "difficulty": 1}
    row = make_rollout(task, {**task, **result(reward=1.0, difficulty=2)}, dict(META))
    assert row["meta"]["key"] == "t/0"
    assert (row["reward"], row["difficulty"]) == (1.0, 2)
    assert task_of(again(row)) == task


def test_task_fields_that_a_verifier_hands_back_are_still_the_tasks():
    row = make_rollout(TASK, again(result(reward=0.0, extracted="35")), dict(META))
    assert row["meta"]["scored"] == ["reward", "extracted"]
    assert task_of(row) == TASK


def test_the_response_a_verifier_saw_comes_back_out_of_the_row():
    back = response_of(again(make_rollout(TASK, result(reward=1.0), dict(META))))
    assert messages(back.pop("output")) == messages(RESPONSE["output"])
    assert back.pop("usage").items() >= USAGE.items()
    assert back.items() >= {name: value for name, value in RESPONSE.items() if name not in ("output", "usage")}.items()


def test_why_an_agent_stopped_is_in_the_row_and_in_the_response_that_is_made_of_it():
    stopped = {"incomplete_details": None, "metadata": {"stop": "max_steps", "own": "of the request"}}
    row = make_rollout(TASK, result(response={**RESPONSE, "status": "incomplete", **stopped}), dict(META))
    assert row["response"]["metadata"] == {"stop": "max_steps"}
    former = {**row, "response": {**row["response"], "incomplete_details": {"reason": "max_steps"}}}
    del former["response"]["metadata"]
    for each in (row, former):
        response = response_of(each)
        assert (response["status"], response["incomplete_details"]) == ("incomplete", None)
        assert response["metadata"] == {"stop": "max_steps"}
        assert RowFacts(each).stopped_by == "max_steps"
    labelled = {**RESPONSE, "metadata": {"stop": "my own label"}}  # the user's, of a response that is complete
    assert "metadata" not in make_rollout(TASK, result(response=labelled), dict(META))["response"]
    counted = make_rollout(TASK, result(response={**RESPONSE, "usage": "many"}), dict(META))
    assert counted["usage"] == {}  # a usage that is none is an empty object


def test_another_score_replaces_all_of_the_one_before():
    meta = {**META, "verification": "deferred", "timing": {"total_s": 2.0, "verify_s": 0.5}}
    row = make_rollout(TASK, result(reward=0.0, stale=1, accuracy=0), meta)
    task = task_of(row)
    new = rescored(row, task, {"reward": 1.0, "tags": ["b"], "output": "ignored"}, verify_s=0.25)
    assert new == {
        **TASK,
        "tags": ["b"],
        "output": row["output"],
        "response": row["response"],
        "usage": row["usage"],
        "reward": 1.0,
        "meta": {
            "key": "t/0",
            "agent": "a",
            "timing": {"total_s": 2.0, "verify_s": 0.5, "verify_later_s": 0.25},
            "outcome": "finished",
            "scored": ["reward", "tags"],
            "shadowed": {"tags": ["a"]},
        },
    }
    assert list(new)[-1] == "meta"
    assert task_of(again(new)) == TASK


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"a":1,"meta":{"key":"k/0"}}\n', "k/0"),
        (b'{"meta":{"key":"k/0","more":{"meta":{"key":"fake/0"}}}}', "k/0"),
        (b'{"x":"\\",\\"meta\\":{\\"key\\":\\"fake/0\\"}}","meta":{"key":"q\\"/0"}}', 'q"/0'),
        (b'{ "a": 1, "meta": { "key": "k/0" } }\r\n', "k/0"),
        (b'{"meta":{"key":"k/0"},"x":{"a":1,"meta":{"key":"fake"}}}', "k/0"),
        (b'{"a":1,"meta":{"key":"first"},"meta":{"key":"last"}}', "last"),
        (b'{"a":1,"meta":{"key":"text","key":5}}', None),
        (b'{"a":1,"meta":{"key":"k/0"}', None),
        (b'xxxxxx,"meta":{"key":"k/0"}}\n', None),
        (b'{"a":{"half":1,{"a":1,"meta":{"key":"k/0"}}\n', None),
        (b"[]", None),
    ],
)
def test_a_key_is_read_from_a_line_or_there_is_none(line: bytes, key: str | None):
    assert key_in(line) == key


def test_a_key_is_a_task_and_a_repeat_and_other_files_stand_beside_the_rollouts():
    assert [split_key(key) for key in ("t/0", "a/b#2/13")] == [("t", 0), ("a/b#2", 13)]
    for name, expected in (("r.jsonl", "r.failures.jsonl"), ("r.v2.jsonl.zst", "r.v2.failures.jsonl")):
        assert beside(Path("d") / name, "failures.jsonl") == Path("d") / expected


@pytest.mark.parametrize(
    ("status", "details", "stop", "outcome"),
    [
        ("completed", None, None, "finished"),
        ("completed", None, "max_steps", "finished"),  # a label of the user's
        ("incomplete", None, "max_steps", "steps"),
        ("incomplete", {"reason": "max_output_tokens"}, "max_steps", "tokens"),
        ("incomplete", None, "max_rollout_tokens", "tokens"),
        ("incomplete", None, "max_rollout_s", "time"),
        ("incomplete", None, "truncated", "truncated"),
        ("incomplete", {"reason": "content_filter"}, None, "content_filter"),
        ("incomplete", None, "a word of some server", "incomplete"),
        ("failed", None, None, "incomplete"),
        ("completed", {"reason": "max_output_tokens"}, None, "tokens"),  # a server that does not mind its status
        ("completed", {"reason": None}, None, "finished"),
    ],
)
def test_no_limit_looks_like_a_clean_finish_in_new_rows_and_in_old_ones(
    status: Any, details: Any, stop: Any, outcome: str
):
    response = {**RESPONSE, "status": status, "incomplete_details": details, "metadata": {"stop": stop}}
    row = make_rollout(TASK, result(response=response), dict(META))
    assert (row["meta"]["outcome"], RowFacts(row).outcome) == (outcome, outcome)
    del row["meta"]["outcome"]
    assert RowFacts(row).outcome == outcome
    assert RowFacts({**row, "meta": {**row["meta"], "outcome": ["finished"]}}).outcome == outcome


def test_the_turns_of_a_rollout_outlive_another_score():
    played = {"step_rewards": [0.0, 1.0], "terminated": True, "truncated": False, "players": {"x": {"output": []}}}
    task = {**TASK, "terminated": "mine"}
    row = again(make_rollout(task, {**task, **result(reward=1.0, stale=1), **played}, dict(META)))
    assert task_of(row) == task
    new = rescored(row, task_of(row), {"reward": 0.5}, verify_s=0.25)
    assert {name: new[name] for name in played} == played
    assert ("stale" in new, new["meta"]["scored"]) == (False, ["reward", *played])
    assert task_of(new) == task
