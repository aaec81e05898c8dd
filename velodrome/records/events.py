"""The events of a streamed Response: what announces an item, fills it, and ends it.

`all_events` makes them from a finished Response. Every event names the item it belongs to by id and place, and what the
`done` events and the last event say is the Response itself, so adding up the pieces gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from velodrome.errors import ModelError, RolloutError
from velodrome.records.response_fields import complete

Json = dict[str, Any]

ENDS = {"response.completed", "response.incomplete"}

# Kind of part -> the field that holds its text, and the name its events have.
_PARTS = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "reasoning_text": ("text", "response.reasoning_text"),
}
_NOTHING: Json = {}
_STUB = ("type", "id", "role", "call_id", "name")


def all_events(response: Json, request: Json = _NOTHING, fault: type[RolloutError] = ModelError) -> Iterator[Json]:
    """All events of a finished Response to that request; what OpenAI's types miss in it is filled in."""
    response = complete(with_items(response, fault), request)
    yield from first_events(response)
    for index, item in enumerate(response["output"]):
        yield from item_events(item, index)
    yield last_event(response)


def item_events(item: Json, index: int) -> Iterator[Json]:
    """One finished item, from its announcement to its end."""
    yield item_added(item, index)
    yield from _filled(item, index)
    yield from item_done(item, index)


def with_items(response: Any, fault: type[RolloutError]) -> Json:
    """The same, if it is a Response; else a fault."""
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise fault('response: no "output" list')
    for index, item in enumerate(response["output"]):
        if not isinstance(item, dict):
            raise fault(f"output[{index}]: expected an object, found {type(item).__name__}")
    return response


def first_events(response: Json) -> list[Json]:
    """The first two events, from what is known by then."""
    early = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    return [{"type": kind, "response": early} for kind in ("response.created", "response.in_progress")]


def last_event(response: Json) -> Json:
    incomplete = response.get("status") == "incomplete"
    return {"type": "response.incomplete" if incomplete else "response.completed", "response": response}


def item_added(item: Json, index: int) -> Json:
    """Announces an item, with nothing in it yet."""
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
    """Announces a part of a message or of a reasoning; `at` holds item_id, output_index and content_index."""
    part: Json = {"type": kind, _PARTS[kind][0]: ""}
    if kind == "output_text":
        part |= {"annotations": [], "logprobs": []}
    return {"type": "response.content_part.added", **at, "part": part}


def part_delta(kind: str, at: Json, text: str, logprobs: list[Json] | None = None) -> Json:
    event = {"type": f"{_PARTS[kind][1]}.delta", **at, "delta": text}
    return event | {"logprobs": logprobs or []} if kind == "output_text" else event


def call_delta(at: Json, text: str) -> Json:
    """More of a call's arguments; `at` holds item_id and output_index."""
    return {"type": "response.function_call_arguments.delta", **at, "delta": text}


def _filled(item: Json, index: int) -> Iterator[Json]:
    at = _at(item, index)
    if item["type"] == "function_call":
        yield call_delta(at, item.get("arguments") or "")
    for place, part in _parts(item):
        here = {**at, "content_index": place}
        yield part_added(part["type"], here)
        yield part_delta(part["type"], here, part[_PARTS[part["type"]][0]], part.get("logprobs"))
    for place, part in _summary(item):
        here = {**at, "summary_index": place}
        yield {"type": "response.reasoning_summary_part.added", **here, "part": {**part, "text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **here, "delta": part["text"]}


def item_done(item: Json, index: int) -> Iterator[Json]:
    """Ends an item: each of its parts as it turned out, then the whole."""
    at = _at(item, index)
    if item["type"] == "function_call":
        arguments = item.get("arguments") or ""
        done = {"type": "response.function_call_arguments.done", **at, "name": item.get("name"), "arguments": arguments}
        yield done
    for place, part in _parts(item):
        here = {**at, "content_index": place}
        field, name = _PARTS[part["type"]]
        event = {"type": f"{name}.done", **here, field: part[field]}
        yield event | {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else event
        yield {"type": "response.content_part.done", **here, "part": part}
    for place, part in _summary(item):
        here = {**at, "summary_index": place}
        yield {"type": "response.reasoning_summary_text.done", **here, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **here, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _at(item: Json, index: int) -> Json:
    return {"item_id": item["id"], "output_index": index}


def _parts(item: Json) -> Iterator[tuple[int, Json]]:
    content = item.get("content") if item["type"] in ("message", "reasoning") else None
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if part.get("type") in _PARTS:
            yield place, part


def _summary(item: Json) -> Iterator[tuple[int, Json]]:
    summary = item.get("summary") if item["type"] == "reasoning" else None
    for place, part in enumerate(summary if isinstance(summary, list) else ()):
        if isinstance(part.get("text"), str):
            yield place, part
