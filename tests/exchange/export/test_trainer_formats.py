"""verl: what its reader needs, beyond what tests/interop shows with the reader itself."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from velodrome.exchange.export.chat import Unfit
from velodrome.records.rollout import task_of

Json = dict[str, Any]
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a":0.3,"b":null}'}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "1"}
RED = {"type": "input_image", "image_url": "data:,x"}


def said(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text, **more}


def asked(row: Json, *items: Json, **params: Any) -> Json:
    """The row with another prompt."""
    return {**row, "responses_create_params": {"input": [*items, {"role": "user", "content": "?"}], **params}}


def test_verl_is_a_prompt_with_its_answer_how_hard_it_is_and_what_verifies_it(shop: Any):
    rows = [shop.row("a/0", 1.0), shop.row("a/1", 0.5), shop.row("a/2", None)]
    [record] = shop.convert("verl", rows, split="test")
    assert orjson.loads(record["extra_info"].pop("verify")) == task_of(rows[0])
    assert record == {
        "data_source": "calculator_agent",
        "agent_name": "tool_agent",
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
            "tool_selection": ["calculator"],
        },
    }


def test_verl_takes_its_names_from_the_settings_then_from_the_task(shop: Any):
    row = shop.row("a/0", data_source="own", ability="math", agent_name="mine", answers=[1, 2])
    [report] = shop.convert("verl", [row], data_source="told", answer="answers")
    [own] = shop.convert("verl", [row], answer="nothing")
    assert (report["data_source"], report["ability"]) == ("told", "math")
    assert report["reward_model"] == {"style": "rule", "ground_truth": "[1,2]"}
    assert (own["data_source"], own["ability"], own["agent_name"]) == ("own", "math", "mine")
    assert own["reward_model"] == {"style": "rule", "ground_truth": None}
    [plain] = shop.convert("verl", [asked(row | {"agent_name": None})])
    assert plain["agent_name"] == "single_turn_agent"


def test_verl_has_calls_as_objects_and_images_as_parts(shop: Any):
    image = {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, RED]}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Add."}]}
    [record] = shop.convert("verl", [asked(shop.row("a/0"), image, thought, CALL, RESULT)])
    function = {"name": "add", "arguments": {"a": 0.3, "b": None}}
    assert record["prompt"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image", "image": "data:,x"}]},
        said("", reasoning_content="Add.", tool_calls=[{"id": "c", "type": "function", "function": function}]),
        {"role": "tool", "tool_call_id": "c", "content": "1", "name": "add"},
        {"role": "user", "content": "?"},
    ]
    changed = {**CALL, "arguments": '{"a":[{"b":0.1234567890123456789}]}'}
    with pytest.raises(Unfit, match=r"^`datasets` would change a number"):
        shop.convert("verl", [asked(shop.row("a/0"), changed, RESULT)])


def test_prompts_of_texts_are_lists_and_one_with_calls_makes_the_column_json_in_every_split(shop: Any):
    import pyarrow.parquet

    rows = [shop.row(f"t{at}/0") for at in range(8)]
    shop.export("verl", shop.file(*rows), to="plain.parquet")
    assert shop.records("plain.parquet")[0]["prompt"] == [shop.prompt[0], {"role": "user", "content": "What is t0?"}]
    mixed = shop.file(*rows[:-1], asked(rows[-1], CALL, RESULT), name="mixed.jsonl")
    outcome = shop.export("verl", mixed, to="mixed", split="train=0.5,test=0.5")
    assert sum(outcome.records.values()) == 8
    for split in ("train", "test"):
        schema = pyarrow.parquet.read_schema(shop.folder / f"mixed/{split}.parquet")
        assert str(schema.field("prompt").type) == "extension<arrow.json>"
    texts = [row["prompt"] for split in ("train", "test") for row in shop.records(f"mixed/{split}.parquet")]
    assert sum('"arguments":{"a":0.30,"b":null}' in text for text in texts) == 1
    assert all(orjson.loads(text)[-1]["role"] == "user" for text in texts)


def test_verl_says_what_has_no_answer(shop: Any):
    [missing] = shop.export("verl", shop.file(shop.row("a/0"), shop.row("c/0", expected_answer=None)), to="out").notes
    assert missing == "records: 1: it has no ground_truth: see --answer"
    assert f"- {missing}\n" in shop.card("out/README.md")
