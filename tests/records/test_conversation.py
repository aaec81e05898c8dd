"""A conversation says the same in both of its shapes, and garbage from a model never raises."""

from __future__ import annotations

from typing import Any

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
    {"role": "assistant", "reasoning_content": "two sums", "content": "Let me see. ", "tool_calls": CALLS, **TOKENS},
    {"role": "tool", "tool_call_id": "c2", "content": "error: bad", "name": "mul"},
    {"role": "tool", "tool_call_id": "c1", "content": "1", "name": "add"},
    {"role": "assistant", "content": "It is 1", "generation_token_ids": [4]},
]
REFUSED = said("") | {"content": [{"type": "refusal", "refusal": "I will not."}]}
MARKED = {"annotations": [{"url": "u"}], "logprobs": [{"token": "yes"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"query": "velodrome"}}


@pytest.mark.parametrize(
    ("spoken", "as_items"),
    [
        (SAID, TURNS),
        (
            [{"role": "assistant", "reasoning_encrypted": "x9", "content": "", "refusal": "I will not."}],
            [{"type": "reasoning", "summary": [], "encrypted_content": "x9"}, REFUSED],
        ),
        ([{"role": "assistant", "content": "yes", **MARKED}], [said("yes", part=MARKED)]),
        ([{"role": "other", "item": SEARCH}], [SEARCH]),
    ],
)
def test_messages_and_items_turn_into_each_other(spoken: list[Json], as_items: list[Json]):
    assert messages(as_items) == spoken
    assert items(spoken) == as_items


def test_reasoning_summaries_are_joined_and_a_turn_after_a_call_without_its_result_is_a_new_message():
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"text": "b"}]}
    assert messages([summary]) == [{"role": "assistant", "reasoning_content": "a\n\nb"}]
    spoken = messages([called("f1", "add", "{}"), said("done")])
    assert [sorted(each) for each in spoken] == [["role", "tool_calls"], ["content", "role"]]


def test_text_is_found_in_every_shape_and_the_final_text_follows_the_last_result():
    parts = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}, "x", {"text": 5}]
    assert [text_of(each) for each in ("hi", parts, None, 5)] == ["hi", "a", "", ""]
    assert [final_text(TURNS[:end]) for end in (7, 6, 2)] == ["It is 1", "", "Let me see. "]
    assert final_text([said("a"), {"role": "user", "content": "x"}, said("b"), said("c")]) == "bc"
    image = [{"type": "input_image"}]
    results = [tool_text(each) for each in ("36", {"a": 1}, None, [{"text": "a"}, {"text": "b"}], image)]
    assert results == ["36", '{"a":1}', "null", "ab", '[{"type":"input_image"}]']


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
    {"type": "function_call", "call_id": ["c"], "name": "f"},
    {"type": "function_call_output", "call_id": {"a": 1}, "output": "x"},
    {"type": "message", "content": ["text"]},
    {"type": "reasoning", "summary": 5},
    {"type": None, "content": "x"},
    {"type": "message", "content": "x", "generation_token_ids": [2**64 - 1]},
]


@pytest.mark.parametrize("item", FLAWED)
def test_what_is_no_item_has_a_flaw_in_words_and_is_kept_as_it_is(item: Any):
    assert isinstance(flaw(item), str)
    assert messages([item]) == [{"role": "other", "item": item}]
    assert items(messages([item])) == [item]


ODD = [
    ({}, {"role": "assistant", "content": ""}),
    ({"content": [{"text": "a", "annotations": 5, "logprobs": "x"}]}, {"role": "assistant", "content": "a"}),
    ({"type": "reasoning", "summary": "short"}, {"role": "assistant", "reasoning_content": "short"}),
    ({"type": "function_call_output", "call_id": []}, {"role": "tool", "tool_call_id": "", "content": "null"}),
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


@settings(max_examples=40, deadline=None)
@given(conversations())
def test_every_conversation_of_a_file_survives_the_way_to_items_and_back(spoken: list[Json]):
    assert messages(items(spoken)) == spoken


WHOLE, PROBS = {"generation_token_ids": [3]}, {"generation_log_probs": [-0.5]}
NO_IDS, NO_PROBS = {"generation_token_ids": None}, {"generation_log_probs": None}


@pytest.mark.parametrize(
    ("turns", "lacking", "broken"),
    [
        ([PROBS, {}], [], []),  # log-probabilities alone, of a call
        ([PROBS, {}, NO_PROBS], ["generation_log_probs on 2 of 3 turns"], []),
        ([WHOLE | PROBS, WHOLE | NO_PROBS], ["generation_log_probs on 1 of 2 turns"], []),
        ([NO_IDS, NO_IDS], ["no generation_token_ids"], []),
        ([WHOLE, {}], [], ["generation_token_ids on 1 of 2 turns"]),
    ],
)
def test_what_a_rollout_lacks_of_its_tokens_is_told_from_ids_that_are_not_whole(
    turns: list[Json], lacking: list[str], broken: list[str]
):
    spoken = [{"role": "assistant", **turn} for turn in turns]
    assert token_flaws([{"role": "user"}, *spoken]) == (lacking, broken)
