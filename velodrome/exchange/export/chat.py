"""A rollout as chat messages: the shape that OpenAI's fine-tuning and TRL share.

A message has `role` and `content`, which is never null; calls are in `tool_calls` of the assistant, results in
messages with the role `tool` and the tool's name. What chat has no form for makes the rollout unfit: leaving a step
out would teach something that never happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import orjson

from velodrome.contracts import Json
from velodrome.records.conversation import text_of
from velodrome.responses_api_models.turns import chat_messages, nested

Arguments = Literal["text", "object"]
Reasoning = Literal["keep", "drop", "inline"]

_KINDS = frozenset(("message", "reasoning", "function_call", "function_call_output"))


class Unfit(ValueError):
    """This rollout cannot be written in the format; the message says why."""


@dataclass(frozen=True)
class Style:
    """How calls and reasoning are written.

    Arguments are JSON text as OpenAI has them, or objects, which many chat templates want. Reasoning is a field of its
    own (`reasoning_content`), left out, or in the text between `<think>` and `</think>`.
    """

    arguments: Arguments = "text"
    reasoning: Reasoning = "keep"


def prompt(row: Json, style: Style) -> list[Json]:
    params = row["responses_create_params"]
    question = params.get("input")
    messages = _chat([{"role": "user", "content": question}] if isinstance(question, str) else question, style)
    if params.get("instructions"):
        messages.insert(0, {"role": "system", "content": params["instructions"]})
    if not messages or messages[-1]["role"] == "system":
        raise Unfit("its prompt asks nothing")
    return messages


def completion(row: Json, style: Style) -> list[Json]:
    """What the agent made of it, tool results included."""
    messages = _chat(row["output"], style)
    if not messages or messages[0]["role"] != "assistant":
        raise Unfit("it has no answer" if not messages else "its output does not begin with the model")
    return messages


def text_only(content: Any) -> str:
    """The content of a message as text; an image has no form there."""
    if not isinstance(content, str) and any("text" not in part for part in content):
        raise Unfit("it has content that is not text")
    return text_of(content)


def answered(messages: list[Json]) -> list[Json]:
    """The same, if the model has the last word."""
    if messages[-1]["role"] != "assistant":
        raise Unfit("it ends with a tool result and not with an answer")
    return messages


def tools(row: Json) -> list[Json]:
    """The functions that were offered; tools of other kinds have no form in chat."""
    offered = row["responses_create_params"].get("tools") or ()
    return [nested(tool) for tool in offered if tool.get("type") == "function"]


def with_tools(record: Json, row: Json) -> Json:
    """The record with the field `tools`, if any were offered: OpenAI refuses an empty list."""
    offered = tools(row)
    return {**record, "tools": offered} if offered else record


def _chat(conversation: list[Json], style: Style) -> list[Json]:
    for message in conversation:
        item = message["item"] if message.get("role") == "other" else message
        kind = item.get("type", "message")
        if kind not in _KINDS or item.get("role") == "other":
            raise Unfit(f"it has a step of the kind {kind!r:.40}, which chat has no form for")
    names: dict[str, str] = {}
    messages = chat_messages(conversation)
    for message in messages:
        if message["role"] == "assistant":
            _finish(message, style)
            for call in message.get("tool_calls", ()):
                names[call["id"]] = call["function"]["name"]
        elif message["role"] == "tool" and message["tool_call_id"] in names:
            message["name"] = names[message["tool_call_id"]]
    return messages


def _finish(message: Json, style: Style) -> None:
    message["content"] = message["content"] or message.pop("refusal", "")
    message.pop("refusal", None)
    if style.reasoning != "keep":
        thought = message.pop("reasoning_content", "")
        if thought and style.reasoning == "inline":
            message["content"] = f"<think>\n{thought}\n</think>\n\n{message['content']}"
    if style.arguments == "object":
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = parsed_arguments(call["function"]["arguments"])


def parsed_arguments(text: str) -> Json:
    try:
        arguments = orjson.loads(text or b"{}")
    except orjson.JSONDecodeError as error:
        raise Unfit("a call's arguments are not JSON") from error
    if not isinstance(arguments, dict):
        raise Unfit("a call's arguments are not an object")
    return arguments
