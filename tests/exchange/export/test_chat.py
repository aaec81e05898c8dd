"""A rollout as chat messages: what OpenAI's fine-tuning and TRL both take."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.exchange.export import chat
from velodrome.exchange.export.chat import Style, Unfit


def row(request: Any, output: list[Any], **params: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": request, **params}, "output": output}


def test_a_text_is_what_the_user_says_and_instructions_are_the_system():
    assert chat.prompt(row("Hi", []), Style()) == [{"role": "user", "content": "Hi"}]
    both = chat.prompt(row("Hi", [], instructions="Be brief."), Style())
    assert both == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def test_earlier_turns_of_a_prompt_keep_their_calls_results_and_images():
    image = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": "data:,x"}]
    request = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "What is 1 + 1?"},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "2"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": image},
    ]
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    shown = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    assert chat.prompt(row(request, []), Style()) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2", "name": "add"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": shown},
    ]


THOUGHT = [{"role": "assistant", "reasoning_content": "Hm.", "content": "Yes"}]


@pytest.mark.parametrize(
    ("reasoning", "message"),
    [
        ("keep", {"role": "assistant", "content": "Yes", "reasoning_content": "Hm."}),
        ("drop", {"role": "assistant", "content": "Yes"}),
        ("inline", {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes"}),
    ],
)
def test_reasoning_is_a_field_or_left_out_or_in_the_text(reasoning: Any, message: dict[str, Any]):
    assert chat.completion(row("x", THOUGHT), Style(reasoning=reasoning)) == [message]


def test_a_refusal_is_what_the_model_said():
    assert chat.completion(row("x", [{"role": "assistant", "refusal": "No."}]), Style()) == [
        {"role": "assistant", "content": "No."}
    ]


def test_tools_that_are_no_functions_are_not_offered():
    offered = [{"type": "web_search"}, {"type": "function", "name": "add", "parameters": {}}]
    assert chat.with_tools({"a": 1}, row("x", [], tools=offered)) == {
        "a": 1,
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}],
    }
    assert chat.with_tools({"a": 1}, row("x", [], tools=offered[:1])) == {"a": 1}


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


@pytest.mark.parametrize(("text", "why"), [("{", "are not JSON"), ("[1]", "are not an object")])
def test_arguments_can_be_objects_and_are_unfit_if_they_are_none(text: str, why: str):
    output: Any = [{"role": "assistant", "tool_calls": [{"id": "c", "name": "add", "arguments": text}]}]
    with pytest.raises(Unfit, match=f"^a call's arguments {why}$"):
        chat.completion(row("x", output), Style(arguments="object"))
    assert chat.completion(row("x", output), Style())[0]["tool_calls"][0]["function"]["arguments"] == text
    output[0]["tool_calls"][0]["arguments"] = '{"a": [1]}'
    [message] = chat.completion(row("x", output), Style(arguments="object"))
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": [1]}}


def test_a_prompt_that_asks_nothing_or_an_answer_that_is_a_tool_result_is_unfit():
    with pytest.raises(Unfit, match=r"^its prompt asks nothing$"):
        chat.prompt(row([{"role": "system", "content": "Be brief."}], []), Style())
    with pytest.raises(Unfit, match=r"^it ends with a tool result and not with an answer$"):
        chat.answered([{"role": "assistant", "content": ""}, {"role": "tool", "content": "36"}])
