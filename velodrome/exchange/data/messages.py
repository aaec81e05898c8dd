"""Columns that hold messages: lists of `role` and `content`, as in TRL's and verl's data sets.

Such a list is the conversation itself and never text within one. Fields that are null were added by Parquet, whose
rows all have the same ones, and are dropped.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import orjson

from velodrome.contracts import Json
from velodrome.errors import ModelError
from velodrome.responses_api_models.conversion import responses_request

_ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


def is_messages(value: Any) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) and "role" in each for each in value)


def conversation(value: list[Json], name: str, system: str | None) -> list[Json]:
    """The messages of a column as a task has them; a `ValueError` says what is wrong with them."""
    messages: list[Json] = [_without_nulls(message) for message in value]
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


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
