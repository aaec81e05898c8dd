"""A conversation as things said: every shape a row can have, and none that makes it fall over."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.viewer.content import attachments
from velodrome.viewer.parts.dialogue import (
    Argument,
    Call,
    ShownMessage,
    conversation,
    final_answer,
    other_players,
    pretty,
)
from velodrome.viewer.parts.difference import divergence

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["role", "type", "content", "tool_calls", "name", "id", "arguments", "tool_call_id", "refusal", "reasoning_content",
     "item", "function", "call_id", "summary", "output", "generation_token_ids", "generation_log_probs"]
)  # fmt: skip
ROLES = st.sampled_from(["assistant", "tool", "user", "system", "other", "function_call", "message", "reasoning"])
MESSAGES = st.dictionaries(NAMES, JSON | ROLES, max_size=6) | JSON


def test_calls_stand_beside_their_results_even_if_ids_repeat():
    def turn(expression: str) -> dict[str, Any]:
        given = f'{{"expression": "{expression}"}}'
        return {"role": "assistant", "tool_calls": [{"id": "call_0", "name": "calculator", "arguments": given}]}

    row = {
        "responses_create_params": {"instructions": "Be brief.", "input": "?"},
        "output": [
            turn("1+1"),
            {"role": "tool", "tool_call_id": "call_0", "content": "2"},
            turn("2+2"),
            {"role": "tool", "tool_call_id": "call_0", "content": "4"},
            {"role": "tool", "tool_call_id": "stray", "content": "lost", "name": "other"},
            turn("3+3"),
            {"role": "assistant", "reasoning_content": "hm", "content": "done"},
        ],
    }

    def call(expression: str, result: str | None) -> ShownMessage:
        return ShownMessage(
            "assistant", calls=[Call("calculator", [Argument("expression", f'"{expression}"')], result)]
        )

    assert conversation(row) == [
        ShownMessage("system", "Be brief.", in_prompt=True),
        ShownMessage("user", "?", in_prompt=True),
        call("1+1", "2"),
        call("2+2", "4"),
        ShownMessage("tool", "lost", name="other"),
        call("3+3", None),
        ShownMessage("reasoning", "hm"),
        ShownMessage("assistant", "done"),
    ]


def test_code_in_an_argument_keeps_its_lines_and_broken_arguments_are_shown_as_they_are():
    calls = [
        {"id": "a", "name": "python", "arguments": '{"code": "x = 1\\nprint(x)", "n": 3}'},
        {"id": "b", "name": "python", "arguments": '{"code": '},
        {"id": "c", "function": {"name": "chat_shape", "arguments": "{}"}},
    ]
    assert conversation({"output": [{"role": "assistant", "tool_calls": calls}]})[0].calls == [
        Call("python", [Argument("code", "x = 1\nprint(x)"), Argument("n", "3")], None),
        Call("python", [Argument("", '{"code": ')], None, parsed=False),
        Call("chat_shape", [], None),
    ]


def test_rows_of_the_responses_shape_are_understood():
    row = {
        "responses_create_params": {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
        },
        "response": {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "[1]"},
                {"type": "function_call_output", "call_id": "c", "output": "one"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "bye"}]},
            ]
        },
    }
    assert conversation(row) == [
        ShownMessage("user", "hi", in_prompt=True),
        ShownMessage("reasoning", "think"),
        ShownMessage("assistant", calls=[Call("f", [Argument("", "[\n  1\n]")], "one")]),
        ShownMessage("assistant", "bye"),
    ]
    assert final_answer(row) == "bye"


def test_items_of_the_responses_shape_stand_in_the_output_too_whatever_they_are():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "stamps"}}
    image = {"type": "output_image", "image_url": "x"}
    row = {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
            {"type": "function_call_output", "call_id": "c", "output": {"one": 1}},
            search,
            {"role": "assistant", "content": "in between"},
            7,
            {"type": "reasoning", "summary": [{"text": 5}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": 5}, image]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "bye"}]},
        ]
    }
    assert conversation(row) == [
        ShownMessage("reasoning", "think"),
        ShownMessage("assistant", calls=[Call("f", [Argument("a", "1")], '{"one":1}')]),
        ShownMessage("other", pretty(search), name="web_search_call"),
        ShownMessage("assistant", "in between"),
        ShownMessage("other", "7", name="not a message"),
        ShownMessage("other", pretty({"type": "reasoning", "summary": [{"text": 5}]}), name="reasoning"),
        ShownMessage("assistant", pretty({"type": "output_text", "text": 5}), attached=attachments([image])),
        ShownMessage("assistant", "bye"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "audio": {"id": "a"}},
        {"role": "robot", "content": "beep"},
        {"role": ["assistant"], "content": "x"},
        {"role": "tool", "tool_call_id": "c"},
        {"content": "nobody"},
        {},
    ],
)
def test_a_message_that_says_nothing_by_its_own_rules_is_shown_as_it_is(message: dict[str, Any]):
    shown = conversation({"output": [message]})
    assert shown == [ShownMessage("other", pretty(message), name="")]


def test_an_assistant_that_said_nothing_is_not_passed_over():
    said = conversation({"output": [{"role": "assistant", "content": [{"type": "output_text", "text": ""}]}]})
    assert said == [ShownMessage("assistant", "")]


PNG = b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
).decode()
PICTURE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}


def test_a_picture_is_kept_beside_the_text_and_named_where_it_cannot_be_shown():
    row = {"responses_create_params": {"input": [{"role": "user", "content": [{"text": "look"}, PICTURE]}]}}
    [said] = conversation(row)
    assert (said.text, [each.src for each in said.attached]) == ("look", [PICTURE["image_url"]])
    assert said.aloud == "look\n[image: image, 33 bytes]"


@pytest.mark.parametrize(
    "result",
    [
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "input_text", "text": "shot"}, PICTURE]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": orjson.dumps([{"type": "text", "text": "shot"}, PICTURE]).decode(),
        },
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "shot"}, PICTURE]},
    ],
    ids=["parts", "parts as JSON", "an item"],
)
def test_a_picture_in_a_tool_result_is_kept_beside_its_text(result: dict[str, Any]):
    call = {"role": "assistant", "tool_calls": [{"id": "c", "name": "screenshot", "arguments": "{}"}]}
    [said] = conversation({"output": [call, result]})
    assert (said.calls[0].result, [each.src for each in said.calls[0].attached]) == ("shot", [PICTURE["image_url"]])
    assert said.calls[0].aloud == "shot\n[image: image, 33 bytes]"


def test_a_result_that_is_a_list_of_objects_stays_as_it_is():
    text = '[{"type": "apple"}, {"type": "pear"}]'
    assert [each.text for each in conversation({"output": [{"role": "tool", "content": text}]})] == [text]


@pytest.mark.parametrize(
    ("result", "failed"),
    [("error: not a number", True), ("ZeroDivisionError: division", True), ('{"error": "x"}', True), (None, True),
     ("Traceback (most recent call last):", True), ('{"error": null}', False), ("no errors", False), ("4", False)],
)  # fmt: skip
def test_a_call_that_went_wrong_is_known_by_its_result(result: str | None, failed: bool):
    assert Call("f", [], result).failed is failed


def test_the_other_players_have_their_own_conversations():
    def talk(word: str) -> dict[str, Any]:
        request = {"input": [{"role": "user", "content": f"you are {word}"}]}
        return {"responses_create_params": request, "output": [{"role": "assistant", "content": word}], "usage": {}}

    row = {**talk("giver"), "players": {"giver": talk("giver"), "taker": talk("taker"), "odd": 7}}
    assert {name: [said.text for said in talk] for name, talk in other_players(row).items()} == {
        "taker": ["you are taker", "taker"]
    }
    assert other_players({"players": ["x"]}) == {}


def test_what_the_model_said_has_the_place_of_its_call():
    calls = [{"id": "c", "name": "f", "arguments": "{}"}]
    made = [
        {"role": "assistant", "reasoning_content": "hm", "content": "one", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "two"},
    ]
    shown = conversation({"responses_create_params": {"input": "?"}, "output": made})
    assert [(said.role, said.turn) for said in shown] == [
        ("user", 0), ("reasoning", 1), ("assistant", 1), ("assistant", 1), ("user", 0), ("assistant", 2)
    ]  # fmt: skip


@settings(max_examples=100)
@given(JSON | st.lists(MESSAGES, max_size=5), JSON | st.lists(MESSAGES, max_size=5), JSON)
def test_no_row_is_too_strange(requests: Any, made: Any, response: Any):
    row = {
        "responses_create_params": {"input": requests, "instructions": response},
        "output": made,
        "response": response,
    }
    shown = conversation(row)
    assert all(isinstance(said.text, str) and isinstance(said.name, str) for said in shown)
    assert isinstance(final_answer(row), str)
    assert len(divergence([shown, shown[1:], shown]).repeats) == 3
    assert [said for said in shown if said.role == "other" and not said.text] == []


@pytest.mark.parametrize("row", [{}, {"output": None}, {"responses_create_params": 7}, {"output": "text"}])
def test_a_row_without_a_conversation_has_none_or_shows_what_stands_there(row: dict[str, Any]):
    assert [said.role for said in conversation(row)] == (["other"] if row.get("output") else [])


def test_a_conversation_has_its_largest_length():
    shown = conversation({"output": [{"role": "assistant", "content": "a"}] * 10_000})
    assert (len(shown), shown[-1].role) == (2001, "other")
