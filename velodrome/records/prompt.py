"""What a model can be asked: the shapes of a request that can be put on the wire, whichever endpoint takes them.

A task is held to this before anything is spent, and the conversion that makes the request names the same flaws.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_TEXT_PARTS = ("text", "input_text", "output_text")


def request_flaw(params: Json) -> str | None:
    """Why this cannot be asked, in words, or None. `input` is a text or a list of objects."""
    if isinstance(params.get("input"), list):
        for index, item in enumerate(params["input"]):
            flaw = item_flaw(item)
            if flaw is not None:
                return f"input[{index}]: {flaw}"
    for name in ("tools", "include"):
        if params.get(name) is not None and not isinstance(params[name], list):
            return f'"{name}" is a list'
    if not _objects(params.get("tools")):
        return '"tools" is a list of objects'
    for name in ("text", "reasoning"):
        if params.get(name) is not None and not isinstance(params[name], dict):
            return f'"{name}" is an object'
    shape = (params.get("text") or {}).get("format")
    if shape is not None and not isinstance(shape, dict):
        return '"text.format" is an object'
    return _choice_flaw(params.get("tool_choice"))


def _choice_flaw(choice: Any) -> str | None:
    if choice is None or isinstance(choice, str):
        return None
    allowed = choice.get("allowed_tools", choice) if isinstance(choice, dict) else None
    tools = allowed.get("tools", []) if isinstance(allowed, dict) else None
    if not isinstance(tools, list) or not _objects(tools):
        return '"tool_choice" is a text or an object, and its tools are objects'
    return None


def item_flaw(item: Any) -> str | None:
    """Why this is neither a message nor an item that can be sent. Kinds that are not known here are not looked into."""
    if not isinstance(item, dict):
        return "not an object"
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        return '"type" is a text'
    if kind == "function_call_output":
        return _content_flaw("output", item.get("output"), any_value=True)
    if kind not in ("message", "reasoning"):
        return None
    for name in ("role", "refusal"):
        if not isinstance(item.get(name, ""), str | None):
            return f'"{name}" is a text'
    if not _objects(item.get("annotations")):
        return '"annotations" is a list of objects'
    for index, call in enumerate(_list(item.get("tool_calls"))):
        if not _is_call(call):
            return f"tool_calls[{index}]: no function name"
    return _content_flaw("content", item.get("content")) or _content_flaw("summary", item.get("summary"))


def _list(value: Any) -> list[Any]:
    """A list as it is, nothing for null, and for anything else a list that has a flaw."""
    return value if isinstance(value, list) else [None] if value else []


def _is_call(call: Any) -> bool:
    function = call.get("function", call) if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _content_flaw(name: str, content: Any, *, any_value: bool = False) -> str | None:
    if content is None or isinstance(content, str) or (any_value and not isinstance(content, list)):
        return None
    if not isinstance(content, list) or not _objects(content):
        return f'"{name}" is a text or a list of objects'
    for index, part in enumerate(content):
        if not _is_part(part):
            return f'"{name}[{index}]" has nothing of its type'
    return None


def _is_part(part: Json) -> bool:
    """Whether a part has what its type says."""
    kind = part.get("type", "")
    if not isinstance(kind, str):
        return False
    if kind in _TEXT_PARTS:
        return isinstance(part.get("text"), str)
    if kind == "refusal":
        return isinstance(part.get("refusal"), str)
    if kind == "image_url":
        image = part.get("image_url")
        return isinstance(image, str) or (isinstance(image, dict) and isinstance(image.get("url"), str))
    return kind != "file" or isinstance(part.get("file"), dict)


def _objects(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))
