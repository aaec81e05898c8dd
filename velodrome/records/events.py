"""The events of a streamed Response: they announce an item, fill it, and end it.

`all_events` creates them from a finished Response. Every event has the id and the index of its item. The `done` events
and the last event contain the Response itself, which is also the sum of the deltas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from velodrome.errors import ModelError, RolloutError
from velodrome.records.response_fields import complete

Json = dict[str, Any]

ENDS = {"response.completed", "response.incomplete"}

# Kind of part -> the field with its text, and the prefix of its events.
_PARTS = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "reasoning_text": ("text", "response.reasoning_text"),
}
_NOTHING: Json = {}
_STUB = ("type", "id", "role", "call_id", "name")


def all_events(response: Json, request: Json = _NOTHING, fault: type[RolloutError] = ModelError) -> Iterator[Json]:
    """All events of a finished Response to the request. Fields that OpenAI's types require are added."""
    response = complete(with_items(response, fault), request)
    yield from first_events(response)
    for index, item in enumerate(response["output"]):
        yield from item_events(item, index)
    yield last_event(response)


def item_events(item: Json, index: int) -> Iterator[Json]:
    """All events of one finished item."""
    yield item_added(item, index)
    yield from _delta_events(item, index)
    yield from item_done(item, index)


def with_items(response: Any, fault: type[RolloutError]) -> Json:
    """Return the response if it has a list of items, else raise `fault`."""
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise fault('response: no "output" list')
    for index, item in enumerate(response["output"]):
        if not isinstance(item, dict):
            raise fault(f"output[{index}]: expected an object, found {type(item).__name__}")
    return response


def first_events(response: Json) -> list[Json]:
    """The first two events, which have no output yet."""
    early = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    return [{"type": kind, "response": early} for kind in ("response.created", "response.in_progress")]


def last_event(response: Json) -> Json:
    incomplete = response.get("status") == "incomplete"
    return {"type": "response.incomplete" if incomplete else "response.completed", "response": response}


def item_added(item: Json, index: int) -> Json:
    """The event that announces an empty item."""
    kind = item["type"]
    stub = {name: item[name] for name in _STUB if name in item}
    if kind == "message":
        stub |= {"status": "in_progress", "content": []}
    elif kind == "function_call":
        stub |= {"status": "in_progress", "arguments": ""}
    elif kind == "reasoning":
        stub |= {"summary": []}
    else:
        stub = item
    return {"type": "response.output_item.added", "output_index": index, "item": stub}


def part_added(kind: str, at: Json) -> Json:
    """The event that announces a part of an item; `at` holds item_id, output_index and content_index."""
    part: Json = {"type": kind, _PARTS[kind][0]: ""}
    if kind == "output_text":
        part |= {"annotations": [], "logprobs": []}
    return {"type": "response.content_part.added", **at, "part": part}


def part_delta(kind: str, at: Json, text: str, logprobs: list[Json] | None = None) -> Json:
    event = {"type": f"{_PARTS[kind][1]}.delta", **at, "delta": text}
    return event | {"logprobs": logprobs or []} if kind == "output_text" else event


def call_delta(at: Json, text: str) -> Json:
    """The event with more of a call's arguments; `at` holds item_id and output_index."""
    return {"type": "response.function_call_arguments.delta", **at, "delta": text}


def _delta_events(item: Json, index: int) -> Iterator[Json]:
    at = _at(item, index)
    if item["type"] == "function_call":
        yield call_delta(at, item.get("arguments") or "")
    for part_index, part in _parts(item):
        here = {**at, "content_index": part_index}
        yield part_added(part["type"], here)
        yield part_delta(part["type"], here, part[_PARTS[part["type"]][0]], part.get("logprobs"))
    for part_index, part in _summary(item):
        here = {**at, "summary_index": part_index}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **here, "delta": part["text"]}


def item_done(item: Json, index: int) -> Iterator[Json]:
    """The events that end an item: each finished part, then the item."""
    at = _at(item, index)
    if item["type"] == "function_call":
        arguments = item.get("arguments") or ""
        done = {"type": "response.function_call_arguments.done", **at, "name": item.get("name"), "arguments": arguments}
        yield done
    for part_index, part in _parts(item):
        here = {**at, "content_index": part_index}
        field, name = _PARTS[part["type"]]
        event = {"type": f"{name}.done", **here, field: part[field]}
        yield event | {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else event
        yield {"type": "response.content_part.done", **here, "part": part}
    for part_index, part in _summary(item):
        here = {**at, "summary_index": part_index}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **here, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _at(item: Json, index: int) -> Json:
    return {"item_id": item["id"], "output_index": index}


def _parts(item: Json) -> Iterator[tuple[int, Json]]:
    content = item.get("content") if item["type"] in ("message", "reasoning") else None
    for part_index, part in enumerate(content if isinstance(content, list) else ()):
        if part.get("type") in _PARTS:
            yield part_index, part


def _summary(item: Json) -> Iterator[tuple[int, Json]]:
    summary = item.get("summary") if item["type"] == "reasoning" else None
    for part_index, part in enumerate(summary if isinstance(summary, list) else ()):
        if isinstance(part.get("text"), str):
            yield part_index, part
