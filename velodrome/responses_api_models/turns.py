"""One conversation in OpenAI's two shapes: Response items, and chat messages.

Either function takes any mix of items, chat messages and the messages of a rollouts file. What need not change is
passed on as the same object, and nothing given is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

import orjson

from velodrome.contracts import Conversation
from velodrome.errors import ModelError, blame, describe
from velodrome.records.conversation import TOKEN_FIELDS, text_of
from velodrome.records.task import item_flaw

Json = dict[str, Any]

_WRAPPED = ("function", "custom", "json_schema", "allowed_tools", "url_citation")
_CHAT_FIELDS = frozenset(("tool_calls", "reasoning_content", "reasoning", "reasoning_encrypted", "refusal"))
_CHAT_PARTS = frozenset(("text", "image_url", "file"))


class Pieces(list[str]):
    """A text of a turn that is still being put together; a plain list is content in parts."""


def nested(spec: Json) -> Json:
    """`{type: T, …}` -> `{type: T, T: {…}}`: how chat writes tools, tool choices, schemas and citations."""
    kind = spec.get("type")
    if kind not in _WRAPPED or isinstance(spec.get(kind), dict):
        return spec
    return {"type": kind, kind: {name: value for name, value in spec.items() if name != "type"}}


def flat(spec: Json) -> Json:
    kind = spec.get("type")
    inner = spec.get(kind) if kind in _WRAPPED else None
    return {"type": kind, **inner} if isinstance(inner, dict) else spec


@blame(ModelError, "input")
def response_items(conversation: Iterable[Json]) -> list[Json]:
    """A conversation in any mix of shapes -> Response items.

    Messages of chat or of a rollouts file are opened up and token fields taken off; all else is the same object.
    """
    return _items(conversation)


@blame(ModelError, "input")
def encoded_items(conversation: Conversation) -> list[orjson.Fragment]:
    """`response_items` as JSON; what the last call encoded is not encoded again."""
    count, done = conversation.made.get("items", (0, []))
    items = [*done, *map(_encoded, _items(conversation[count:], count))]
    conversation.made["items"] = len(conversation), items
    return items


@blame(ModelError, "input")
def encoded_messages(conversation: Conversation) -> list[orjson.Fragment]:
    """`chat_messages` as JSON; what the last call encoded is not encoded again."""
    count, done = conversation.made.get("messages", (0, []))
    messages = [*done, *map(_encoded, chat_messages(conversation[count:], count))]
    if not _is_own(conversation[-1]):  # else a later item may belong to the last message
        conversation.made["messages"] = len(conversation), messages
    return messages


def _encoded(value: Json) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(value))


def _is_own(item: Json) -> bool:
    """Whether an item is part of a turn of the model."""
    kind = item.get("type", "message")
    return kind in ADD and (kind != "message" or item.get("role", "assistant") == "assistant")


def _items(conversation: Iterable[Json], start: int = 0) -> list[Json]:
    items: list[Json] = []
    for index, item in enumerate(conversation, start):
        if not isinstance(item, dict):
            raise ModelError(f"input[{index}]: expected an object, found {type(item).__name__}")
        for name in TOKEN_FIELDS:
            if name in item:
                item = {name: value for name, value in item.items() if name not in TOKEN_FIELDS}
        if item.get("type", "message") != "message":
            items.append(item)
            continue
        try:
            items.extend(_message_items(item, index))
        except (AttributeError, KeyError, TypeError) as error:
            flaw = item_flaw(item)
            problem = f"input[{index}]: {describe(error)}" if flaw is None else str(flaw.below(f"input[{index}]"))
            raise ModelError(problem) from error
    return items


def _message_items(message: Json, index: int) -> list[Json]:
    role, content = message.get("role", "assistant"), message.get("content")
    if role == "tool":
        output = _response_content(content, "input_text")
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id", ""), "output": output or ""}]
    if role == "other" and isinstance(message.get("item"), dict):
        return [message["item"]]
    if role == "assistant" and not (_CHAT_FIELDS.isdisjoint(message) and content is not None):
        return turn_items(message, f"call_{index}_")
    changed = _response_content(content, "output_text" if role == "assistant" else "input_text")
    return [message if changed is content else {**message, "content": changed}]


def turn_items(message: Json, ids: str = "") -> list[Json]:
    """An assistant message of chat or of a rollouts file -> its reasoning, text and calls; at least one item.

    A call without an id gets one that begins with `ids`, and is a new one if that is empty.
    """
    items: list[Json] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning and isinstance(reasoning, str):
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reasoning}]})
    if message.get("reasoning_encrypted"):
        items = items or [{"type": "reasoning", "summary": []}]
        items[0]["encrypted_content"] = message["reasoning_encrypted"]
    calls = [_call_item(index, call, ids) for index, call in enumerate(message.get("tool_calls") or ())]
    text = message.get("content")
    refusal = message.get("refusal") or _refusal(text)
    parts: list[Json] = []
    if text_of(text) or not (text is None or refusal or calls or items):
        annotations = [flat(note) for note in message.get("annotations") or ()]
        parts.append({"type": "output_text", "text": text_of(text), "annotations": annotations})
    if refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    if parts or not (calls or items):
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": parts})
    return items + calls


def _call_item(index: int, call: Json, ids: str) -> Json:
    function = call.get("function", call)
    name = function.get("name")
    if not isinstance(name, str):
        raise ModelError(f"tool_calls[{index}]: no function name")
    call_id = call.get("id") or (f"{ids}{index}" if ids else f"call_{uuid4().hex}")
    arguments = _arguments(function.get("arguments"))
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, "status": "completed"}


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps({} if value is None else value).decode()


def _response_content(content: Any, text_type: str) -> Any:
    """Chat's content parts -> Responses'; the same object if there is nothing to change."""
    if not isinstance(content, list) or all(part.get("type") not in _CHAT_PARTS for part in content):
        return content
    return [_response_part(part, text_type) for part in content]


def _response_part(part: Json, text_type: str) -> Json:
    kind = part.get("type")
    if kind == "text":
        return {"type": text_type, "text": part["text"]}
    if kind == "image_url":
        image = part["image_url"]
        image = {"url": image} if isinstance(image, str) else image
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    return {"type": "input_file", **part["file"]} if kind == "file" else part


def chat_messages(conversation: Iterable[Json], start: int = 0) -> list[Json]:
    """A conversation in any mix of shapes -> chat messages; one turn's reasoning, text and calls share a message."""
    messages: list[Json] = []
    turn: Json | None = None  # the assistant message being put together
    for index, item in enumerate(_items(conversation, start), start):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            turn = None
            output = _chat_content(item.get("output"), one_text=True)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
        elif kind == "message" and item.get("role", "assistant") != "assistant":
            turn = None
            role = "system" if item["role"] == "developer" else item["role"]
            messages.append({"role": role, "content": _chat_content(item.get("content"))})
        elif kind in ADD:
            if turn is None or _ends(turn, kind):
                turn = {"role": "assistant", "content": None}
                messages.append(turn)
            ADD[kind](turn, item)
        else:
            raise ModelError(f'input[{index}]: "{kind}" has no form in chat completions (set endpoint: responses)')
    return [joined(message) for message in messages]


