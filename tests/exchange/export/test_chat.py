"""A rollout as chat messages: what OpenAI's fine-tuning and TRL both take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from velodrome.exchange.export import chat
from velodrome.exchange.export.chat import Style, Unfit


def row(request: Any, output: list[Any], **params: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": request, **params}, "output": output}


def test_earlier_turns_of_a_prompt_keep_their_calls_results_and_images():
    """A text is what the user says; instructions and a developer's words are the system's."""
    system, hello = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    assert chat.prompt(row("Hi", []), Style()) == [hello]
    assert chat.prompt(row("Hi", [], instructions="Be brief."), Style()) == [system, hello]
    image = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": "data:,x"}]
    shown = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    request = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "2"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": image},
    ]
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    assert chat.prompt(row(request, []), Style()) == [
        system,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2", "name": "add"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": shown},
    ]


def test_reasoning_is_a_field_or_left_out_or_in_the_text():
    thought = row("x", [{"role": "assistant", "reasoning_content": "Hm.", "content": "Yes"}])
    said = {"role": "assistant", "content": "Yes"}
    for reasoning, message in {
        "keep": {**said, "reasoning_content": "Hm."},
        "drop": said,
        "inline": {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes"},
    }.items():
        assert chat.completion(thought, Style(reasoning=reasoning)) == [message]


def test_a_refusal_is_what_the_model_said():
    assert chat.completion(row("x", [{"role": "assistant", "refusal": "No."}]), Style()) == [
        {"role": "assistant", "content": "No."}
    ]
    both = [{"role": "assistant", "content": "Well.", "refusal": "No."}]
    with pytest.raises(Unfit, match=r"^it has text and a refusal in one turn$"):
        chat.completion(row("x", both), Style())


def test_functions_are_offered_as_text_to_trl_and_as_a_list_to_openai():
    offered = row("x", [], tools=[{"type": "function", "name": "add", "parameters": {}}])
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    assert chat.with_tools({"a": 1}, offered, listed=True) == {"a": 1, "tools": tools}
    assert chat.with_tools({"a": 1}, offered) == {"a": 1, "tools": json.dumps(tools, separators=(",", ":"))}
    assert chat.with_tools({"a": 1}, row("x", [], tools=[])) == {"a": 1}


def test_what_is_to_be_loaded_has_texts_for_contents_and_numbers_that_keep_their_value():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert chat.loadable([{"role": "user", "content": parts}], Style()) == [{"role": "user", "content": "one two"}]
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    with pytest.raises(Unfit, match=r"^it has content that is not text \(image\)$"):
        chat.loadable([{"role": "user", "content": [*parts, image]}], Style())
    for value in (0, -7, 2**64 - 1, 0.25, [1.5, {"a": 0.1}], True, None, "0.3"):
        [message] = chat.loadable([called({"value": value})], Style())
        assert message["tool_calls"][0]["function"]["arguments"] == {"value": value}
    deep: Any = 0.3
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Unfit, match="changes a number of a call's arguments"):
        chat.loadable([called({"value": deep})], Style())
    for number in (0.3, 2**64, 1e-12, 3.141592653589793):
        with pytest.raises(Unfit, match="changes a number of a call's arguments"):
            chat.loadable([called({"value": [{"deep": number}]})], Style())
    chat.loadable([called({"value": [0.3, 0.6, -2.675, 3.14159]})], Style(table=True))
    for number in (2**64, 1e-12, 3.141592653589793e-5):
        with pytest.raises(Unfit, match=r"arguments; --arguments text \(OpenAI.*JSON text\) keeps it"):
            chat.loadable([called({"value": number})], Style(table=True))


def called(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"arguments": arguments}}]}


def test_an_image_in_a_tool_result_is_seen_behind_its_json():
    def shown(content: str) -> Any:
        calls = {"role": "assistant", "tool_calls": [{"id": "c", "name": "look", "arguments": "{}"}]}
        result = {"role": "tool", "tool_call_id": "c", "content": content}
        return chat.completion(row("x", [calls, result]), Style())[1]["content"]

    for text in ('[{"type":"input_guess"', '[{"a":"input_image"}]', '[{"type":"input_text","text":"hello"}]'):
        assert shown(text) == text
    with pytest.raises(Unfit, match=r"not text \(image\)"):
        shown('[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:,x"}]')
    with pytest.raises(Unfit, match=r"not text \(file\)"):
        shown('[{"type":"input_file","file_id":"f"}]')


@pytest.mark.parametrize(
    ("conversation", "why"),
    [
        (row("x", []), "it has no answer"),
        (row("x", [{"role": "user", "content": "?"}]), "its output does not begin with the model"),
        (
            row("x", [{"role": "other", "item": {"type": "web_search_call"}}]),
            "it has a step of the kind 'web_search_call', which chat has no form for",
        ),
    ],
)
def test_a_conversation_that_chat_has_no_form_for_is_unfit(conversation: dict[str, Any], why: str):
    with pytest.raises(Unfit, match=f"^{why}$"):
        chat.completion(conversation, Style())
    with pytest.raises(Unfit, match=r"^its prompt asks nothing$"):
        chat.prompt(row([{"role": "system", "content": "Be brief."}], []), Style())
    with pytest.raises(Unfit, match=r"^it ends with a tool result and not with an answer$"):
        chat.answered([{"role": "assistant", "content": ""}, {"role": "tool", "content": "36"}])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "are not JSON"),
        ('{"a": NaN}', "are not JSON"),
        ('{"a": "\\ud800"}', "are not JSON"),
        ("[1]", "are not an object"),
        ('{"a": {"b": 1, "b": 2}}', "have a name twice in one object"),
        ('{"a": [18446744073709551616]}', "have a whole number of more than 64 bits"),
    ],
)
def test_arguments_can_be_objects_and_are_unfit_if_they_are_none(text: str, why: str):
    output: Any = [{"role": "assistant", "tool_calls": [{"id": "c", "name": "add", "arguments": text}]}]
    with pytest.raises(Unfit, match=f"^a call's arguments {why}$"):
        chat.completion(row("x", output), Style(arguments="object"))
    assert chat.completion(row("x", output), Style())[0]["tool_calls"][0]["function"]["arguments"] == text
    output[0]["tool_calls"][0]["arguments"] = '{"a": [1]}'
    [message] = chat.completion(row("x", output), Style(arguments="object"))
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": [1]}}


def test_calls_without_ids_have_the_same_ids_each_time_by_their_place():
    calls = [{"id": "", "name": name, "arguments": "{}"} for name in ("f", "g")]
    output = [{"role": "assistant", "tool_calls": calls}, {"role": "assistant", "content": "36"}]
    first, again = (chat.completion(row("x", output), Style()) for _ in range(2))
    assert first == again
    assert [call["id"] for call in first[0]["tool_calls"]] == ["call_1_0", "call_1_1"]
    earlier = chat.prompt(row([output[0], {"role": "user", "content": "?"}], []), Style())
    assert [call["id"] for call in earlier[0]["tool_calls"]] == ["call_0_0", "call_0_1"]
