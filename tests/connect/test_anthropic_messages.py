"""Anthropic's Messages <-> Responses: each shape by example, then round trips over generated answers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.connect.anthropic_messages import message_from_response, request_from_messages
from velodrome.errors import ModelError

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
USER = {"role": "user", "content": "Add."}
CACHED = {"cache_control": {"type": "ephemeral"}}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
ADD = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}


def converted(**request: Any) -> Json:
    return request_from_messages({"max_tokens": 9, "messages": [USER], **request})


FIELDS: list[tuple[Json, Json]] = [
    ({"model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 20}, {}),
    ({"stop_sequences": ["END"]}, {"stop": ["END"]}),
    ({"metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}}),
    ({"system": "Be brief."}, {"system": None, "instructions": "Be brief."}),
    ({"tools": [{"name": "add", "input_schema": SCHEMA}]}, {"tools": [ADD]}),
    (
        {"tools": [{"type": "custom", "name": "add", "description": "+", "input_schema": SCHEMA, "strict": True}]},
        {"tools": [{**ADD, "description": "+", "strict": True}]},
    ),
    ({"tools": [{"name": "add", "input_schema": SCHEMA, "eager_input_streaming": True, **CACHED}]}, {"tools": [ADD]}),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    ({"tool_choice": {"type": "tool", "name": "add"}}, {"tool_choice": {"type": "function", "name": "add"}}),
    (
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
    ({"output_config": {"effort": "low"}}, {"output_config": None, "reasoning": {"effort": "low"}}),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {
            "output_config": None,
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}},
        },
    ),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"thinking": None}),
    ({"thinking": {"type": "disabled"}, "service_tier": "auto", **CACHED}, dict.fromkeys(("thinking", "service_tier"))),
]


def test_a_field_of_a_request_is_renamed_or_passed_on_or_left_out() -> None:
    left_out = dict.fromkeys(("stop_sequences", "cache_control", "context_management"))
    for theirs, ours in FIELDS:
        request = {"max_tokens": 9, "messages": [USER], **theirs}
        before = deepcopy(request)
        expected = {name: value for name, value in {**theirs, **left_out, **ours}.items() if value is not None}
        assert request_from_messages(request) == {"input": [USER], "max_output_tokens": 9, **expected}
        assert request == before


def test_a_conversation_becomes_items_in_its_order() -> None:
    turn = [
        {"type": "thinking", "thinking": "Two sums.", "signature": ""},
        {"type": "text", "text": "Let me see.", "citations": None},
        {"type": "tool_use", "id": "c0", "name": "add", "input": {"a": 1}, **CACHED},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "c0", "content": "2", **CACHED},
        {"type": "tool_result", "tool_use_id": "c1"},
        {"type": "text", "text": "And?"},
    ]
    asked = [{"type": "text", "text": "What?", **CACHED}, {"type": "image", "source": PNG}]
    asked += [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]
    messages = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": turn},
        {"role": "user", "content": results},
        {"role": "system", "content": "Now be brief."},
    ]
    image = {"type": "input_image", "detail": "auto"}
    system = [{"type": "text", "text": "Be brief.", **CACHED}, {"type": "text", "text": "Be kind."}]
    said_first = [{"type": "input_text", "text": "Be brief."}, {"type": "input_text", "text": "Be kind."}]
    assert converted(messages=messages, system=system)["input"] == [
        {"role": "system", "content": said_first},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What?"},
                {**image, "image_url": "data:image/png;base64,iVBORw0="},
                {**image, "image_url": "https://example.com/a.png"},
            ],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Two sums."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
        {"type": "function_call", "call_id": "c0", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "2"},
        {"type": "function_call_output", "call_id": "c1", "output": ""},
        {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
        {"role": "system", "content": "Now be brief."},
    ]


RED = {"type": "text", "text": "red"}
RESULTS: list[tuple[Json, Any]] = [
    ({"content": [RED]}, [{"type": "input_text", "text": "red"}]),
    (
        {"content": [RED, {"type": "image", "source": PNG}]},
        [
            {"type": "input_text", "text": "red"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0=", "detail": "auto"},
        ],
    ),
    ({"content": "no such city", "is_error": True}, "error: no such city"),
    ({"content": "Error: no such city", "is_error": True}, "Error: no such city"),
    (
        {"content": [RED], "is_error": True},
        [{"type": "input_text", "text": "error: "}, {"type": "input_text", "text": "red"}],
    ),
]


def test_a_tools_result_in_every_form_and_an_error_says_so() -> None:
    for block, output in RESULTS:
        result = {"type": "tool_result", "tool_use_id": "c", **block}
        items = converted(messages=[{"role": "user", "content": [result]}])["input"]
        assert items == [{"type": "function_call_output", "call_id": "c", "output": output}]


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
FILE = {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
ASKED_RED = {"type": "input_text", "text": "red"}
DOCUMENTS: list[tuple[Json, list[Json]]] = [
    ({"source": PDF, "citations": {"enabled": True}}, [FILE]),
    ({"source": PDF, "title": "red", "context": None}, [ASKED_RED, FILE]),
    ({"source": {"type": "url", "url": "http://a/b"}}, [{"type": "input_file", "file_url": "http://a/b"}]),
    (
        {"source": {"type": "text", "media_type": "text/plain", "data": "It is red."}, "context": "red"},
        [ASKED_RED, {"type": "input_text", "text": "It is red."}],
    ),
    ({"source": {"type": "content", "content": [RED, RED]}}, [ASKED_RED, ASKED_RED]),
]


def test_a_document_is_a_file_or_a_text_in_a_prompt_and_in_a_result() -> None:
    for block, parts in DOCUMENTS:
        document = {"type": "document", **block}
        result = {"type": "tool_result", "tool_use_id": "c", "content": [document]}
        items = converted(messages=[{"role": "user", "content": [RED, document, result]}])["input"]
        assert items == [
            {"role": "user", "content": [ASKED_RED, *parts]},
            {"type": "function_call_output", "call_id": "c", "output": parts},
        ]


def user(*blocks: Any) -> Json:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


REFUSED: list[tuple[Json, str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, '"messages"'),
    ({"messages": ["?"]}, "messages[0]"),
    ({"messages": [USER, {"role": "tool", "content": "?"}]}, "messages[1]"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [USER, {"role": "assistant", "content": "The answer is"}]}, "cannot be continued"),
    (user(RED, {"type": "text"}), 'messages[0].content[1]: "text"'),
    (user({"type": "document", "source": {"type": "file", "file_id": "f"}}), "messages[0].content[0].source"),
    (user({"type": "tool_use", "id": "c", "name": "n", "input": {}}), "role user"),
    (user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "messages[0].content[0]"),
    (user({"type": "tool_result", "content": "x"}), '"tool_use_id"'),
    (user({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_result"}]}), "messages[0].content[0]"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]: a tool of Anthropic's servers"),
    ({"tools": [{"name": "add"}]}, 'tools[0]: "input_schema"'),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    ({"tools": 7}, "request"),
]


def test_what_cannot_be_said_is_refused_with_its_place() -> None:
    for request, place in REFUSED:
        with pytest.raises(ModelError) as caught:
            converted(**request)
        assert place in str(caught.value)


def response(*output: Json, **more: Any) -> Json:
    return {"id": "resp_1", "model": "m", "status": "completed", "output": list(output), **more}


def said(*parts: Json) -> Json:
    return {"type": "message", "role": "assistant", "content": list(parts)}


HI = {"type": "output_text", "text": "Hi."}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
STOPS: list[tuple[Json, str]] = [
    (response(said(HI)), "end_turn"),
    (response(), "end_turn"),
    (response(said(HI), CALL), "tool_use"),
    (response(said(HI), CALL, **CUT), "max_tokens"),
    (response(said(HI), status="incomplete", metadata={"stop": "max_steps"}), "max_tokens"),
    (response(said({"type": "refusal", "refusal": "No."})), "refusal"),
    (response(said(HI), status="incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
]


def test_why_an_answer_ended_and_what_is_not_one_is_blamed_on_the_model() -> None:
    assert [message_from_response(answer)["stop_reason"] for answer, _ in STOPS] == [reason for _, reason in STOPS]
    for answer in (None, {}, {"output": "text"}, {"output": ["text"]}, response(said(7))):  # type: ignore[arg-type]
        with pytest.raises(ModelError, match="response"):
            message_from_response(answer)  # type: ignore[arg-type]


def test_a_whole_message() -> None:
    usage = {
        "input_tokens": 30,
        "output_tokens": 9,
        "input_tokens_details": {"cached_tokens": 20},
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "abc"}
    search = {"type": "web_search_call", "id": "w", "status": "completed"}
    refused = said(HI, {"type": "refusal", "refusal": "Not that."})
    assert message_from_response(response(hidden, search, refused, usage=usage)) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "redacted_thinking", "data": "abc"},
            {"type": "text", "text": "Hi."},
            {"type": "text", "text": "Not that."},
        ],
        "stop_reason": "refusal",
        "stop_sequence": None,
        "stop_details": {"type": "refusal", "category": None, "explanation": "Not that."},
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 20,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        },
    }


# Round trips

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda text, by: {"type": "thinking", "thinking": text, "signature": by}, texts, texts | st.just("")),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, texts),
    st.builds(
        lambda i, name, value: {"type": "tool_use", "id": i, "name": name, "input": value}, texts, texts, objects
    ),
)


@settings(max_examples=50)
@given(st.lists(blocks, max_size=5))
def test_the_blocks_of_a_turn_survive_the_way_there_and_back(content: list[Json]) -> None:
    items = converted(messages=[{"role": "assistant", "content": content}, USER])["input"][:-1]
    assert message_from_response(response(*items))["content"] == content


@pytest.mark.parametrize("written", ['{"a":1}', "{broken", "[1]", "7"])
def test_the_items_of_an_answer_are_the_same_when_it_is_sent_back_even_calls_with_broken_arguments(
    written: str,
) -> None:
    text = {"type": "output_text", "text": "Hi.", "annotations": []}
    summary = [{"type": "summary_text", "text": "hm"}]
    output = [
        {"type": "reasoning", "summary": summary, "encrypted_content": "abc"},
        {"role": "assistant", "content": [text]},
        {**CALL, "arguments": written},
    ]
    content = message_from_response(response(*output))["content"]
    again = converted(messages=[{"role": "assistant", "content": content}, USER])["input"][:-1]
    assert again == output
