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
    assert shop.convert("sft", [shop.row("a/0")]) == [
        {"messages": [*shop.prompt, shop.called, shop.result, said("36")], "tools": shop.tools}
    ]


def test_sharegpt_has_one_turn_for_each_speaker_and_thoughts_before_what_they_led_to(shop: Any):
    [record] = shop.convert("sharegpt", [shop.row("a/0")])
    assert record["conversations"] == [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "What is a?"},
        {
            "from": "function_call",
            "value": '<think>\nA sum.\n</think>\n\n{"name":"calculator","arguments":{"expression":"240 * 0.15"}}',
        },
        {"from": "observation", "value": "36.0"},
        {"from": "gpt", "value": "36"},
    ]
    assert orjson.loads(record["tools"]) == [tool["function"] for tool in shop.tools]
    assert record.keys() == {"conversations", "tools"}


def test_sharegpt_writes_calls_of_one_turn_and_their_results_as_one_turn_each(shop: Any):
    calls = [{"id": str(number), "name": "add", "arguments": f'{{"n":{number}}}'} for number in (1, 2)]
    results = [{"role": "tool", "tool_call_id": str(number), "content": f"r{number}"} for number in (1, 2)]
    output = [{"role": "assistant", "content": "Both.", "tool_calls": calls}, *results, said("3")]
    [record] = shop.convert("sharegpt", [shop.row("a/0", output=output)], reasoning="drop")
    assert record["conversations"][2:] == [
        {"from": "gpt", "value": "Both."},
        {"from": "function_call", "value": '[{"name":"add","arguments":{"n":1}},{"name":"add","arguments":{"n":2}}]'},
        {"from": "observation", "value": '["r1","r2"]'},
        {"from": "gpt", "value": "3"},
    ]


def test_dpo_sets_the_best_answer_against_the_worst(shop: Any):
    rows = [shop.row("a/0", 0.5, "so so"), shop.row("a/1", 1.0, "good"), shop.row("a/2", 0.0, "bad")]
    assert shop.convert("dpo", rows, pairs=5) == [
        {
            "prompt": shop.prompt,
            "chosen": [shop.called, shop.result, said("good")],
            "rejected": [shop.called, shop.result, said("bad")],
            "score_chosen": 1.0,
            "score_rejected": 0.0,
            "task": "a",
            "tools": shop.tools,
        }
    ]


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
    assert shop.convert("grpo", [shop.row("a/0", 1.0, "36"), shop.row("a/1", 0.0, "35")]) == [
        {
            "task": "a",
            "prompt": shop.prompt,
            "completions": [[shop.called, shop.result, said("36")], [shop.called, shop.result, said("35")]],
            "rewards": [1.0, 0.0],
            "keys": ["a/0", "a/1"],
            "expected_answer": "36",
            "tools": shop.tools,
        }
    ]


def test_grpo_has_the_tokens_of_each_turn_and_leaves_out_what_has_no_reward_or_another_prompt(shop: Any):
    tokens = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    with_tokens = shop.row("a/0", output=[{"role": "assistant", "content": "36", **tokens}])
    [record] = shop.convert("grpo", [with_tokens, shop.row("a/1", 0.0)])
    assert record["turns"] == [[tokens], []]
    assert record["completions"][0] == [said("36")]
    with pytest.raises(Unfit, match=r"^it has no reward$"):
        shop.convert("grpo", [shop.row("a/0", None)])
    other = shop.row("a/1")
    other["responses_create_params"] = {"input": "Another question"}
    with pytest.raises(Unfit, match=r"^its prompt is not that of the task's first rollout$"):
        shop.convert("grpo", [shop.row("a/0"), other])


def test_verl_is_a_prompt_with_its_answer_and_how_hard_it_is(shop: Any):
    rows = [shop.row("a/0", 1.0), shop.row("a/1", 0.5), shop.row("a/2", None)]
    assert shop.convert("verl", rows, split="test") == [
        {
            "data_source": "calculator_agent",
            "prompt": shop.prompt,
            "ability": "agent",
            "reward_model": {"style": "rule", "ground_truth": "36"},
            "extra_info": {
                "split": "test",
                "index": 0,
                "task": "a",
                "answers": 2,
                "pass_rate": 0.5,
                "mean_reward": 0.75,
                "tools": orjson.dumps(shop.tools).decode(),
            },
        }
    ]


def test_verl_takes_its_names_from_the_settings_then_from_the_task(shop: Any):
    row = shop.row("a/0", data_source="own", ability="math", answers=[1, 2])
    [report] = shop.convert("verl", [row], data_source="told", ability="code", answer="answers")
    [own] = shop.convert("verl", [row], answer="nothing")
    assert (report["data_source"], report["ability"]) == ("told", "code")
    assert report["reward_model"] == {"style": "rule", "ground_truth": "[1,2]"}
    assert (own["data_source"], own["ability"]) == ("own", "math")
    assert own["reward_model"] == {"style": "rule", "ground_truth": None}


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ({"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}, "its prompt has tool calls"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}, "content that is not text"),
    ],
)
def test_verl_has_no_form_for_calls_or_images_in_a_prompt(shop: Any, first: Any, why: str):
    params = {"input": [first, {"role": "user", "content": "?"}]}
    with pytest.raises(Unfit, match=why):
        shop.convert("verl", [{**shop.row("a/0"), "responses_create_params": params}])


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
