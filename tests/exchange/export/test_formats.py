"""What stands in a record of each format."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.nemo_gym import RolloutNumbers
from velodrome.exchange.export.trl import pairs


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_sft_is_the_whole_conversation_with_its_tools(shop: Any):
    """Arguments as objects and tools as text for TRL; the other way round for OpenAI."""
    [record] = shop.convert("sft", [shop.row("a/0")])
    assert record["messages"] == [*shop.prompt, shop.called, shop.result, said("36")]
    assert orjson.loads(record["tools"]) == shop.tools
    [record] = shop.convert("sft", [shop.row("a/0")], arguments="text")
    assert record["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"expression":"240 * 0.15"}'
    assert record["tools"] == shop.tools


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def test_an_answer_that_was_cut_off_is_unfit_where_a_template_would_end_it_and_marked_in_grpo(shop: Any):
    rows = [shop.row("a/0", response=CUT), shop.row("a/1", 0.0, "35")]
    for name in ("sft", "dpo"):
        with pytest.raises(Unfit, match=r"^its last turn was cut off \(max_output_tokens\)$"):
            shop.convert(name, rows)
    [record] = shop.convert("grpo", rows)
    assert (record["statuses"], record["stops"]) == (["incomplete", "completed"], ["max_output_tokens", ""])
    [flat] = shop.convert("parquet", rows[:1])
    assert flat["stop"] == "max_output_tokens"


def test_dpo_sets_the_best_answer_against_the_worst_of_the_same_question(shop: Any):
    rows = [shop.row("a/0", 0.5, "so so"), shop.row("a/1", 1.0, "good"), shop.row("a/2", 0.0, "bad")]
    [record] = shop.convert("dpo", rows, pairs=5)
    assert orjson.loads(record.pop("tools")) == shop.tools
    assert record == (
        {
            "prompt": shop.prompt,
            "chosen": [shop.called, shop.result, said("good")],
            "rejected": [shop.called, shop.result, said("bad")],
            "score_chosen": 1.0,
            "score_rejected": 0.0,
            "task": "a",
        }
    )
    other = shop.row("a/3", 0.0, "bad")
    other["responses_create_params"] = {"input": "Another question"}
    assert shop.convert("dpo", [shop.row("a/0", 1.0, "same"), shop.row("a/1", 0.0, "same")]) == []
    assert shop.convert("dpo", [shop.row("a/0", 1.0, "good"), other]) == []


@settings(deadline=None)
@given(
    rewards=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=12),
    most=st.integers(1, 20),
    margin=st.sampled_from([0.0, 0.25, 0.5]),
    alike=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=10),
)
def test_pairs_keep_to_their_rules(rewards: list[float], most: int, margin: float, alike: set[Any]):
    result = pairs(rewards, lambda *both: both in alike, most=most, margin=margin)
    assert len(result) == len(set(result)) <= most
    assert all(rewards[better] > rewards[worse] for better, worse in result)
    assert all(rewards[better] - rewards[worse] >= margin for better, worse in result)
    assert alike.isdisjoint(result)
    times = [each for pair in result for each in pair]
    assert all(times.count(each) == 1 for each in times)


def test_grpo_is_a_task_with_all_its_answers_and_their_rewards(shop: Any):
    [record] = shop.convert("grpo", [shop.row("a/0", 1.0, "36"), shop.row("a/1", 0.0, "35")])
    assert orjson.loads(record.pop("tools")) == shop.tools
    assert record == (
        {
            "task": "a",
            "prompt": shop.prompt,
            "answers": [[shop.called, shop.result, said("36")], [shop.called, shop.result, said("35")]],
            "rewards": [1.0, 0.0],
            "statuses": ["completed", "completed"],
            "stops": ["", ""],
            "keys": ["a/0", "a/1"],
            "expected_answer": "36",
        }
    )


def test_grpo_has_the_tokens_of_each_turn_and_leaves_out_what_has_no_reward_or_another_prompt(shop: Any):
    tokens = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    with_tokens = shop.row("a/0", output=[{"role": "assistant", "content": "36", **tokens}])
    [record] = shop.convert("grpo", [with_tokens, shop.row("a/1", 0.0)])
    assert record["turns"] == [[tokens], []]
    assert record["answers"][0] == [said("36")]
    with pytest.raises(Unfit, match=r"^it has no reward$"):
        shop.convert("grpo", [shop.row("a/0", None)])
    other = shop.row("a/1")
    other["responses_create_params"] = {"input": "Another question"}
    with pytest.raises(Unfit, match=r"^its prompt is not that of the task's first rollout$"):
        shop.convert("grpo", [shop.row("a/0"), other])


HOSTED = {"type": "web_search", "filters": None}


@pytest.mark.parametrize("name", ["sft", "dpo", "grpo", "verl"])
def test_what_chat_has_no_form_for_is_left_out_and_counted_and_whole_in_parquet(shop: Any, name: str):
    rows = [shop.row("a/0"), shop.row("a/1", 0.0, "35"), shop.row("b/0"), shop.row("b/1", 0.0, "35")]
    for row in rows[2:]:
        row["responses_create_params"]["tools"] = [HOSTED]
    outcome = shop.export(name, shop.file(*rows), to="out", where="")
    assert outcome.unfit_reasons == {"it was offered a tool of the kind 'web_search', which chat has no form for": 2}
    rows[2]["output"] = [{"role": "other", "item": {"type": "web_search_call"}}, said("36")]
    [flat], [theirs] = shop.convert("parquet", rows[2:3]), shop.convert("nemo_gym", rows[3:])
    assert orjson.loads(flat["tools"]) == theirs["responses_create_params"]["tools"] == [HOSTED]
    assert orjson.loads(flat["messages"])[-2:] == rows[2]["output"]
    assert (flat["tool_calls"], flat["turns"]) == (0, 1)


def test_grpo_has_the_ids_of_all_turns_or_of_none_and_leaves_out_a_rollout_with_those_of_some(shop: Any):
    ids = {"prompt_token_ids": [1], "generation_token_ids": [3]}

    def row(first: dict[str, Any], last: dict[str, Any]) -> Any:
        made = shop.row("a/0")
        made["output"][0].update(first)
        made["output"][-1].update(last)
        return made

    [record] = shop.convert("grpo", [row({**ids, "generation_log_probs": None}, {**ids, "generation_log_probs": [-1]})])
    assert record["turns"] == [[{**ids, "generation_log_probs": None}] * 2]
    none = dict.fromkeys((*ids, "generation_log_probs"))  # they did not come
    missing = row(none, none)
    assert "turns" not in shop.convert("grpo", [missing])[0]
    [made] = shop.convert("nemo_gym", [missing])
    assert not [name for item in made["response"]["output"] for name in item if "token" in name]
    assert made["_velodrome"]["exact"]["output"] == missing["output"]  # so it comes back
    fewer = {"generation_token_ids": [3, 4], "generation_log_probs": [-0.5]}
    for some in (row({}, ids), row(none, ids), row(fewer, {"generation_token_ids": [3]})):
        with pytest.raises(Unfit, match="token ids are not whole"):
            shop.convert("grpo", [some])


def test_parquet_is_a_row_of_ids_numbers_and_texts(shop: Any):
    [row] = shop.convert("parquet", [shop.row("a/1", 0.5, extra={"x": 1})])
    assert orjson.loads(row.pop("messages")) == [*shop.prompt, shop.called, shop.result, said("36")]
    assert orjson.loads(row.pop("tools")) == shop.tools
    assert orjson.loads(row.pop("fields")) == {"id": "a", "expected_answer": "36", "accuracy": 0.5, "extra": {"x": 1}}
    assert row == {
        "source": None,
        "key": "a/1",
        "task": "a",
        "repeat": 1,
        "task_index": 97,
        "agent": "calculator_agent",
        "model": "m",
        "status": "completed",
        "stop": None,
        "outcome": "finished",
        "reward": 0.5,
        "finished_at": 1794775197.5,
        "input_tokens": 20,
        "output_tokens": 5,
        "total_tokens": 25,
        "tool_calls": 1,
        "turns": 2,
        "retries": 0,
        "total_s": 0.75,
        "model_s": 0.5,
        "tools_s": 0.125,
        "verify_s": 0.0,
        "queue_s": 0.0,
        "system": "Be brief.",
        "prompt": "What is a?",
        "answer": "36",
        "expected_answer": "36",
        "accuracy": 0.5,
    }


def test_nemo_gym_has_the_conversation_as_items_and_the_fields_side_by_side(shop: Any):
    [record] = shop.convert("nemo_gym", [shop.row("a/1", 0.5)])
    kinds = [item["type"] for item in record["response"]["output"]]
    assert kinds == ["reasoning", "function_call", "function_call_output", "message"]
    assert (record["_ng_task_index"], record["_ng_rollout_index"]) == (0, 0)
    assert record["agent_ref"] == {"name": "calculator_agent"}
    assert (record["reward"], record["accuracy"], record["expected_answer"]) == (0.5, 0.5, "36")
    assert record["_velodrome"]["meta"] == shop.row("a/1")["meta"]
    late = shop.row("a/1", None)
    late["meta"]["verification"] = "deferred"
    with pytest.raises(Unfit, match="its reward is deferred"):
        shop.convert("nemo_gym", [late])


def test_no_two_rollouts_have_the_same_numbers_in_nemo_gym(shop: Any):
    numbers = RolloutNumbers()
    result = [numbers.of({"key": key}) for key in ("a/0", "a/1", "b/0", "a/0", "c/0")]
    assert result == [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0)]
