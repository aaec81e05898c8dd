"""Convert requests from Anthropic's Messages to OpenAI's Responses, and answers back.

The blocks of an answer, sent back in a request, become the same items again. Fields without a form in Responses raise
`ModelError` if dropping them would change the conversation (server tools, continued answers), else they are dropped
(`cache_control`, `thinking`). Unknown fields pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import orjson

from velodrome.errors import ModelError, blame
from velodrome.records.conversation import reasoning_text, text_of

Json = dict[str, Any]

# The key in an `input` for arguments that are not a JSON object, as in Anthropic's docs.
BROKEN = "INVALID_JSON"

# Request fields that are converted, that have no effect here, and that a model cannot serve.
_RESHAPED = ("messages", "system", "max_tokens", "stop_sequences", "metadata", "output_config", "tools", "tool_choice")
_IGNORED = frozenset(
    ("cache_control", "container", "context_management", "diagnostics", "fallbacks", "fallback_credit_token", "betas")
).union(("inference_geo", "service_tier", "speed", "thinking", "thread", "user_profile_id", "workspace_id"))
_OWN = _IGNORED.union(_RESHAPED)
_REFUSED = ("mcp_servers", "compaction")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_NOTHING: Json = {}
_STOPS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


@blame(ModelError, "request")
def request_from_messages(request: Json) -> Json:
    """A Messages request -> a Responses request."""
    for name in _REFUSED:
        if request.get(name):
            raise ModelError(f'"{name}" has no form in the Responses API')
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ModelError(f'"max_tokens" must be a whole number from 1, not {limit!r:.40}')
    body = {name: value for name, value in request.items() if name not in _OWN}
    body["max_output_tokens"] = limit
    system = request.get("system")
    items: list[Json] = []
    if isinstance(system, str):
        body["instructions"] = system
    elif system is not None:
        items = _items("system", system, "system")
    body["input"] = items + _conversation(request.get("messages"))
    if request.get("stop_sequences"):
        body["stop"] = request["stop_sequences"]
    metadata = {name: value for name, value in (request.get("metadata") or {}).items() if value is not None}
    if metadata:
        body["metadata"] = metadata
    _add_output(request.get("output_config") or {}, body)
    if request.get("tools"):
        body["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request["tools"])]
    _add_choice(request.get("tool_choice"), body)
    return body


def _conversation(messages: Any) -> list[Json]:
    if not isinstance(messages, list) or not messages:
        raise ModelError('"messages" must be a list of objects that is not empty')
    items: list[Json] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = _field(message, "role", where)
        if role not in _PARTS:
            raise ModelError(f"{where}: the role {role!r:.40} is not one of {', '.join(_PARTS)}")
        items += _items(role, message.get("content"), f"{where}.content")
    if messages[-1]["role"] == "assistant":
        raise ModelError("the last message is the assistant's: a partial answer cannot be continued")
    return items


def _items(role: str, content: Any, where: str) -> list[Json]:
    """The items of a message; adjacent texts, images and documents share one item."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list) or not (content or role == "assistant"):
        raise ModelError(f"{where}: expected a text or a list of blocks that is not empty")
    items: list[Json] = []
    parts: list[Json] | None = None
    for index, block in enumerate(content):
        place = f"{where}[{index}]"
        kind = _field(block, "type", place)
        if kind in _PARTS[role]:
            if parts is None:
                parts = []
                items.append({"role": role, "content": parts})
            parts += _PARTS[role][kind](block, place)
        elif kind in _ITEMS and _ITEMS[kind][0] == role:
            parts = None
            items.append(_ITEMS[kind][1](block, place))
        else:
            raise ModelError(f'{place}: a block "{kind:.40}" in a message of role {role} has no form in Responses')
    return items


def _field(value: Any, name: str, where: str) -> str:
    """The text of a required field."""
    if not isinstance(value, dict):
        raise ModelError(f"{where}: expected an object, found {type(value).__name__}")
    text = value.get(name)
    if not isinstance(text, str):
        raise ModelError(f'{where}: "{name}" must be a text, found {type(text).__name__}')
    return text


