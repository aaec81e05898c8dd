"""Fills in what OpenAI's types require of a Response: ids, times, lists that may be empty.

Ids of items are derived from the id of the Response and their index, so they are stable.
"""

from __future__ import annotations

from time import time
from typing import Any
from uuid import uuid4

import orjson

Json = dict[str, Any]

_ID_PREFIX = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}
_REASONS = ("max_output_tokens", "content_filter", None)  # of OpenAI; others go to `metadata.stop`
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
    """The Response to the request with every field that OpenAI's types require. Existing fields are kept."""
    response_id = response.get("id") or f"resp_{uuid4().hex}"
    whole = {**_OPTIONAL, **response, "id": response_id}
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
    whole["output"] = complete_items(response["output"], response_id)
    whole["usage"] = complete_usage(response.get("usage"))
    return whole


def stopped(response: Json, reason: Any) -> Json:
    """The Response with a stop reason that OpenAI's types do not have. It replaces a user's `metadata.stop`."""
    metadata = response.get("metadata")
    labels = metadata if isinstance(metadata, dict) else _NOTHING
    return {**response, "incomplete_details": None, "metadata": {**labels, "stop": reason}}


def complete_items(items: list[Any], response_id: str) -> list[Any]:
    """The items of a Response with the fields that their types require."""
    return [_complete_item(item, response_id, index) for index, item in enumerate(items)]


def distinct_ids(items: list[Json], response_id: str) -> list[Json]:
    """The items of a Response with distinct ids. An item with the id of an earlier item gets a new id.

    Some models restart their ids in every turn.
    """
    if len({item["id"] for item in items}) == len(items):
        return items
    seen: set[str] = set()
    result = []
    for index, item in enumerate(items):
        result.append({**item, "id": item_id(item["type"], response_id, index)} if item["id"] in seen else item)
        seen.add(item["id"])
    return result


def complete_usage(usage: Any) -> Json | None:
    """Token counts with their details and their total; None without counts."""
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


def _complete_item(item: Any, response_id: str, index: int) -> Any:
    """An item with the fields that its type requires. Fields of a wrong type are kept: `flaw` reports them."""
    if not isinstance(item, dict):
        return item
    kind = item.get("type", "message")
    whole: Json = {"type": kind, **item}
    if not item.get("id"):
        whole["id"] = item_id(kind, response_id, index)
    if kind == "message":
        whole.setdefault("role", "assistant")
        if whole["role"] == "assistant":
            whole.setdefault("status", "completed")
            whole["content"] = _parts(item.get("content"))
    elif kind == "function_call":
        whole["call_id"] = item.get("call_id") or item.get("id") or ""
        arguments = item.get("arguments")
        if not isinstance(arguments, str):
            whole["arguments"] = orjson.dumps({} if arguments is None else arguments).decode()
    elif kind == "function_call_output":
        whole.setdefault("status", "completed")
    elif kind == "reasoning":
        summary = whole.setdefault("summary", [])
        if isinstance(summary, str):
            whole["summary"] = [{"type": "summary_text", "text": summary}]
    return whole


def _parts(content: Any) -> Any:
    """The content of an assistant message as parts."""
    if isinstance(content, list):
        return [_part(part) for part in content]
    if content is None:
        return []
    return [{"type": "output_text", "text": content, "annotations": []}] if isinstance(content, str) else content


def _part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") != "output_text":
        return part
    whole = part if isinstance(part.get("annotations"), list) else {**part, "annotations": []}
    logprobs = part.get("logprobs")
    if not logprobs or not isinstance(logprobs, list):
        return whole
    return {**whole, "logprobs": [{**_LOGPROB, **each} if isinstance(each, dict) else each for each in logprobs]}
