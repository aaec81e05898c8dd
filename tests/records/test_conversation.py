"""A conversation says the same in both of its shapes, and garbage from a model never raises."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.records.conversation import (
    Response,
    ToolCall,
    final_text,
    flaw,
    items,
    messages,
    text_of,
    token_flaws,
    tool_text,
)

Json = dict[str, Any]


def said(text: str, **more: Any) -> Json:
    """What the model says, as an item."""
    parts = [{"type": "output_text", "text": text, "annotations": [], **more.pop("part", {})}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": parts, **more}


def called(call: str, name: str, arguments: str, **more: Any) -> Json:
    return {"type": "function_call", "call_id": call, "name": name, "arguments": arguments, **more}


def result(call: str, output: str) -> Json:
    return {"type": "function_call_output", "call_id": call, "output": output}


TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
TURNS = [
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "two sums"}]},
    said("Let me see. "),
    called("c1", "add", '{"a": 1}'),
    called("c2", "mul", "{bad", **TOKENS),
    result("c2", "error: bad"),
    result("c1", "1"),
    said("It is 1", generation_token_ids=[4]),
]
CALLS = [{"id": "c1", "name": "add", "arguments": '{"a": 1}'}, {"id": "c2", "name": "mul", "arguments": "{bad"}]
SAID = [
    {
        "role": "assistant",
        "reasoning_content": "two sums",
        "content": "Let me see. ",
        "tool_calls": CALLS,
        **TOKENS,
    },
    {"role": "tool", "tool_call_id": "c2", "content": "error: bad", "name": "mul"},
    {"role": "tool", "tool_call_id": "c1", "content": "1", "name": "add"},
    {"role": "assistant", "content": "It is 1", "generation_token_ids": [4]},
]
REFUSED = said("") | {"content": [{"type": "refusal", "refusal": "I will not."}]}
HIDDEN = {"type": "reasoning", "summary": [], "encrypted_content": "x9"}
MARKED = {"annotations": [{"url": "u"}], "logprobs": [{"token": "yes"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"query": "velodrome"}}


@pytest.mark.parametrize(
    ("spoken", "as_items"),
    [
        (SAID, TURNS),
        (
            [{"role": "assistant", "reasoning_encrypted": "x9", "content": "", "refusal": "I will not."}],
            [HIDDEN, REFUSED],
        ),
        ([{"role": "assistant", "content": "yes", **MARKED}], [said("yes", part=MARKED)]),
        ([{"role": "other", "item": SEARCH}], [SEARCH]),
    ],
    ids=["turns", "refusal", "log-probabilities", "unknown kind"],
)
def test_messages_and_items_turn_into_each_other(spoken: list[Json], as_items: list[Json]):
    assert messages(as_items) == spoken
    assert items(spoken) == as_items


def test_reasoning_summaries_are_joined_and_a_turn_after_a_call_without_its_result_is_a_new_message():
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"text": "b"}]}
    assert messages([summary]) == [{"role": "assistant", "reasoning_content": "a\n\nb"}]
    call = {"type": "function_call", "id": "f1", "name": "add", "arguments": "{}"}
    assert messages([call, {"type": "message", "role": "assistant", "content": "done"}]) == [
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


def test_the_text_of_content_is_found_in_every_shape_and_the_final_text_follows_the_last_result():
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
        "x",
        {"text": 5},
        {"text": "b"},
    ]
    assert [text_of(each) for each in ("hi", parts, None, 5)] == ["hi", "ab", "", ""]
    assert [final_text(TURNS[:end]) for end in (7, 6, 2)] == ["It is 1", "", "Let me see. "]


def test_a_verifier_sees_text_calls_with_their_results_and_raw_fields():
    response = Response({"output": TURNS, "model": "m"})
    assert response.text == str(response) == "It is 1"
    assert response.tool_calls == [ToolCall("add", {"a": 1}, "1", "c1"), ToolCall("mul", "{bad", "error: bad", "c2")]
    assert response.messages == SAID
    assert response.items is TURNS
    assert (response["model"], response.get("id", 7)) == ("m", 7)
    assert Response({}).tool_calls == []
    unanswered = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    assert Response({"output": [unanswered]}).tool_calls == [ToolCall("f", {"a": 1}, None, "c")]


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
    (called("", "f", ""), {"role": "assistant", "tool_calls": [{"id": "", "name": "f", "arguments": ""}]}),
]


@pytest.mark.parametrize(("item", "message"), ODD)
def test_an_item_that_lacks_something_is_still_a_message(item: Any, message: Any):
    assert flaw(item) is None
    assert messages([item]) == [message]


def test_calls_that_share_an_id_get_their_results_in_order():
    spoken = [*(called("c", name, "{}") for name in "ab"), result("c", "of a"), result("c", "of b")]
    spoken += [called("c", "c", "{}"), result("c", "of c"), result("c", "of nothing"), called("c", "d", "{}")]
    calls = [(each.name, each.output) for each in Response({"output": spoken}).tool_calls]
    assert calls == [("a", "of a"), ("b", "of b"), ("c", "of c"), ("d", None)]
    assert [each.get("name") for each in messages(spoken) if each["role"] == "tool"] == ["a", "b", "c", None]


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
IDS = st.fixed_dictionaries({}, optional={"generation_token_ids": st.lists(st.integers(0, 9), max_size=3)})
CALL = st.fixed_dictionaries({"id": TEXT, "name": TEXT, "arguments": TEXT})
ASSISTANT = st.builds(
    lambda spoken, tokens: {"role": "assistant", **spoken, **tokens},
    st.fixed_dictionaries(
        {},
        optional={
            "reasoning_content": TEXT.filter(bool),
            "reasoning_encrypted": TEXT.filter(bool),
            "content": TEXT,
            "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        },
    ).filter(bool),
    IDS,
)
ASKING = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "developer"]), "content": TEXT})


@st.composite
def conversations(draw: st.DrawFn) -> list[Json]:
    """Assistant turns, each set apart from the next by what somebody else says."""
    spoken: list[Json] = []
    for turn in draw(st.lists(ASSISTANT, max_size=4)):
        spoken.append(turn)
        calls = turn.get("tool_calls", [])
        for call in calls:
            spoken.append({"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT), "name": call["name"]})
        spoken += draw(st.lists(ASKING, min_size=0 if calls else 1, max_size=2))
    return spoken


@settings(max_examples=60, deadline=None)
@given(conversations())
def test_every_conversation_of_a_file_survives_the_way_to_items_and_back(spoken: list[Json]):
    assert messages(items(spoken)) == spoken


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
    spoken = messages(output)
    orjson.dumps(spoken)
    assert messages(items(spoken)) == messages(items(messages(items(spoken))))
    if all(flaw(item) is None for item in output):
        assert final_text(items(spoken)) == final_text(output)
        there, back = (Response({"output": each}).tool_calls for each in (output, items(spoken)))
        assert [(call.name, call.output) for call in back] == [(call.name, call.output) for call in there]


IDS, PROBS = {"generation_token_ids": [3]}, {"generation_log_probs": [-0.5]}
NO_IDS, NO_PROBS = {"generation_token_ids": None}, {"generation_log_probs": None}
FLAWS: dict[str, tuple[list[Any], list[str], list[str]]] = {
    "all": ([TOKENS, TOKENS], [], []),
    "none": ([{}, {}], [], []),
    "log-probabilities alone, of a call": ([PROBS, {}], [], []),
    "log-probabilities alone, one missing": (
        [PROBS, {}, NO_PROBS], ["generation_log_probs on 2 of 3 turns"], []
    ),
    "log-probabilities alone, all missing": ([NO_PROBS], ["no generation_log_probs"], []),
    "whole ids, log-probabilities of some turns": (
        [IDS | PROBS, IDS | NO_PROBS], ["generation_log_probs on 1 of 2 turns"], []
    ),
    "ids that did not come": ([NO_IDS, NO_IDS], ["no generation_token_ids"], []),
    "ids of some turns": ([IDS, {}], [], ["generation_token_ids on 1 of 2 turns"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAWS)
def test_what_a_rollout_lacks_of_its_tokens_is_told_from_ids_that_are_not_whole(case: str):
    turns, lacking, broken = FLAWS[case]
    spoken = [{"role": "assistant", **turn} for turn in turns]
    assert token_flaws([{"role": "user"}, *spoken]) == (lacking, broken)