def _input_text(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _input_texts(block: Json, where: str) -> list[Json]:
    return [_input_text(_field(block, "text", where))]


def _output_texts(block: Json, where: str) -> list[Json]:
    return [{"type": "output_text", "text": _field(block, "text", where), "annotations": []}]


def _image(block: Json, where: str) -> list[Json]:
    where = f"{where}.source"
    source: Any = block.get("source")
    kind = _field(source, "type", where)
    if kind not in ("base64", "url"):
        raise ModelError(f'{where}: an image is given in "base64" or by "url", not by {kind!r:.40}')
    url = _field(source, "url", where) if kind == "url" else _data_url(source, where)
    return [{"type": "input_image", "image_url": url, "detail": "auto"}]


def _data_url(source: Any, where: str) -> str:
    return f"data:{_field(source, 'media_type', where)};base64,{_field(source, 'data', where)}"


def _document(block: Json, where: str) -> list[Json]:
    """A file or a text, after its title and its context."""
    where = f"{where}.source"
    source: Any = block.get("source")
    kind = _field(source, "type", where)
    if kind == "base64":
        parts = [{"type": "input_file", "filename": "document.pdf", "file_data": _data_url(source, where)}]
    elif kind == "url":
        parts = [{"type": "input_file", "file_url": _field(source, "url", where)}]
    elif kind == "text":
        parts = [_input_text(_field(source, "data", where))]
    elif kind == "content":
        inner = _inner(source.get("content"), where)
        parts = [_input_text(inner)] if isinstance(inner, str) else inner
    else:
        raise ModelError(f"{where}: a document by {kind!r:.40} is not supported")
    return [_input_text(block[name]) for name in ("title", "context") if isinstance(block.get(name), str)] + parts


def _inner(content: Any, where: str) -> Any:
    """The text or the parts of blocks inside a block."""
    items = _items("user", content, f"{where}.content")
    if len(items) != 1 or "content" not in items[0]:
        raise ModelError(f"{where}: only texts, images and documents are possible here")
    return items[0]["content"]


def _call(block: Json, where: str) -> Json:
    value = block.get("input")
    if not isinstance(value, dict):
        raise ModelError(f'{where}: "input" must be an object, found {type(value).__name__}')
    broken = value.get(BROKEN) if len(value) == 1 else None
    arguments = broken if isinstance(broken, str) else orjson.dumps(value).decode()
    call_id, name = _field(block, "id", where), _field(block, "name", where)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _result(block: Json, where: str) -> Json:
    """A tool's result. Responses has no flag for an error, so its text begins with `error: `."""
    output = block.get("content")
    if output is None or output == []:
        output = ""
    elif not isinstance(output, str):
        output = _inner(output, where)
    if block.get("is_error") and not text_of(output).lower().startswith("error"):
        output = f"error: {output}" if isinstance(output, str) else [_input_text("error: "), *output]
    return {"type": "function_call_output", "call_id": _field(block, "tool_use_id", where), "output": output}


def _thinking(block: Json, where: str) -> Json:
    text, signature = _field(block, "thinking", where), block.get("signature")
    if not signature:
        return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": signature}


def _redacted(block: Json, where: str) -> Json:
    return {"type": "reasoning", "summary": [], "encrypted_content": _field(block, "data", where)}


# Role -> converters of the blocks inside its messages. Other blocks -> their role, and a converter to an item.
_PARTS: dict[str, dict[str, Callable[[Json, str], list[Json]]]] = {
    "user": {"text": _input_texts, "image": _image, "document": _document},
    "assistant": {"text": _output_texts},
    "system": {"text": _input_texts},
}
_ITEMS: dict[str, tuple[str, Callable[[Json, str], Json]]] = {
    "tool_use": ("assistant", _call),
    "thinking": ("assistant", _thinking),
    "redacted_thinking": ("assistant", _redacted),
    "tool_result": ("user", _result),
}


def _tool(tool: Json, where: str) -> Json:
    name = _field(tool, "name", where)
    if (tool.get("type") or "custom") != "custom":
        raise ModelError(f"{where}: a tool of Anthropic's servers ({tool['type']!r:.60}) cannot run here")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise ModelError(f'{where}: "input_schema" must be an object, found {type(schema).__name__}')
    function = {"type": "function", "name": name, "parameters": schema, "strict": bool(tool.get("strict"))}
    return function | {"description": tool["description"]} if tool.get("description") else function


def _add_choice(choice: Any, body: Json) -> None:
    if choice is None:
        return
    kind = _field(choice, "type", "tool_choice")
    if kind == "tool":
        body["tool_choice"] = {"type": "function", "name": _field(choice, "name", "tool_choice")}
    elif kind in _CHOICES:
        body["tool_choice"] = _CHOICES[kind]
    else:
        raise ModelError(f'tool_choice: "type" is one of auto, any, tool and none, not {kind!r:.40}')
    if choice.get("disable_parallel_tool_use"):
        body["parallel_tool_calls"] = False


def _add_output(config: Json, body: Json) -> None:
    """Add the reasoning effort and the form of the answer."""
    if config.get("effort"):
        body["reasoning"] = {"effort": config["effort"]}
    form = config.get("format")
    if form:
        if _field(form, "type", "output_config.format") != "json_schema" or not isinstance(form.get("schema"), dict):
            raise ModelError('output_config.format: expected {"type": "json_schema", "schema": {…}}')
        schema = {"type": "json_schema", "name": "answer", "schema": form["schema"], "strict": True}
        body["text"] = {"format": schema}


@blame(ModelError, "response")
def message_from_response(response: Json, request: Json = _NOTHING, *, model: str = "") -> Json:
    """The Response to a request -> a message; `model` is for a Response without a model name."""
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise ModelError('response: no "output" list')
    content = [block for item in response["output"] for block in blocks(item)]
    refusals = [text for item in response["output"] for text in _refusals(item)]
    reason = (response.get("incomplete_details") or {}).get("reason")
    has_call = any(block["type"] == "tool_use" for block in content)
    stop = _STOPS.get(reason or "") or ("refusal" if refusals else "tool_use" if has_call else "end_turn")
    if stop == "end_turn" and response.get("status") == "incomplete":
        stop = "max_tokens"  # an agent out of steps: Anthropic has no closer reason
    sequence = _stop_sequence(response) if stop == "end_turn" else None
    if sequence == _stop_sequence(request):
        sequence = None  # a label of the user in the metadata, which is returned
    details = {"type": "refusal", "category": None, "explanation": "".join(refusals) or None}
    return {
        "id": message_id(response),
        "type": "message",
        "role": "assistant",
        "model": response.get("model") or model,
        "content": content,
        "stop_reason": "stop_sequence" if sequence else stop,
        "stop_sequence": sequence,
        "stop_details": details if stop == "refusal" else None,
        "usage": _usage(response.get("usage") or {}),
    }


def _stop_sequence(about: Json) -> Any:
    metadata = about.get("metadata")
    return metadata.get("stop_sequence") if isinstance(metadata, dict) else None


def message_id(response: Json) -> str:
    own = response.get("id") or uuid4().hex
    return f"msg_{own.removeprefix('resp_')}"


def blocks(item: Json) -> list[Json]:
    """The blocks of an item; none for steps of hosted tools and empty items."""
    kind = item.get("type", "message")
    if kind == "message":
        content = item.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content or ()
        texts = [part.get("text") or part.get("refusal") for part in parts]
        return [{"type": "text", "text": text} for text in texts if text]
    if kind == "reasoning":
        text = reasoning_text(item)
        hidden = item.get("encrypted_content")
        if text:
            return [{"type": "thinking", "thinking": text, "signature": hidden or ""}]
        return [{"type": "redacted_thinking", "data": hidden}] if hidden else []
    if kind == "function_call":
        call_id = item.get("call_id") or item.get("id") or f"call_{uuid4().hex}"
        return [{"type": "tool_use", "id": call_id, "name": item.get("name") or "", "input": _input(item)}]
    return []


def _input(call: Json) -> Json:
    arguments = call.get("arguments")
    if not arguments:
        return {}
    try:
        value = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {BROKEN: arguments}


def _refusals(item: Json) -> list[str]:
    content = item.get("content") if item.get("type", "message") == "message" else None
    parts = content if isinstance(content, list) else ()
    return [part["refusal"] for part in parts if part.get("type") == "refusal" and part.get("refusal")]


def _usage(usage: Json) -> Json:
    """Anthropic counts cached tokens separately, OpenAI as part of the input."""
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": max((usage.get("input_tokens") or 0) - cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.get("output_tokens") or 0,
        "output_tokens_details": {"thinking_tokens": thought},
    }
