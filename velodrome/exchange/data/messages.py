"""Columns that hold messages: lists of `role` and `content`, as in TRL's and verl's data sets.

Such a list is the conversation itself, and never text within one. Null fields are dropped. In the arguments of a call
they are kept, unless Parquet added them, whose rows all have the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

import orjson

from velodrome.contracts import Json
from velodrome.errors import ModelError
from velodrome.responses_api_models.conversion import responses_request

_ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


def is_messages(value: Any) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) and "role" in each for each in value)


def conversation(value: list[Json], name: str, system: str | None) -> list[Json]:
    """Convert the messages of a column to those of a task. Raises a `ValueError` that describes a mistake."""
    messages: list[Json] = [_without_nulls(message, arguments=False) for message in value]
    for message in messages:
        if message.get("role") not in _ROLES:
            raise ValueError(f'"{name}" has a message of the role {message.get("role")!r:.40}')
        if "content" not in message and "tool_calls" not in message:
            raise ValueError(f'"{name}" has a message without content')
    if messages[-1]["role"] == "assistant":
        raise ValueError(f'"{name}" ends with a message of the assistant, so the question would hold its answer')
    if system is not None:
        if messages[0]["role"] in ("system", "developer"):
            raise ValueError(f'"{name}" has a system message of its own; leave --system out')
        messages.insert(0, {"role": "system", "content": system})
    return list(_request({"messages": messages}, name)["input"])


def unpadded(row: Json, columns: Iterable[str]) -> Json:
    """The row of a table; messages in these columns without null fields, which come from other rows."""
    return row | {name: _without_nulls(row[name]) for name in columns if is_messages(row[name])}


def offered(value: Any, name: str) -> list[Json]:
    """The tools of a column: a list, or one as JSON text, in the shape of chat or of a task."""
    try:
        tools = orjson.loads(value) if isinstance(value, str) else _without_nulls(value)
    except orjson.JSONDecodeError:
        tools = None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError(f'"{name}" is not a list of tools, nor one as JSON text')
    return list(_request({"messages": [], "tools": tools}, name).get("tools") or ())


def _request(chat: Json, name: str) -> Json:
    try:
        return responses_request(chat)
    except ModelError as error:
        raise ValueError(f'"{name}": {error}') from error


def _without_nulls(value: Any, *, arguments: bool = True) -> Any:
    """The value without null fields; with `arguments`, also in the arguments of calls."""
    if isinstance(value, dict):
        return {
            name: each if name == "arguments" and not arguments else _without_nulls(each, arguments=arguments)
            for name, each in value.items()
            if each is not None
        }
    return [_without_nulls(each, arguments=arguments) for each in value] if isinstance(value, list) else value
