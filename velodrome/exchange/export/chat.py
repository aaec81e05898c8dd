"""A rollout as chat messages, in the format of OpenAI's fine-tuning and of TRL.

A message has `role` and `content`, which is never null; calls are in `tool_calls` of the assistant, results in
messages with the role `tool` and the tool's name. A rollout is unfit if chat has no form for a part of it, or
if readers would change it: a missing step or a rounded number would be wrong training data.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from velodrome.contracts import Json
from velodrome.exchange.parquet import decimal
from velodrome.records.conversation import text_of
from velodrome.records.facts import RowFacts
from velodrome.records.outcomes import BETWEEN_TURNS
from velodrome.responses_api_models.conversion import chat_messages, nested

Arguments = Literal["object", "text"]
Reasoning = Literal["keep", "drop", "inline"]

TOOLS_FIELD = "the functions on offer, in the shape of chat completions, as JSON text; absent if there were none"
LIST_TYPE: Json = {"list": "json"}
TEXT_TYPE: Json = {"dtype": "string"}
AS_TEXT = "--arguments text (OpenAI's form: arguments as JSON text)"
_TOO_LARGE = "a call's arguments have a whole number of more than 64 bits"
_KINDS = frozenset(("message", "reasoning", "function_call", "function_call_output"))


class Unfit(ValueError):
    """This rollout cannot be written in the format; the message says why."""


@dataclass(frozen=True)
class Style:
    """The format of calls and reasoning.

    Arguments are objects, for chat templates, or JSON text, as in OpenAI's API. Reasoning is a separate field
    (`reasoning_content`), left out, or in the text between `<think>` and `</think>`. A table is a Parquet file, whose
    JSON `datasets` decodes only once, so that more numbers stay exact.
    """

    arguments: Arguments = "text"
    reasoning: Reasoning = "keep"
    table: bool = False


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
    """The answer of the agent, with tool results and turns of the user, up to the model's last turn or tool result.

    Later messages of the environment are left out.
    """
    question = row["responses_create_params"].get("input")
    messages = _chat(row["output"], style, len(question) if isinstance(question, list) else 1)
    if not messages or messages[0]["role"] != "assistant":
        raise Unfit("it has no answer" if not messages else "its output does not begin with the model")
    while messages[-1]["role"] not in ("assistant", "tool"):
        messages.pop()
    return messages


def text_only(content: Any, images: str = "") -> str:
    """The content of a message as text. An image makes it unfit; `images` is advice for that message."""
    if isinstance(content, str):
        return content
    for part in content:
        if "text" not in part:
            kind = str(part.get("type")).removeprefix("input_").removesuffix("_url")
            raise Unfit(f"it has content that is not text ({kind:.40}){images if kind == 'image' else ''}")
    return text_of(content)


def answered(messages: list[Json]) -> list[Json]:
    """The messages. Raises `Unfit` if the last one is not of the model."""
    if messages[-1]["role"] != "assistant":
        raise Unfit("it ends with a tool result and not with an answer")
    return messages


def tools(row: Json) -> list[Json]:
    """The functions that were offered. Raises `Unfit` for other tools, which a server runs itself."""
    offered = row["responses_create_params"].get("tools") or ()
    for tool in offered:
        if tool.get("type") != "function":
            kind = tool.get("type")
            raise Unfit(f"it was offered a tool of the kind {kind!r:.40}, which chat has no form for")
    return [nested(tool) for tool in offered]


def with_tools(record: Json, row: Json, *, listed: bool = False) -> Json:
    """The record with the field `tools`, if any were offered: OpenAI refuses an empty list.

    For `datasets` it is JSON text, which TRL parses: in a list, `datasets` would change numbers.
    """
    offered = tools(row)
    if not offered:
        return record
    return {**record, "tools": offered if listed else orjson.dumps(offered).decode()}


def ended(row: Json, messages: list[Json]) -> list[Json]:
    """The messages. Raises `Unfit` if the model was cut off in its last turn: a chat template would complete it."""
    if messages[-1]["role"] == "assistant" and row["response"].get("status") == "incomplete":
        reason = RowFacts(row).stopped_by
        if reason not in BETWEEN_TURNS:
            raise Unfit(f"its last turn was cut off ({reason or 'incomplete'})")
    return messages


def alone(messages: list[Json]) -> list[Json]:
    """The messages. Raises `Unfit` for turns of the user, because the trainer would learn them too."""
    if any(message["role"] not in ("assistant", "tool") for message in messages):
        raise Unfit("it has turns of the user, which would be learned as if the model had said them")
    return messages


def loadable(messages: list[Json], style: Style, images: str = "") -> list[Json]:
    """The messages with contents as text. Raises `Unfit` if `datasets` would change a number."""
    for message in messages:
        message["content"] = text_only(message["content"], images)
        for call in message.get("tool_calls", ()):
            if not survives(call["function"]["arguments"], style):
                way_out = "" if style.table else "a .parquet file, or "
                raise Unfit(f"`datasets` changes a number of a call's arguments; {way_out}{AS_TEXT} keeps it")
    return messages


def numbers(value: Any) -> Iterator[int | float]:
    """Every number in a value, however deep."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict | list):
            stack.extend(each.values() if isinstance(each, dict) else each)
        elif isinstance(each, int | float):
            yield each


