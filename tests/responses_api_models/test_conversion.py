"""Responses <-> chat: each shape by example, then round trips over generated conversations."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.errors import ModelError
from velodrome.records.task import check_task
from velodrome.records.turns import GrowingInput
from velodrome.responses_api_models.conversion import (
    chat_from_response,
    chat_messages,
    chat_request,
    converted,
    response_from_chat,
    response_items,
    responses_request,
)

Json = dict[str, Any]

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
CALL_2 = {"type": "function_call", "call_id": "c2", "name": "mul", "arguments": "{}"}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CHAT_CALL_2 = {"id": "c2", "type": "function", "function": {"name": "mul", "arguments": "{}"}}


SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
FORMAT = {"type": "json_schema", "name": "sum", "schema": SCHEMA}
ADD = {"type": "function", "name": "add"}
CHAT_ADD = {"type": "function", "function": {"name": "add"}}
SAME = {"model": "m", "temperature": 0.5, "top_k": 20, "seed": 7, "parallel_tool_calls": False, "tool_choice": "auto"}
BOTH_WAYS: list[tuple[Json, Json]] = [
    (SAME, SAME),
    ({"max_output_tokens": 64}, {"max_tokens": 64}),
    ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        {"text": {"format": FORMAT}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}}},
    ),
    ({"tools": [{**ADD, "strict": True}]}, {"tools": [{**CHAT_ADD, "function": {"name": "add", "strict": True}}]}),
    ({"tool_choice": ADD}, {"tool_choice": CHAT_ADD}),
    (
        {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [ADD]}},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CHAT_ADD]}}},
    ),
    ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
]


def test_a_field_of_a_request_goes_both_ways_and_the_request_is_not_touched() -> None:
    requested = [{"role": "user", "content": "Add."}]
    for ours, theirs in BOTH_WAYS:
        request, chat = {"input": requested, **ours}, {"messages": requested, **theirs}
        before = deepcopy((request, chat))
        assert (chat_request(request), responses_request(chat)) == (chat, request)
        assert (request, chat) == before


def test_what_only_one_side_of_a_request_can_say() -> None:
    request = {"instructions": "Be brief.", "input": "Add.", "truncation": "auto", "reasoning": {"summary": "auto"}}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add."}]
    assert chat_request(request) == {"messages": messages}
    chat = {"messages": messages, "max_completion_tokens": 64, "tools": [CHAT_ADD]}
    lax = [{**ADD, "strict": False}]  # chat tools are lax unless they say otherwise
    assert responses_request(chat) == {"input": messages, "max_output_tokens": 64, "tools": lax}


def test_parallel_calls_share_a_message_with_the_text_and_reasoning_before_them() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules"}]},
        {"role": "user", "content": "Go"},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok", "annotations": []}]},
        CALL,
        CALL_2,
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "4"}]},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        },
        CALL,
        {"type": "function_call_output", "call_id": "c1", "output": {"value": 2}},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "message", "role": "assistant", "content": "<think>kept</think>bye"},
    ]
    before = deepcopy(items)
    assert chat_messages(items) == [
        {"role": "system", "content": "Rules"},
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [CHAT_CALL, CHAT_CALL_2]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "tool", "tool_call_id": "c2", "content": "4"},
        {"role": "assistant", "content": None, "reasoning_content": "a\n\nb", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"value":2}'},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": "<think>kept</think>bye"},
    ]
    assert items == before


def test_images_files_and_audio_go_both_ways() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}
    ours = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "high"},
        {"type": "input_file", "file_id": "f1", "filename": "a.pdf"},
        audio,
    ]
    theirs = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}},
        {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}},
        audio,
    ]
    assert chat_messages([{"role": "user", "content": ours}]) == [{"role": "user", "content": theirs}]
    assert response_items([{"role": "user", "content": theirs}]) == [{"role": "user", "content": ours}]


ROLLOUT = [
    {
        "role": "assistant",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "name": "add", "arguments": '{"a": 1}'}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "2"},
    {"role": "assistant", "content": "It is 2", "generation_token_ids": [5], "reasoning_encrypted": "xx"},
]


def test_the_messages_of_a_rollouts_file_are_accepted_as_input() -> None:
    before = deepcopy(ROLLOUT)
    assert response_items(ROLLOUT) == [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {**CALL, "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "reasoning", "summary": [], "encrypted_content": "xx"},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "It is 2", "annotations": []}],
        },
    ]
    assert chat_messages(ROLLOUT) == [
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "It is 2"},
    ]
    assert before == ROLLOUT


def test_items_that_need_no_change_are_passed_on_as_they_are() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zz"},
        CALL,
        {"type": "web_search_call", "id": "ws_1"},
    ]
    assert [new is old for new, old in zip(response_items(items), items, strict=True)] == [True] * 5
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    assert response_items([{**CALL, **tokens}]) == [CALL]


INEXPRESSIBLE: list[tuple[Json, str]] = [
    ({}, 'request: "input" must be a list, found NoneType'),
    ({"input": ["hi"]}, "input[0]: expected an object, found str"),
    ({"input": [{"type": "web_search_call"}]}, 'input[0]: "web_search_call" has no form in chat completions'),
    ({"input": "x", "previous_response_id": "resp_1"}, '"previous_response_id" has no form in chat completions'),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "without image_url"),
    ({"input": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "tool_calls[0]: no function name"),
    ({"input": [{"role": "user", "content": "x"}, {"role": "user", "content": [["x"]]}]}, '"input[1].content"'),
]


def test_a_request_that_chat_cannot_express_says_what_is_in_the_way() -> None:
    for request, message in INEXPRESSIBLE:
        with pytest.raises(ModelError) as info:
            chat_request(request)
        assert message in str(info.value)


COMPLETION: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 12,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
    },
}


def completion(finish: str | None = "stop", choice: Json | None = None, **message: Any) -> Json:
    whole = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **(choice or {})}
    return {**COMPLETION, "choices": [whole]}


def test_a_completion_becomes_a_response() -> None:
    answer = {**COMPLETION, "timings": {"predicted_ms": 5}}
    request = {"input": "x", "temperature": 0.2, "tools": [ADD]}
    message = {
        "type": "message",
        "id": "msg_chatcmpl-1_0",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
    }
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 14,
    }
    ended = {"status": "completed", "incomplete_details": None, "error": None, "output": [message], "usage": usage}
    given = {"tools": [ADD], "tool_choice": "auto", "parallel_tool_calls": True, "temperature": 0.2}
    named = {"id": "chatcmpl-1", "object": "response", "created_at": 12, "model": "m"}
    assert response_from_chat(answer, request) == {**named, **ended, **given, "timings": {"predicted_ms": 5}}


def test_arguments_that_came_as_an_object_become_text_and_a_missing_id_is_made_up() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    first, second = response_from_chat(completion(content=None, tool_calls=[call, call]), {})["output"]
    assert (first["arguments"], first["name"]) == ('{"a":1}', "add")
    assert first["call_id"].startswith("call_")
    assert first["call_id"] != second["call_id"]


def test_missing_usage_stays_missing_and_bare_usage_is_completed() -> None:
    assert response_from_chat({**COMPLETION, "usage": None}, {})["usage"] is None
    bare = {"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": None}
    assert response_from_chat({**COMPLETION, "usage": bare}, {})["usage"] == {
        "input_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }


def test_a_response_becomes_a_completion_without_the_steps_of_hosted_tools() -> None:
    note = {"url": "u", "title": "t", "start_index": 0, "end_index": 1}
    text = {"type": "output_text", "text": "Hi", "annotations": [{"type": "url_citation", **note}]}
    output = [
        {"type": "web_search_call", "id": "ws"},
        {"type": "message", "role": "assistant", "content": [text]},
        {**CALL, "generation_token_ids": [4]},
    ]
    completion = chat_from_response({"id": "resp_1", "created_at": 12.0, "model": "m", "output": output, "tools": []})
    message = {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": [CHAT_CALL],
        "annotations": [{"type": "url_citation", "url_citation": note}],
        "generation_token_ids": [4],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls", "token_ids": [4]}
    assert (completion["created"], completion["choices"], completion["usage"]) == (12, [choice], None)
    with pytest.raises(ModelError, match=r'^response: no "output" list$'):
        chat_from_response({"output": None})


# Round trips

words = st.text(min_size=1, max_size=12)
names = st.sampled_from(["add", "mul", "look_up"])
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)

input_parts = st.one_of(
    st.builds(lambda text: {"type": "input_text", "text": text}, words),
    st.builds(lambda url: {"type": "input_image", "image_url": url, "detail": "low"}, words),
    st.builds(lambda name: {"type": "input_file", "file_id": name}, words),
    st.builds(lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}, words),
)
asides = st.builds(
    lambda role, content: {"type": "message", "role": role, "content": content},
    st.sampled_from(["user", "system"]),
    words | st.lists(input_parts, min_size=1, max_size=3),
)
said_parts = st.builds(lambda text: {"type": "output_text", "text": text}, words)
refusals = st.builds(lambda text: {"type": "refusal", "refusal": text}, words)
said = st.builds(
    lambda text, more: {"type": "message", "role": "assistant", "content": [text, *more]},
    said_parts,
    st.lists(refusals, max_size=1),
)
thought = st.builds(
    lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}, words
)
called = st.fixed_dictionaries({"type": st.just("function_call"), "call_id": words, "name": names, "arguments": words})
answered = st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": words, "output": st.text()})
conversations = st.lists(st.one_of(asides, said, thought, called, answered), max_size=10)

tools = st.lists(
    st.builds(lambda name, strict: {**ADD, "name": name, "strict": strict, "parameters": {}}, names, st.booleans()),
    min_size=1,
)
samplings = st.fixed_dictionaries(
    {},
    optional={
        "max_output_tokens": st.integers(1, 99),
        "top_k": st.integers(1, 9),
        "reasoning": st.sampled_from([{"effort": "low"}, {"effort": "high"}]),
        "tool_choice": st.sampled_from(["auto", "none", "required", ADD]),
        "tools": tools,
        "text": st.builds(lambda name: {"format": {**FORMAT, "name": name}}, words),
        "include": st.just(["message.output_text.logprobs"]),
        "metadata": st.dictionaries(words, words),
    },
)


def events(items: list[Json]) -> list[tuple[str, ...]]:
    """What a conversation says, whatever its shape: one entry a thing said, in order."""
    result: list[tuple[str, ...]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            result.append(("call", item["call_id"], item["name"], item["arguments"]))
        elif kind == "function_call_output":
            result.append(("output", item["call_id"], item["output"]))
        elif kind == "reasoning":
            text = "".join(part["text"] for part in item["content"])
            if result and result[-1][0] == "reasoning":
                text = result.pop()[1] + text
            result.append(("reasoning", text))
        else:
            content = item["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            for part in parts:
                body = {name: value for name, value in part.items() if name not in ("type", "annotations")}
                result.append(("said", item["role"], repr(sorted(body.items()))))
    return result


@settings(max_examples=50)
@given(conversations, samplings)
def test_a_responses_request_means_the_same_after_chat_and_back(conversation: list[Json], sampling: Json) -> None:
    request = {"input": conversation, **sampling}
    before = deepcopy(request)
    back = responses_request(chat_request(request))
    assert events(back.pop("input")) == events(conversation)
    assert back == sampling
    assert request == before


SHAPES = (response_items, chat_messages)


@settings(max_examples=50)
@given(conversations, st.lists(st.integers(1, 12)))
def test_a_conversation_that_grows_is_converted_as_if_it_were_new_at_every_turn(
    conversation: list[Json], turns: list[int]
) -> None:
    made: Json = {}
    for count in sorted({*turns, len(conversation)}):
        so_far = conversation[:count]
        growing = GrowingInput(so_far, made)
        if growing:
            assert [converted(growing, shape) for shape in SHAPES] == [shape(so_far) for shape in SHAPES]


def test_an_item_is_converted_once_however_many_turns_follow() -> None:
    for shape in SHAPES:
        items: list[Json] = [{"role": "user", "content": "go"}]
        made: Json = {}
        before: list[Any] = []
        for turn in range(3):
            now = converted(GrowingInput(items, made), shape)
            assert all(one is other for one, other in zip(before, now, strict=False))
            before = now
            items += [{**CALL, "call_id": f"c{turn}"}]
            items += [{"type": "function_call_output", "call_id": f"c{turn}", "output": "x"}]


@settings(max_examples=50)
@given(
    st.none() | words,
    st.none() | words,
    st.lists(st.tuples(names, words), max_size=3),
    st.sampled_from(["stop", "length", "content_filter"]),
    st.integers(0, 99),
)
def test_an_answer_is_the_same_after_responses_and_back(
    text: str | None, reasoning: str | None, calls: list[tuple[str, str]], finish: str, tokens: int
) -> None:
    message: Json = {"role": "assistant", "content": text if text or reasoning or calls else ""}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ]
        finish = "tool_calls" if finish == "stop" else finish
    probs = {"content": [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}]} if text else None
    usage = {**COMPLETION["usage"], "completion_tokens": tokens}
    choice = {"index": 0, "message": message, "logprobs": probs, "finish_reason": finish}
    answer = {**COMPLETION, "usage": usage, "choices": [choice]}
    assert chat_from_response(response_from_chat(answer, {})) == answer


@settings(max_examples=50)
@given(anything)
def test_garbage_is_never_anything_but_a_model_error(garbage: Any) -> None:
    shapes: list[tuple[Any, ...]] = [
        (response_from_chat, garbage, {}),
        (response_from_chat, {"choices": garbage}, {}),
        (response_from_chat, {"choices": [{"message": garbage}]}, {}),
        (response_from_chat, completion(content="x", tool_calls=garbage), {}),
        (response_from_chat, {**COMPLETION, "usage": garbage}, {}),
        (chat_from_response, garbage),
        (chat_from_response, {"output": garbage}),
        (chat_request, {"input": garbage}),
        (chat_request, {"input": [{"role": "user", "content": garbage}]}),
        (chat_request, {"input": "x", "tools": garbage}),
        (responses_request, {"messages": garbage}),
        (responses_request, {"messages": [{"role": "assistant", "content": garbage, "tool_calls": garbage}]}),
        (response_items, [{"role": "user", "content": garbage}]),
    ]
    for function, *arguments in shapes:
        try:
            assert isinstance(function(*arguments), dict | list)
        except ModelError:
            pass


ODD: list[Any] = [None, "", "x", 5, True, [], ["x"], [["x"]], [5], [None], {}, {"a": 1}, [{}], [{"a": 1}]]
PARTS = [
    *({"type": kind} for kind in ("text", "output_text", "refusal", "image_url", "file", "input_file")),
    *({"type": kind, kind: odd} for kind in ("text", "refusal", "image_url", "file") for odd in ODD),
    {"type": "image_url", "image_url": {"url": 5}},
]
CALLS = [*ODD, *({"function": odd} for odd in ODD), {"name": "f"}, {"function": {"name": "f", "arguments": 5}}]
ITEMS = [
    *ODD,
    *({"role": role, "content": odd} for role in ("user", "assistant", "tool", "other", 5, []) for odd in ODD),
    *({"role": role, "content": [part]} for role in ("user", "assistant", "tool") for part in PARTS),
    *({"role": "assistant", "tool_calls": calls} for calls in [*ODD, *([call] for call in CALLS)]),
    *({"role": "assistant", name: odd} for name in ("annotations", "reasoning", "refusal", "type") for odd in ODD),
    *({"type": "reasoning", name: odd} for name in ("content", "summary") for odd in ODD),
    *({"type": "function_call_output", "call_id": "c", "output": odd} for odd in [*ODD, *([part] for part in PARTS)]),
    *({"type": "function_call", name: odd} for name in ("name", "arguments", "call_id") for odd in ODD),
]
PARAMS = [
    *({"input": odd} for odd in ODD),
    *({"input": [item]} for item in ITEMS),
    *({"input": "x", name: odd} for name in ("tools", "tool_choice", "text", "reasoning", "include") for odd in ODD),
    *({"input": "x", **field} for odd in ODD for field in ({"text": {"format": odd}}, {"tool_choice": {"tools": odd}})),
]


def wire_problem(params: Json) -> str | None:
    """Why a request cannot be made of this, unless that is a matter of the endpoint."""
    try:
        if isinstance(params["input"], list):
            response_items(params["input"])
        chat_request(params)
    except ModelError as error:
        return None if "has no form in chat completions" in str(error) else str(error)
    return None


def test_what_the_survey_of_tasks_lets_through_can_be_put_on_the_wire():
    refused = 0
    for params in PARAMS:
        try:
            check_task({"responses_create_params": params})
        except ValueError:
            refused += 1
            continue
        assert wire_problem(params) is None, params
    assert 100 < refused < len(PARAMS) - 100
