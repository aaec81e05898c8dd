"""What stands in a record of each format."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.dpo import pairs
from velodrome.exchange.export.nemo_gym import RolloutNumbers


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
    row = shop.row("a/0", response=CUT)
    for name in ("sft", "dpo"):
        with pytest.raises(Unfit, match=r"^its last turn was cut off \(max_output_tokens\)$"):
            shop.convert(name, [row, shop.row("a/1", 0.0, "35")])
    [record] = shop.convert("grpo", [row, shop.row("a/1", 0.0, "35")])
    assert record["statuses"] == ["incomplete", "completed"]
    assert record["stops"] == ["max_output_tokens", ""]


def test_parquet_says_why_a_rollout_was_stopped_early(shop: Any):
    stopped = {"status": "incomplete", "metadata": {"stop": "max_steps"}}
    rows = shop.convert("parquet", [shop.row("a/0", response=stopped), shop.row("a/1", response=CUT)])
    assert [row["stop"] for row in rows] == ["max_steps", "max_output_tokens"]


def test_dpo_sets_the_best_answer_against_the_worst(shop: Any):
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


def test_dpo_makes_no_pair_of_equal_answers_equal_rewards_or_different_questions(shop: Any):
    other = shop.row("a/3", 0.0, "bad")
    other["responses_create_params"] = {"input": "Another question"}
    assert shop.convert("dpo", [shop.row("a/0", 1.0, "same"), shop.row("a/1", 0.0, "same")]) == []
    assert shop.convert("dpo", [shop.row("a/0", 1.0, "one"), shop.row("a/1", 1.0, "two")]) == []
    assert shop.convert("dpo", [shop.row("a/0", 1.0, "good"), other]) == []


def never(better: int, worse: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("rewards", "options", "expected"),
    [
        ([0.0, 1.0], {}, [(1, 0)]),
        ([1.0, 1.0, 0.0, 0.0], {}, [(0, 2)]),
        ([1.0, 1.0, 0.0, 0.0], {"most": 9}, [(0, 2), (1, 3)]),
        ([1.0, 1.0, 0.0, 0.0], {"most": 9, "uses": 2}, [(0, 2), (1, 3), (0, 3), (1, 2)]),
        ([1.0, 0.5, 0.0], {"most": 9}, [(0, 2)]),
        ([1.0, 0.5, 0.0], {"most": 9, "uses": 2}, [(0, 2), (0, 1), (1, 2)]),
        ([1.0, 0.5, 0.0], {"most": 9, "uses": 2, "margin": 0.6}, [(0, 2)]),
        ([1.0, 0.4], {"margin": 0.7}, []),
        ([0.3, 0.3], {"most": 9}, []),
        ([], {}, []),
    ],
)
def test_pairs_go_from_the_widest_gap_on(rewards: list[float], options: dict[str, Any], expected: list[Any]):
    assert pairs(rewards, never, **{"most": 1, "margin": 0.0, "uses": 1, **options}) == expected


@settings(deadline=None)
@given(
    rewards=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=12),
    most=st.integers(1, 20),
    uses=st.integers(1, 4),
    margin=st.sampled_from([0.0, 0.25, 0.5]),
    alike=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=10),
)
def test_pairs_keep_to_their_rules(rewards: list[float], most: int, uses: int, margin: float, alike: set[Any]):
    result = pairs(rewards, lambda *both: both in alike, most=most, margin=margin, uses=uses)
    assert len(result) == len(set(result)) <= most
    assert all(rewards[better] > rewards[worse] for better, worse in result)
    assert all(rewards[better] - rewards[worse] >= margin for better, worse in result)
    assert alike.isdisjoint(result)
    times = [each for pair in result for each in pair]
    assert all(times.count(each) <= uses for each in times)


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


def test_the_prompt_of_a_group_is_that_of_the_first_rollout_that_fits(shop: Any):
    broken = shop.row("a/0")
    broken["responses_create_params"] = {"input": "Another question"}
    broken["output"][0]["tool_calls"][0]["arguments"] = "{"
    outcome = shop.export("grpo", shop.file(broken, *(shop.row(f"a/{at}") for at in (1, 2, 3))), to="out")
    assert outcome.unfit_reasons == {"a call's arguments are not JSON": 1}
    [record] = shop.records("out/train.jsonl")
    assert (record["prompt"], record["keys"]) == (shop.prompt, ["a/1", "a/2", "a/3"])


HOSTED = {"type": "web_search", "filters": None}


@pytest.mark.parametrize("name", ["sft", "dpo", "grpo", "verl", "sharegpt", "axolotl"])
def test_a_rollout_with_a_hosted_tool_on_offer_is_left_out_and_counted(shop: Any, name: str):
    rows = [shop.row("a/0"), shop.row("a/1", 0.0, "35"), shop.row("b/0"), shop.row("b/1", 0.0, "35")]
    for row in rows[2:]:
        row["responses_create_params"]["tools"] = [HOSTED]
    outcome = shop.export(name, shop.file(*rows), to="out", where="")
    assert outcome.unfit_reasons == {"it was offered a tool of the kind 'web_search', which chat has no form for": 2}


def test_parquet_and_nemo_gym_keep_hosted_tools_on_offer(shop: Any):
    row = shop.row("a/0")
    row["responses_create_params"]["tools"] = [*row["responses_create_params"]["tools"], HOSTED]
    [flat], [theirs] = shop.convert("parquet", [row]), shop.convert("nemo_gym", [row])
    assert orjson.loads(flat["tools"]) == [*shop.tools, HOSTED]
    assert theirs["responses_create_params"]["tools"][1] == HOSTED


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({}, {"prompt_token_ids": [1], "generation_token_ids": [3]}),
        (
            {"prompt_token_ids": None, "generation_token_ids": None},
            {"prompt_token_ids": [1], "generation_token_ids": [3]},
        ),
        ({"generation_token_ids": [3, 4], "generation_log_probs": [-0.5]}, {"generation_token_ids": [3]}),
    ],
    ids=["a turn without", "a turn whose ids did not come", "fewer log-probabilities than ids"],
)
def test_grpo_leaves_out_a_rollout_with_the_ids_of_some_turns(shop: Any, first: Any, last: Any):
    row = shop.row("a/0")
    row["output"][0].update(first)
    row["output"][-1].update(last)
    with pytest.raises(Unfit, match="token ids are not whole"):
        shop.convert("grpo", [row])


def test_grpo_has_the_ids_of_a_rollout_with_the_log_probabilities_of_some_turns(shop: Any):
    row, ids = shop.row("a/0"), {"prompt_token_ids": [1], "generation_token_ids": [3]}
    row["output"][0].update(ids, generation_log_probs=None)
    row["output"][-1].update(ids, generation_log_probs=[-0.5])
    [record] = shop.convert("grpo", [row])
    assert record["turns"] == [[{**ids, "generation_log_probs": None}] * 2]


def test_grpo_takes_a_rollout_with_log_probabilities_and_no_ids(shop: Any):
    row = shop.row("a/0")
    row["output"][0].update(generation_log_probs=[-0.5])  # a call; those of a text are on the text
    [record] = shop.convert("grpo", [row])
    assert "turns" not in record


def test_ids_that_did_not_come_are_in_no_export(shop: Any):
    row = shop.row("a/0")
    for message in (row["output"][0], row["output"][-1]):
        message.update(dict.fromkeys(("prompt_token_ids", "generation_token_ids", "generation_log_probs")))
    assert "turns" not in shop.convert("grpo", [row])[0]
    [made] = shop.convert("nemo_gym", [row])
    assert not [name for item in made["response"]["output"] for name in item if "token" in name]
    assert made["_velodrome"]["exact"]["output"] == row["output"]  # so it comes back


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


def test_parquet_keeps_a_conversation_that_chat_has_no_form_for_as_it_stands(shop: Any):
    output = [{"role": "other", "item": {"type": "web_search_call"}}, said("36")]
    [row] = shop.convert("parquet", [shop.row("a/0", output=output)])
    assert orjson.loads(row["messages"]) == [{"role": "user", "content": "What is a?"}, *output]
    assert (row["tool_calls"], row["turns"], row["prompt"]) == (0, 1, "What is a?")


def test_nemo_gym_has_the_conversation_as_items_and_the_fields_side_by_side(shop: Any):
    [record] = shop.convert("nemo_gym", [shop.row("a/1", 0.5)])
    response = record["response"]
    assert [item["type"] for item in response["output"]] == [
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert record["_ng_task_index"] == 97
    assert record["_ng_rollout_index"] == 1
    assert record["agent_ref"] == {"name": "calculator_agent"}
    assert (record["reward"], record["accuracy"], record["expected_answer"]) == (0.5, 0.5, "36")
    assert record["_velodrome"]["meta"] == shop.row("a/1")["meta"]


def test_no_two_rollouts_have_the_same_numbers_in_nemo_gym(shop: Any):
    numbers = RolloutNumbers()
    metas = [("a/0", 5, 0), ("a/1", 5, 1), ("b/0", 5, 0), ("a/0", 5, 0), ("c/0", 6, 0)]
    result = [numbers.of({"key": key, "task_index": task, "rollout_index": at}) for key, task, at in metas]
    assert result == [(5, 0), (5, 1), (6, 0), (5, 2), (7, 0)]