def survives(value: Any, style: Style) -> bool:
    """Whether `datasets` loads every number of a value unchanged."""
    return all(
        _writable(each) if isinstance(each, int) else decimal(each, rewritten=not style.table) is not None
        for each in numbers(value)
    )


def _writable(number: int | float) -> bool:
    return isinstance(number, float) or -(2**63) <= number < 2**64


def _chat(conversation: list[Json], style: Style, start: int = 0) -> list[Json]:
    """The messages. `start` is the place of the first in the conversation, for the ids of calls without one."""
    for message in conversation:
        item = message["item"] if message.get("role") == "other" else message
        kind = item.get("type", "message")
        if kind not in _KINDS or item.get("role") == "other":
            raise Unfit(f"it has a step of the kind {kind!r:.40}, which chat has no form for")
    names: dict[str, deque[str]] = {}  # of calls without a result, by id: servers use an id again
    messages = chat_messages(conversation, start)
    for message in messages:
        if message["role"] == "assistant":
            _finish(message, style)
            for call in message.get("tool_calls", ()):
                names.setdefault(call["id"], deque()).append(call["function"]["name"])
        elif message["role"] == "tool":
            message["content"] = text_only(_parts(message["content"]))
            if names.get(message["tool_call_id"]):
                message["name"] = names[message["tool_call_id"]].popleft()
    return messages


def _parts(content: Any) -> Any:
    """A tool result. One with images, which a rollouts file has as JSON text, becomes a list again.

    Text parts are joined in a rollouts file, so a list of text parts is the tool's own output.
    """
    if not (isinstance(content, str) and content.startswith("[{") and '"input_' in content):
        return content
    try:
        parts = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
    own = all(isinstance(part, dict) and str(part.get("type")).startswith("input_") for part in parts)
    return parts if own and any("text" not in part for part in parts) else content


def _finish(message: Json, style: Style) -> None:
    refusal = message.pop("refusal", "")
    if refusal and message["content"]:
        raise Unfit("it has text and a refusal in one turn")
    message["content"] = message["content"] or refusal
    if style.reasoning != "keep":
        thought = message.pop("reasoning_content", "")
        if thought and style.reasoning == "inline":
            message["content"] = f"<think>\n{thought}\n</think>\n\n{message['content']}"
    if style.arguments == "object":
        for call in message.get("tool_calls", ()):
            arguments = parsed_arguments(call["function"]["arguments"])
            if not all(map(_writable, numbers(arguments))):
                raise Unfit(_TOO_LARGE)
            call["function"]["arguments"] = arguments


def parsed_arguments(text: str) -> Json:
    """The arguments of a call as an object. Raises `Unfit` if the object would lose information."""
    try:
        orjson.loads(text or b"{}")  # refuses NaN and broken characters
        arguments = json.loads(text or "{}", object_pairs_hook=_object)  # keeps large numbers, sees repeated names
    except json.JSONDecodeError as error:
        raise Unfit("a call's arguments are not JSON") from error
    except RecursionError as error:
        raise Unfit("a call's arguments are nested too deep") from error
    if not isinstance(arguments, dict):
        raise Unfit("a call's arguments are not an object")
    return arguments


def _object(pairs: list[tuple[str, Any]]) -> Json:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise Unfit("a call's arguments have a name twice in one object")
    return result
