"""A row as typed facts: what a rollout says, what of it is wrong, and never an exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.records.facts import RowFacts
from velodrome.records.mending import LATEST_S, LONGEST_S
from velodrome.records.row_times import PARTS

ROW: dict[str, Any] = {
    "id": 7,
    "responses_create_params": {
        "instructions": "Be brief.",
        "input": [
            {"role": "system", "content": "You add."},
            {"role": "user", "content": [{"type": "input_text", "text": "Example?"}]},
            {"role": "user", "content": "15% of 240?"},
        ],
        "tools": [{"type": "function", "name": "calculator"}, {"type": "function", "function": {"name": "search"}}],
    },
    "output": [
        {"role": "assistant", "tool_calls": [{"name": "calculator", "arguments": '{"x": 1}'}]},
        {"role": "tool", "name": "calculator", "content": "36.0"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]},
        {"role": "assistant", "reasoning_content": "Hm.", "content": "36"},
    ],
    "response": {"model": "m", "status": "incomplete", "metadata": {"stop": "max_steps"}, "content": "36"},
    "usage": {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30},
    "reward": 1.0,
    "flag": True,
    "score": 0.25,
    "drift": float("nan"),
    "slope": float("inf"),
    "meta": {
        "key": "a/b/3",
        "task_digest": "d1",
        "agent": "x",
        "finished_at": 50.0,
        "timing": {"total_s": 4.0, "model_s": 2.0, "queue_s": 0.5, "verify_s": 0.5, "other_s": 1.0, "retries": 2},
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    """The row with other values; `meta__key` stands for `meta.key`."""
    row = {name: dict(part) if isinstance(part, dict) else part for name, part in ROW.items()}
    for path, value in fields.items():
        *above, name = path.split("__")
        part = row
        for each in above:
            part = part[each]
        part[name] = value
    return row


def test_a_rollout_says_who_it_is_how_it_went_and_how_long_it_took():
    facts = RowFacts(ROW, line=3, size=900)
    assert (facts.key, facts.task, facts.repeat, facts.agent, facts.model) == ("a/b/3", "a/b", 3, "x", "m")
    assert (facts.digest, facts.status, facts.stopped_by) == ("d1", "incomplete", "max_steps")
    assert (facts.line, facts.size, facts.wrong, facts.damaged, facts.missing) == (3, 900, (), (), [])
    assert (facts.reward, facts.numbers) == (1.0, {"reward": 1.0, "flag": True, "score": 0.25})
    assert facts.not_finite == ["drift", "slope"]
    assert (facts.input_tokens, facts.output_tokens, facts.total_tokens) == (20, 10, 30)
    assert (facts.total_s, facts.finished_at, facts.seconds("model_s"), facts.count("retries")) == (4.0, 50.0, 2.0, 2)
    assert facts.times is not None
    assert (facts.times.total_s, facts.times.retries, facts.times.limit) == (4.0, 2, None)
    assert facts.times.parts == tuple(
        {"queue": 0.5, "model": 2.0, "verify": 0.5, "other": 1.0}.get(part, 0.0) for part in PARTS
    )


@pytest.mark.parametrize("wrong", ["x", -1, float("nan"), 1e300])
def test_a_time_that_is_not_one_counts_as_absent_and_without_a_total_there_are_none(wrong: Any):
    timing = {"total_s": 4.0, "limit": 8, "cpu": 0.5, **dict.fromkeys(("in_flight", "lag_s", "retries", "tree"), wrong)}
    times = RowFacts(changed(meta__timing=timing)).times
    assert times is not None
    assert (times.limit, times.cpu, times.in_flight, times.lag_s, times.retries) == (8, 0.5, None, None, 0)
    assert times.tree == []
    assert RowFacts(changed(meta__timing={"total_s": 4.0, "model_s": "x"})).times is None
    assert RowFacts(changed(meta__timing={"total_s": wrong})).times is None


def test_a_rollout_says_what_was_asked_called_and_answered():
    facts = RowFacts(ROW)
    assert (facts.turns, facts.tool_calls, facts.offered) == (3, 2, {"calculator", "search"})
    assert (facts.prompt, facts.context) == ("15% of 240?", ["You add.", "Be brief."])
    assert facts.questions == ["Example?", "15% of 240?"]
    assert facts.calls == [("calculator", '{"x": 1}'), ("search", "{}")]
    assert facts.results == [("calculator", "36.0")]
    assert facts.written == ['{"x": 1}', "{}", "Hm.", "36"]
    assert facts.answer == "36"
    assert RowFacts(changed(response=None)).answer == "36"


def test_a_failure_has_its_bookkeeping_at_the_top_level():
    failure = {"key": "a/0", "agent": "x", "boundary": "model", "error": "500", "attempt": 2, "finished_at": 9.0,
               "timing": {"total_s": 1.0}, "partial": [{"role": "assistant", "content": "So"}]}  # fmt: skip
    facts = RowFacts(failure, failed=True)
    assert (facts.key, facts.task, facts.agent, facts.error) == ("a/0", "a", "x", "model: 500")
    assert (facts.total_s, facts.finished_at, facts.turns, facts.answer) == (1.0, 9.0, 1, "So")
    assert RowFacts({**failure, "partial": 5, "timing": []}, failed=True).wrong == ["partial", "timing"]


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (changed(reward=True), "reward"),
        (changed(usage=[1]), "usage"),
        (changed(usage__total_tokens="30"), "usage.total_tokens"),
        (changed(response="text"), "response"),
        (changed(output=[None]), "output"),
        (changed(output=[{"role": "assistant", "tool_calls": ["x"]}]), "output.tool_calls"),
        (changed(responses_create_params=[1]), "responses_create_params"),
        (changed(responses_create_params__tools=5), "responses_create_params.tools"),
        (changed(meta=7), "meta"),
        *((changed(meta__key=key), "meta.key") for key in ("no repeat", "a/-1", "a/²", 5)),
        *((changed(meta__finished_at=end), "meta.finished_at") for end in ("now", LATEST_S, float("nan"))),
        (changed(meta__timing="soon"), "meta.timing"),
        *((changed(meta__timing={"total_s": each}), "meta.timing.total_s") for each in (-1, LONGEST_S, "1", [1])),
    ],
)
def test_a_part_of_a_wrong_type_is_left_out_and_named_and_the_rest_is_read(row: dict[str, Any], wrong: str):
    facts = RowFacts(row)
    assert list(facts.wrong) == [wrong]
    assert facts.numbers["score"] == 0.25
    assert wrong == "reward" or facts.reward == 1.0


def test_a_token_count_outside_its_bounds_is_damaged_and_what_a_row_lacks_is_named():
    facts = RowFacts(changed(usage__total_tokens=-1))
    assert (facts.total_tokens, facts.input_tokens, facts.wrong) == (None, 20, ())
    assert facts.damaged == ("usage.total_tokens",)
    assert RowFacts({}).missing == ["meta", "response", "output", "responses_create_params.input"]
    assert (RowFacts({**ROW, "meta": {}}).missing, RowFacts({}).times) == (["meta.key"], None)


NAMES = ["reward", "output", "partial", "usage", "meta", "response", "responses_create_params", "key", "timing", "role",
         "total_s", "finished_at", "tool_calls", "total_tokens", "content", "input", "tools", "name"]  # fmt: skip
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("a/0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=6), st.booleans())
def test_whatever_a_row_holds_every_fact_can_be_read(row: dict[str, Any], failed: bool):
    facts = RowFacts(row, failed=failed)
    for name in dir(RowFacts):
        if not name.startswith("_") and name not in ("seconds", "count"):
            getattr(facts, name)
    assert facts.seconds("total_s") is None or 0 <= facts.seconds("total_s") < LONGEST_S
    assert facts.count("retries") >= 0


def test_arguments_of_a_call_that_are_nested_too_deep_for_json_are_none():
    deep: Any = []
    for _ in range(1000):
        deep = [deep]
    calls = [{"name": "a", "arguments": arguments} for arguments in (deep, {"x": [1]}, '{"x": 1}')]
    facts = RowFacts({"output": [{"role": "assistant", "tool_calls": calls}]})
    assert facts.calls == [("a", None), ("a", {"x": [1]}), ("a", '{"x": 1}')]
