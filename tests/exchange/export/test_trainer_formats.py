"""verl, sharegpt and axolotl: what their readers need, beyond what tests/interop shows with the readers themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.format import ExportOptions
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.export.pipeline import export
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


def calls(*arguments: str) -> list[Json]:
    return [{"id": str(at), "name": "add", "arguments": each} for at, each in enumerate(arguments)]


def results(*texts: str) -> list[Json]:
    return [{"role": "tool", "tool_call_id": str(at), "content": text} for at, text in enumerate(texts)]


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
    [report] = shop.convert("verl", [row], data_source="told", ability="code", answer="answers")
    [own] = shop.convert("verl", [row], answer="nothing")
    assert (report["data_source"], report["ability"]) == ("told", "code")
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


def test_verl_leaves_out_a_prompt_with_a_number_that_its_reader_would_change(shop: Any):
    call = {**CALL, "arguments": '{"a":[{"b":0.1234567890123456789}]}'}
    with pytest.raises(Unfit, match=r"^`datasets` would change a number"):
        shop.convert("verl", [asked(shop.row("a/0"), call, RESULT)])


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


def test_verl_says_whether_verl_can_score_its_data_source_and_what_has_no_answer(shop: Any):
    rows = [shop.row("a/0"), shop.row("b/0", data_source="aime24"), shop.row("c/0", expected_answer=None)]
    own, known, missing = shop.export("verl", shop.file(*rows), to="out").notes
    assert own.startswith("records: 2: data_source is 'calculator_agent': verl has no scorer of that name; give it one")
    assert "reward.custom_reward_function.path" in own
    assert known == "records: 1: data_source is 'aime24': verl scores it with its function of that name"
    assert missing == "records: 1: it has no ground_truth: see --answer"
    assert all(f"- {note}\n" in shop.card("out/README.md") for note in (own, known, missing))


def test_sharegpt_has_one_turn_for_each_speaker_and_thoughts_before_what_they_led_to(shop: Any):
    [record] = shop.convert("sharegpt", [shop.row("a/0")])
    call = '{"name":"calculator","arguments":{"expression":"240 * 0.15"}}'
    assert record["conversations"] == [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "What is a?"},
        {"from": "function_call", "value": f"<think>\nA sum.\n</think>\n\n<tool_call>{call}</tool_call>"},
        {"from": "observation", "value": "36.0"},
        {"from": "gpt", "value": "36"},
    ]
    assert orjson.loads(record["tools"]) == [tool["function"] for tool in shop.tools]
    assert record.keys() == {"conversations", "tools"}
    [plain] = shop.convert("sharegpt", [asked(shop.row("a/0", output=[said("36")]))])
    assert plain["tools"] == ""


def test_sharegpt_writes_text_and_calls_of_one_turn_and_their_results_as_one_turn_each(shop: Any):
    made = calls('{"n": 12345678901234567890123}', '{"n":"</tool_call>"}')
    output = [said("Both.", tool_calls=made), *results("r1", "r2"), said("3")]
    [record] = shop.convert("sharegpt", [shop.row("a/0", output=output)], reasoning="drop")
    first = '{"name":"add","arguments":{"n": 12345678901234567890123}}'
    second = '{"name":"add","arguments":{"n":"\\u003c/tool_call>"}}'
    assert record["conversations"][2:] == [
        {"from": "function_call", "value": f"Both.\n<tool_call>[{first},{second}]</tool_call>"},
        {"from": "observation", "value": "r1\n</tool_response>\n<tool_response>\nr2"},
        {"from": "gpt", "value": "3"},
    ]


def test_sharegpt_says_how_many_records_need_a_template_that_shows_several_results(shop: Any):
    output = [said("", tool_calls=calls("{}", "{}")), *results("r1", "r2"), said("3")]
    outcome = shop.export("sharegpt", shop.file(shop.row("a/0", output=output), shop.row("b/0")), to="out")
    [note] = outcome.notes
    assert note.startswith("records: 1: several results of one turn; only templates with <tool_response>")
    assert '"file_name": "train.jsonl",' in shop.card("out/README.md")


SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "So?"}


@pytest.mark.parametrize(
    ("prompt", "output", "why"),
    [
        ([USER], [said("36")], "do not take turns"),
        ([USER, said("Yes."), SYSTEM], [said("36")], "do not take turns"),
        ([], [said("36"), said("or 35")], "do not take turns"),
        ([USER, CALL, RESULT], [said("36")], "do not take turns"),
        ([{"role": "user", "content": "See <image>"}, said("Yes.")], [said("36")], "in a text, which LLaMA-Factory"),
        ([{"role": "user", "content": "The {{idx}}th"}, said("Yes.")], [said("36")], "in a text, which LLaMA-Factory"),
        ([], [said("36", reasoning_content="An <image>?")], "in a text, which LLaMA-Factory"),
        ([], [said("A <tool_call>", tool_calls=calls("{}")), *results("r"), said("3")], "before a call"),
        ([], [said("", tool_calls=calls("[1]")), *results("r"), said("3")], "not an object"),
    ],
)
def test_sharegpt_leaves_out_what_llama_factory_would_drop_or_change(
    shop: Any, prompt: list[Json], output: list[Json], why: str
):
    with pytest.raises(Unfit, match=why):
        shop.convert("sharegpt", [asked(shop.row("a/0", output=output), *prompt)])


def test_axolotl_has_its_messages_as_text_and_trains_on_no_turn_of_the_prompt(shop: Any):
    row = asked(shop.row("a/0", output=[said("36")]), CALL, RESULT, said("1"))
    [record] = shop.convert("axolotl", [row])
    messages = orjson.loads(record["messages"])
    assert [message.get("training") for message in messages] == [False, None, False, None, None]
    assert messages[0]["tool_calls"][0]["function"]["arguments"] == CALL["arguments"]
    assert record.keys() == {"messages"}
    [offered] = shop.convert("axolotl", [shop.row("a/0")])
    assert orjson.loads(offered["tools"]) == shop.tools
    shop.export("axolotl", shop.file(shop.row("a/0")), to="out")
    assert "message_field_training: training" in shop.card("out/README.md")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ([said("")], "said nothing"),
        ([said("", tool_calls=calls("{")), *results("r"), said("3")], "not JSON"),
    ],
)
def test_axolotl_leaves_out_what_it_would_not_train_on(shop: Any, output: list[Json], why: str):
    with pytest.raises(Unfit, match=why):
        shop.convert("axolotl", [shop.row("a/0", output=output)])


def test_remarks_count_the_records_that_are_written(shop: Any):
    """One that cannot be written is found out only by writing it."""
    verl = FORMATS["verl"]
    rows = [shop.row("a/0"), shop.row("b/0")]
    numbers = iter((1, 2**64))
    too_large = replace(
        verl,
        schema=None,
        loose_schema=None,
        start=lambda *given: lambda unit: [each | {"n": next(numbers)} for each in verl.start(*given)(unit)],
    )
    outcome = export(too_large, [shop.file(*rows)], ExportOptions(to=shop.folder / "out"))
    assert (outcome.unfit, list(outcome.records.values())) == (1, [1])
    assert [note.split(":")[:2] for note in outcome.notes if "records" in note] == [["records", " 1"]]
