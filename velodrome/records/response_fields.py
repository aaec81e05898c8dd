"""Fills in what OpenAI's types require of a Response: ids, times, lists that may be empty.

Ids of items are derived from the id of the Response and their place, so the same Response has the same ids.
"""

from __future__ import annotations

from time import time
from typing import Any
from uuid import uuid4

import orjson

Json = dict[str, Any]

_ID_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}
_REASONS = ("max_output_tokens", "content_filter", None)  # OpenAI's own; any other is `metadata.stop`
_OPTIONAL: Json = {"object": "response", "status": "completed", "error": None, "incomplete_details": None}
_DETAILS: Json = {
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
_LOGPROB: Json = {"bytes": [], "top_logprobs": []}
_NOTHING: Json = {}


def item_id(kind: str, response_id: str, index: int) -> str:
    """The id for an output item that has none."""
    return f"{_ID_PREFIX.get(kind, 'item')}_{response_id}_{index}"


def complete(response: Json, request: Json = _NOTHING) -> Json:
    """The Response to that request with every field that OpenAI's types require. Existing fields are kept."""
    name = response.get("id") or f"resp_{uuid4().hex}"
    whole = {**_OPTIONAL, **response, "id": name}
    if whole.get("created_at") is None:
        whole["created_at"] = int(time())
    if whole.get("model") is None:
        whole["model"] = request.get("model") or ""
    if whole.get("parallel_tool_calls") is None:
        whole["parallel_tool_calls"] = request.get("parallel_tool_calls") is not False
    if whole.get("tool_choice") is None:
        whole["tool_choice"] = request.get("tool_choice") or "auto"
    if whole.get("tools") is None:
        whole["tools"] = request.get("tools") or []
    details = whole["incomplete_details"]
    if isinstance(details, dict) and details.get("reason") not in _REASONS:
        whole = stopped(whole, details["reason"])
    whole["output"] = complete_items(response["output"], name)
    whole["usage"] = complete_usage(response.get("usage"))
    return whole


def stopped(response: Json, reason: Any) -> Json:
    """The Response with a reason that OpenAI's types do not have; a label of the user's by that name is replaced."""
    metadata = response.get("metadata")
    own = metadata if isinstance(metadata, dict) else _NOTHING
    return {**response, "incomplete_details": None, "metadata": {**own, "stop": reason}}


def complete_items(items: list[Any], name: str) -> list[Any]:
    """The items of a Response of that id."""
    return [_item(item, name, at) for at, item in enumerate(items)]


def distinct_ids(items: list[Json], name: str) -> list[Json]:
    """The items of a Response of that id; one with the id of an item before it has an id of its own.

    Some models count from one in every turn.
    """
    if len({item["id"] for item in items}) == len(items):
        return items
    seen: set[str] = set()
    result = []
    for at, item in enumerate(items):
        result.append({**item, "id": item_id(item["type"], name, at)} if item["id"] in seen else item)
        seen.add(item["id"])
    return result


def complete_usage(usage: Any) -> Json | None:
    """Token counts with their details and their sum, or None where there are none."""
    if not usage or not isinstance(usage, dict):
        return None
    whole = dict(usage)
    for name, zeros in _DETAILS.items():
        details = usage.get(name)
        if details.__class__ is not dict or not zeros.keys() <= details.keys():
            whole[name] = {**zeros, **details} if isinstance(details, dict) else zeros
    if usage.get("total_tokens") is None:
        counts = (usage.get("input_tokens"), usage.get("output_tokens"))
        whole["total_tokens"] = sum(count for count in counts if isinstance(count, int))
    return whole


def _item(item: Any, response_id: str, index: int) -> Any:
    """An item with what its type requires. A field of a wrong type stays as it is: others judge it."""
    if not isinstance(item, dict):
        return item
    kind = item.get("type", "message")
    made: Json = {"type": kind, **item}
    if not item.get("id"):
        made["id"] = item_id(kind, response_id, index)
    if kind == "message":
        made.setdefault("role", "assistant")
        if made["role"] == "assistant":
            made.setdefault("status", "completed")
            made["content"] = _parts(item.get("content"))
    elif kind == "function_call":
        made["call_id"] = item.get("call_id") or item.get("id") or ""
        arguments = item.get("arguments")
        if not isinstance(arguments, str):
            made["arguments"] = orjson.dumps({} if arguments is None else arguments).decode()
    elif kind == "function_call_output":
        made.setdefault("status", "completed")
    elif kind == "reasoning":
        summary = made.setdefault("summary", [])
        if isinstance(summary, str):
            made["summary"] = [{"type": "summary_text", "text": summary}]
    return made


def _parts(content: Any) -> Any:
    """What the assistant said, as parts."""
    if isinstance(content, list):
        return [_part(part) for part in content]
    if content is None:
        return []
    return [{"type": "output_text", "text": content, "annotations": []}] if isinstance(content, str) else content


def _part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") != "output_text":
        return part
    made = part if isinstance(part.get("annotations"), list) else {**part, "annotations": []}
    probs = part.get("logprobs")
    if not probs or not isinstance(probs, list):
        return made
    known = [{**_LOGPROB, **each} if isinstance(each, dict) else each for each in probs]
    return {**made, "logprobs": known}