def joined(turn: Json) -> Json:
    """The turn with its texts, which `ADD` collects piece by piece, as texts."""
    for name in ("content", "reasoning_content", "refusal"):
        if isinstance(turn.get(name), Pieces):
            turn[name] = "".join(turn[name])
    return turn


def _ends(turn: Json, kind: str) -> bool:
    """Whether an item of this kind comes after the turn, rather than in it."""
    return kind != "function_call" and (turn["content"] is not None or "refusal" in turn or "tool_calls" in turn)


def _add_reasoning(turn: Json, item: Json) -> None:
    text = text_of(item.get("content")) or "\n\n".join(text_of([part]) for part in item.get("summary") or ())
    if text:
        turn.setdefault("reasoning_content", Pieces()).append(text)


def _add_text(turn: Json, item: Json) -> None:
    content = item.get("content")
    text = text_of(content)
    refusal = _refusal(content)
    if refusal:
        turn.setdefault("refusal", Pieces()).append(refusal)
    if text or not refusal:
        if turn["content"] is None:
            turn["content"] = Pieces()
        turn["content"].append(text)


def _refusal(content: Any) -> str:
    parts = content if isinstance(content, list) else ()
    return "".join(part["refusal"] for part in parts if part.get("type") == "refusal")


def _add_call(turn: Json, item: Json) -> None:
    function = {"name": item.get("name", ""), "arguments": _arguments(item.get("arguments"))}
    call_id = item.get("call_id") or item.get("id") or ""
    turn.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})


ADD: dict[str, Callable[[Json, Json], None]] = {
    "reasoning": _add_reasoning,
    "message": _add_text,
    "function_call": _add_call,
}


def _chat_content(content: Any, *, one_text: bool = False) -> Any:
    """Responses' content parts -> chat's; a single text part becomes the text itself, as more servers take it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else orjson.dumps(content).decode()
    if (one_text or len(content) == 1) and all(isinstance(part.get("text"), str) for part in content):
        return text_of(content)
    return [_chat_part(part) for part in content]


def _chat_part(part: Json) -> Json:
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part["text"]}
    if kind == "input_image":
        if not part.get("image_url"):
            raise ModelError("input_image: without image_url it has no form in chat completions")
        image = {"url": part["image_url"], "detail": part.get("detail")}
        return {"type": "image_url", "image_url": {name: value for name, value in image.items() if value}}
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return part
