"""Tool calls from a model without tool training: its output is constrained to a JSON schema of the tools.

`constrain` converts a chat request with tools to one without: the system message describes the tools, earlier calls and
results become text, and the reply can only be `{"tool": …, "arguments": …}` or `{"answer": …}`. `interpret` converts
that JSON to the message of a chat model with tools. Earlier turns are written exactly as the model wrote them, so that
llama.cpp reuses the prompt it has already processed.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from velodrome.errors import ModelError
from velodrome.records.conversation import text_of

Json = dict[str, Any]

GUIDE = (
    'Reply with one JSON object: {"tool": NAME, "arguments": {...}} to use a tool, '
    'or {"answer": TEXT} to give the final answer.\nTools:'
)

# With free whitespace a small model may write blanks until its tokens run out.
COMPACT = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}

_ANSWER = '{"answer": "'
# Complete characters of a JSON string; an escape or a pair of surrogates is one character.
_CHARACTERS = re.compile(
    r"(?:[^\"\\\x00-\x1f]|\\[\"\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)


def may_call_tool(chat: Json) -> bool:
    """Whether this chat request lets the model call a tool."""
    return bool(chat.get("tools")) and chat.get("tool_choice") != "none"


def constrain(chat: Json) -> Json:
    """Convert a chat request with tools to the same conversation in plain text, and a schema for the reply."""
    tool_fields = ("tools", "tool_choice", "parallel_tool_calls", "response_format")
    other_fields = {key: value for key, value in chat.items() if key not in tool_fields}
    tools = [tool.get("function") or tool for tool in chat["tools"]]
    guide = "\n".join([GUIDE, *map(_line, tools)])
    messages = plain(chat["messages"], as_json=True)
    if messages and messages[0].get("role") == "system":
        messages[0] = {"role": "system", "content": f"{text_of(messages[0].get('content'))}\n\n{guide}"}
    else:
        messages.insert(0, {"role": "system", "content": guide})
    return {**other_fields, "messages": messages, "json_schema": _schema(tools, chat)}


def interpret(completion: Json) -> Json:
    """Convert the completion of a constrained request to one with `tool_calls` or with the answer as its text.

    A reply cut off by the token limit becomes a text: the beginning of the answer, or the call as written.
    """
    for choice in completion["choices"]:
        message = choice["message"]
        text = message.get("content") or ""
        try:
            reply = orjson.loads(text)
        except orjson.JSONDecodeError:
            if text.startswith(_ANSWER):
                message["content"] = _partial_answer(text)
            continue
        if "answer" in reply:
            message["content"] = reply["answer"]
            continue
        head = _call(reply["tool"], "")[:-1]
        arguments = text[len(head) : -1] if text.startswith(head) else orjson.dumps(reply["arguments"]).decode()
        call = {"name": reply["tool"], "arguments": arguments}
        message["content"] = None
        message["tool_calls"] = [{"id": f"call_{completion['id'][-24:]}", "type": "function", "function": call}]
        choice["finish_reason"] = "tool_calls"
    return completion


def _partial_answer(text: str) -> str:
    """The beginning of an answer whose JSON was cut off."""
    match = _CHARACTERS.match(text, len(_ANSWER))
    answer: str = orjson.loads(f'"{match.group() if match else ""}"')
    return answer


def plain(messages: list[Json], *, as_json: bool = False) -> list[Json]:
    """The conversation with tool calls and results as text, for a chat template that supports neither.

    With `as_json` the assistant's texts have the JSON form that its next reply must have.
    """
    plain_messages: list[Json] = []
    names: dict[str, str] = {}
    results: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            name = names.get(message.get("tool_call_id", "")) or message.get("name") or "the tool"
            results.append(f"Result of {name}: {text_of(message.get('content'))}")
            continue
        if results:
            plain_messages.append({"role": "user", "content": "\n".join(results)})
            results = []
        if message.get("role") != "assistant":
            plain_messages.append(message)
            continue
        parts = []
        if text := text_of(message.get("content")):
            parts.append(f'{{"answer": {orjson.dumps(text).decode()}}}' if as_json else text)
        for call in message.get("tool_calls") or []:
            names[call.get("id", "")] = call["function"]["name"]
            parts.append(_call(call["function"]["name"], call["function"].get("arguments") or "{}"))
        plain_messages.append({"role": "assistant", "content": "\n".join(parts)})
    if results:
        plain_messages.append({"role": "user", "content": "\n".join(results)})
    return plain_messages


def _call(name: str, arguments: str) -> str:
    return f'{{"tool": {orjson.dumps(name).decode()}, "arguments": {arguments}}}'


def _line(tool: Json) -> str:
    properties = (tool.get("parameters") or {}).get("properties") or {}
    hints = {name: _hint(schema) for name, schema in properties.items()}
    about = f": {tool['description']}" if tool.get("description") else "."
    return f"- {tool['name']}{about} Arguments: {orjson.dumps(hints).decode()}"


def _hint(schema: Any) -> str:
    fields = schema if isinstance(schema, dict) else {}
    return str(fields.get("description") or fields.get("enum") or fields.get("type") or "any")


def _schema(tools: list[Json], chat: Json) -> Json:
    forced, names = _choice(chat.get("tool_choice") or "auto")
    if names is not None:
        tools = [tool for tool in tools if tool["name"] in names]
        if not tools:
            raise ModelError(f"tool_choice names {', '.join(names)}, which is not among the tools", status=400)
    shapes = [
        _object(tool={"const": tool["name"]}, arguments=_parameters(tool, f"#/anyOf/{index}/properties/arguments"))
        for index, tool in enumerate(tools)
    ]
    # A call is forced only once: if it were also forced after its result, an agent's loop would never end.
    if not forced or chat["messages"][-1].get("role") == "tool":
        shapes.append(_object(answer={"type": "string"}))
    return {"x-guidance": COMPACT, "anyOf": shapes}


def _choice(choice: Any) -> tuple[bool, list[str] | None]:
    """Whether a call is forced, and the names of the allowed tools; None if all are allowed."""
    if not isinstance(choice, dict):
        return choice == "required", None
    if choice.get("type") != "allowed_tools":
        return True, [str((choice.get("function") or choice).get("name"))]
    allowed = choice.get("allowed_tools") or choice
    names = [str((tool.get("function") or tool).get("name")) for tool in allowed.get("tools") or ()]
    return allowed.get("mode") == "required", names


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _parameters(tool: Json, place: str) -> Json:
    schema = tool.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}
    rebased: Json = _rebased(schema, place)
    return rebased


def _rebased(schema: Any, place: str) -> Any:
    """Rewrite the schema's `#/…` references for its new place."""
    if isinstance(schema, list):
        return [_rebased(part, place) for part in schema]
    if not isinstance(schema, dict):
        return schema
    rebased = {key: _rebased(value, place) for key, value in schema.items()}
    reference = rebased.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rebased["$ref"] = place + reference[1:]
    return rebased
