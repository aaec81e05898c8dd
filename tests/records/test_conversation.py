"""A conversation says the same in both of its shapes, and garbage from a model never raises."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.records.conversation import Response, ToolCall, final_text, flaw, items, messages, text_of, tool_text

TURNS = [
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "two sums"}]},
    {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see. ", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
    {
        "type": "function_call",
        "call_id": "c2",
        "name": "mul",
        "arguments": "{bad",
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [3],
        "generation_log_probs": [-0.5],
    },
    {"type": "function_call_output", "call_id": "c2", "output": "error: bad"},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is 1", "annotations": []}],
        "generation_token_ids": [4],
    },
]
SAID = [
    {
        "role": "assistant",
        "reasoning_content": "two sums",
        "content": "Let me see. ",
        "tool_calls": [
            {"id": "c1", "name": "add", "arguments": '{"a": 1}'},
            {"id": "c2", "name": "mul", "arguments": "{bad"},
        ],
        "prompt_token_ids": [1, 2],
        "generation_token_ids": [3],
        "generation_log_probs": [-0.5],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "error: bad", "name": "mul"},
    {"role": "tool", "tool_call_id": "c1", "content": "1", "name": "add"},
    {"role": "assistant", "content": "It is 1", "generation_token_ids": [4]},
]


def test_reasoning_text_and_parallel_calls_of_one_turn_are_one_message():
    assert messages(TURNS) == SAID


def test_messages_turn_back_into_the_items_they_were_made_from():
    assert items(SAID) == TURNS


def test_a_refusal_its_empty_text_and_encrypted_reasoning_survive_both_ways():
    said = [{"role": "assistant", "reasoning_encrypted": "x9", "content": "", "refusal": "I will not."}]
    there = items(said)
    assert there == [
        {"type": "reasoning", "summary": [], "encrypted_content": "x9"},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": "I will not."}],
        },
    ]
    assert messages(there) == said


def test_log_probabilities_and_annotations_stay_with_their_text():
    said = [{"role": "assistant", "content": "yes", "annotations": [{"url": "u"}], "logprobs": [{"token": "yes"}]}]
    assert messages(items(said)) == said


def test_an_item_of_an_unknown_kind_is_kept_as_it_is():
    search = {"type": "web_search_call", "id": "ws_1", "action": {"query": "velodrome"}}
    assert messages([search]) == [{"role": "other", "item": search}]
    assert items(messages([search])) == [search]


def test_reasoning_summaries_are_joined_when_there_is_no_full_text():
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"text": "b"}]}
    assert messages([item]) == [{"role": "assistant", "reasoning_content": "a\n\nb"}]


def test_a_turn_after_a_tool_call_without_its_result_is_a_new_message():
    call = {"type": "function_call", "id": "f1", "name": "add", "arguments": "{}"}
    text = {"type": "message", "role": "assistant", "content": "done"}
    assert messages([call, text]) == [
        {"role": "assistant", "tool_calls": [{"id": "f1", "name": "add", "arguments": "{}"}]},
        {"role": "assistant", "content": "done"},
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("36", "36"),
        ({"a": 1}, '{"a":1}'),
        (None, "null"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "ab"),
        ([{"type": "input_image"}], '[{"type":"input_image"}]'),
    ],
)
def test_a_tool_result_of_any_shape_becomes_text(output: Any, text: str):
    assert tool_text(output) == text


def test_the_text_of_content_is_found_in_every_shape():
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
        "x",
        {"text": 5},
        {"text": "b"},
    ]
    assert [text_of(each) for each in ("hi", parts, None, 5)] == ["hi", "ab", "", ""]


def test_the_final_text_is_what_follows_the_last_tool_result():
    assert final_text(TURNS) == "It is 1"
    assert final_text(TURNS[:-1]) == ""
    assert final_text(TURNS[:2]) == "Let me see. "


def test_a_verifier_sees_text_calls_with_their_results_and_raw_fields():
    response = Response({"output": TURNS, "model": "m"})
    assert response.text == str(response) == "It is 1"
    assert response.tool_calls == [
        ToolCall("add", {"a": 1}, "1", "c1"),
        ToolCall("mul", "{bad", "error: bad", "c2"),
    ]
    assert response.messages == SAID
    assert response.items is TURNS
    assert (response["model"], response.get("id", 7)) == ("m", 7)
    assert Response({}).tool_calls == []


def test_a_call_nobody_answered_has_no_output():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    assert Response({"output": [call]}).tool_calls == [ToolCall("f", {"a": 1}, None, "c")]


FLAWED = [
    "text",
    None,
    5,
    [],
    {"type": "function_call", "call_id": ["c"], "name": "f"},
    {"type": "function_call", "call_id": "c"},
    {"type": "function_call", "call_id": "c", "name": 5},
    {"type": "function_call_output", "call_id": {"a": 1}, "output": "x"},
    {"type": "message", "content": 5},
    {"type": "message", "content": ["text"]},
    {"type": "reasoning", "summary": 5},
    {"type": "reasoning", "content": [None]},
    {"type": None, "content": "x"},
    {"type": "message", "content": "x", "generation_token_ids": [2**64 - 1]},
    {"type": "message", "content": "x", "generation_log_probs": [None]},
]


@pytest.mark.parametrize("item", FLAWED)
def test_what_is_no_item_has_a_flaw_in_words_and_is_kept_as_it_is(item: Any):
    assert isinstance(flaw(item), str)
    assert messages([item]) == [{"role": "other", "item": item}]
    assert items(messages([item])) == [item]


ODD = [
    ({}, {"role": "assistant", "content": ""}),
    ({"type": "message", "content": None}, {"role": "assistant", "content": ""}),
    ({"content": [{"type": "refusal", "refusal": 5}]}, {"role": "assistant", "content": ""}),
    ({"content": [{"text": "a", "annotations": 5, "logprobs": "x"}]}, {"role": "assistant", "content": "a"}),
    ({"type": "reasoning", "summary": "short"}, {"role": "assistant", "reasoning_content": "short"}),
    ({"type": "function_call_output"}, {"role": "tool", "tool_call_id": "", "content": "null"}),
    ({"type": "function_call_output", "call_id": []}, {"role": "tool", "tool_call_id": "", "content": "null"}),
    ({"role": "tool", "content": "x"}, {"role": "other", "item": {"role": "tool", "content": "x"}}),
    ({"role": "other"}, {"role": "other", "item": {"role": "other"}}),
    ({"role": None}, {"role": "other", "item": {"role": None}}),
    ({"role": "user", "content": "hm?"}, {"role": "user", "content": "hm?"}),
    (
        {"type": "function_call", "name": "f"},
        {"role": "assistant", "tool_calls": [{"id": "", "name": "f", "arguments": ""}]},
    ),
]


@pytest.mark.parametrize(("item", "message"), ODD)
def test_an_item_that_lacks_something_is_still_a_message(item: Any, message: Any):
    assert flaw(item) is None
    assert messages([item]) == [message]


def test_calls_that_share_an_id_get_their_results_in_order():
    call = {"type": "function_call", "call_id": "call_0", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_0"}
    said = [
        {**call, "name": "a"},
        {**call, "name": "b"},
        {**result, "output": "of a"},
        {**result, "output": "of b"},
        {**call, "name": "c"},
        {**result, "output": "of c"},
        {**result, "output": "of nothing"},
        {**call, "name": "d"},
    ]
    assert [(each.name, each.output) for each in Response({"output": said}).tool_calls] == [
        ("a", "of a"),
        ("b", "of b"),
        ("c", "of c"),
        ("d", None),
    ]
    assert [each.get("name") for each in messages(said) if each["role"] == "tool"] == ["a", "b", "c", None]


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
TOKENS = st.fixed_dictionaries({}, optional={"generation_token_ids": st.lists(st.integers(0, 9), max_size=3)})
CALL = st.fixed_dictionaries({"id": TEXT, "name": TEXT, "arguments": TEXT})
ASSISTANT = st.builds(
    lambda said, tokens: {"role": "assistant", **said, **tokens},
    st.fixed_dictionaries(
        {},
        optional={
            "reasoning_content": TEXT.filter(bool),
            "reasoning_encrypted": TEXT.filter(bool),
            "content": TEXT,
            "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        },
    ).filter(bool),
    TOKENS,
)
ASKING = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "developer"]), "content": TEXT})


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Assistant turns, each set apart from the next by what somebody else says."""
    said: list[dict[str, Any]] = []
    for turn in draw(st.lists(ASSISTANT, max_size=4)):
        said.append(turn)
        calls = turn.get("tool_calls", [])
        for call in calls:
            said.append({"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT), "name": call["name"]})
        said += draw(st.lists(ASKING, min_size=0 if calls else 1, max_size=2))
    return said


@settings(max_examples=60, deadline=None)
@given(conversations())
def test_every_conversation_of_a_file_survives_the_way_to_items_and_back(said: list[dict[str, Any]]):
    assert messages(items(said)) == said


PART = {"type": "output_text", "text": "a", "annotations": 5, "logprobs": {"x": 1}}
REFUSAL = [{"type": "refusal", "refusal": "no"}, {"type": "refusal", "refusal": 5}, {"text": ["x"]}]
JSON = st.sampled_from([None, True, 5, "", "t", "assistant", [], ["x"], [5], {}, {"a": [1]}, [PART], REFUSAL])
KINDS = st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "computer_call"])
FIELDS = ("role", "content", "summary", "call_id", "id", "name", "arguments", "output", "encrypted_content", "refusal")
HOSTILE = st.builds(
    lambda kind, fields: {**fields, **kind},
    st.fixed_dictionaries({}, optional={"type": KINDS | JSON}),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(HOSTILE | JSON, max_size=5))
def test_no_json_at_all_makes_messages_raise_and_the_answer_stays_the_same(output: list[Any]):
    said = messages(output)
    orjson.dumps(said)
    assert messages(items(said)) == messages(items(messages(items(said))))
    if all(flaw(item) is None for item in output):
        assert final_text(items(said)) == final_text(output)
        there, back = Response({"output": output}), Response({"output": items(said)})
        assert [(call.name, call.output) for call in back.tool_calls] == [
            (call.name, call.output) for call in there.tool_calls
        ]
