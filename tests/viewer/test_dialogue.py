"""A conversation as things said: every shape a row can have, and none that makes it fall over."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.drawn_markup import DATA
from velodrome.viewer.content.attached import attachments
from velodrome.viewer.parts.comparing import shared_messages
from velodrome.viewer.parts.dialogue import (
    Argument,
    Call,
    ShownMessage,
    conversation,
    final_answer,
    pretty,
)

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


def test_items_of_the_responses_shape_are_understood_in_the_output_and_in_the_response():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "stamps"}}
    image = {"type": "output_image", "image_url": "x"}
    output = [
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
    expected = [
        ShownMessage("reasoning", "think"),
        ShownMessage("assistant", calls=[Call("f", [Argument("a", "1")], '{"one":1}')]),
        ShownMessage("other", pretty(search), name="web_search_call"),
        ShownMessage("assistant", "in between"),
        ShownMessage("other", "7", name="not a message"),
        ShownMessage("other", pretty({"type": "reasoning", "summary": [{"text": 5}]}), name="reasoning"),
        ShownMessage("assistant", pretty({"type": "output_text", "text": 5}), attached=attachments([image])),
        ShownMessage("assistant", "bye"),
    ]
    assert conversation({"output": output}) == expected
    prompt = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    row = {"responses_create_params": {"input": prompt}, "response": {"output": output}}
    assert conversation(row) == [ShownMessage("user", "hi", in_prompt=True), *expected]
    assert final_answer(row) == "bye"


def test_what_says_nothing_by_its_own_rules_is_shown_as_it_is():
    for message in (
        {"role": "assistant", "content": None, "audio": {"id": "a"}},
        {"role": "robot", "content": "beep"},
        {"role": ["assistant"], "content": "x"},
        {"role": "tool", "tool_call_id": "c"},
        {"content": "nobody"},
        {},
    ):
        assert conversation({"output": [message]}) == [ShownMessage("other", pretty(message), name="")]
    silent = {"role": "assistant", "content": [{"type": "output_text", "text": ""}]}
    assert conversation({"output": [silent]}) == [ShownMessage("assistant", "")]
    objects = '[{"type": "apple"}, {"type": "pear"}]'
    assert [each.text for each in conversation({"output": [{"role": "tool", "content": objects}]})] == [objects]
    long = conversation({"output": [{"role": "assistant", "content": "a"}] * 10_000})
    assert (len(long), long[-1].role) == (2001, "other")


PICTURE = {"type": "input_image", "image_url": DATA}


def test_a_picture_is_kept_beside_the_text_and_named_where_it_cannot_be_shown():
    parts = [{"type": "input_text", "text": "shot"}, PICTURE]
    [said] = conversation({"responses_create_params": {"input": [{"role": "user", "content": parts}]}})
    shown = ("shot", [DATA], "shot\n[image: image, 68 bytes]")
    assert (said.text, [each.src for each in said.attached], said.aloud) == shown
    call = {"role": "assistant", "tool_calls": [{"id": "c", "name": "screenshot", "arguments": "{}"}]}
    for result in (
        {"role": "tool", "tool_call_id": "c", "content": parts},
        {"role": "tool", "tool_call_id": "c", "content": orjson.dumps(parts).decode()},
        {"type": "function_call_output", "call_id": "c", "output": parts},
    ):
        made = conversation({"output": [call, result]})[0].calls[0]
        assert (made.result, [each.src for each in made.attached], made.aloud) == shown


def test_a_call_that_went_wrong_is_known_by_its_result():
    wrong = (
        "error: not a number",
        "ZeroDivisionError: division",
        '{"error": "x"}',
        "Traceback (most recent call):",
        None,
    )
    assert [Call("f", [], result).failed for result in wrong] == [True] * 5
    assert [Call("f", [], result).failed for result in ('{"error": null}', "no errors", "4")] == [False] * 3


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
    assert shared_messages([shown, shown]) == len(shown)
    assert [said for said in shown if said.role == "other" and not said.text] == []
