"""What a stream must be like, whoever sends it, and what the tests of streams stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import openai
import orjson

from tests.support.patience import DEADLINE_S
from velodrome.contracts import Streaming
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]

TURN = {
    "reasoning_content": "Two calls.",
    "content": "Let me see.",
    "tool_calls": [
        {"id": "c0", "name": "add", "arguments": '{"a": 1}'},
        {"id": "c1", "name": "mul", "arguments": '{"b": "ü☃"}'},
    ],
}
BEGUN = [
    {"type": "response.created", "response": {"id": "r", "model": "m", "created_at": 1, "output": []}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "message", "id": "i", "role": "assistant", "content": []},
    },
    {
        "type": "response.content_part.added",
        "item_id": "i",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "output_text", "text": "", "annotations": []},
    },
    {
        "type": "response.output_text.delta",
        "item_id": "i",
        "output_index": 0,
        "content_index": 0,
        "delta": "Half an",
        "logprobs": [],
    },
]


def scripted(*answers: Any, **more: Any) -> Callable[[], ScriptedModel]:
    return lambda: ScriptedModel(answers=list(answers), **more)


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)


def consistent(events: list[Json]) -> Json:
    """Checks that the events tell one story, and returns the Response they end with."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    final: Json = events[-1]["response"]
    last = "response.incomplete" if final["status"] == "incomplete" else "response.completed"
    assert events[-1]["type"] == last
    early = events[0]["response"]
    assert (early["id"], early["status"], early["output"], early["usage"]) == (final["id"], "in_progress", [], None)
    announced: list[Json] = []
    texts: dict[Any, str] = {}
    ended: dict[int, Json] = {}
    for event in events[2:-1]:
        kind, place = event["type"], event["output_index"]
        if kind == "response.output_item.added":
            assert place == len(announced)
            announced.append(event["item"])
            continue
        assert place not in ended
        if kind == "response.output_item.done":
            ended[place] = event["item"]
            continue
        assert event["item_id"] == announced[place]["id"]
        index = (place, event.get("content_index"), event.get("summary_index"))
        if kind.endswith("part.added"):
            assert index not in texts
            texts[index] = ""
        elif kind.endswith(".delta"):
            texts[index] = (texts.get(index) or "") + event["delta"]
        elif kind.endswith("part.done"):
            field = "refusal" if event["part"].get("type") == "refusal" else "text"
            assert event["part"][field] == texts[index]
        else:
            assert event[next(name for name in ("text", "refusal", "arguments") if name in event)] == texts[index]
    assert [(item["type"], item["id"]) for item in announced] == [
        (item["type"], item["id"]) for item in final["output"]
    ]
    assert [ended[place] for place in range(len(announced))] == final["output"]
    return final


def responses(url: str, **request: Any) -> list[Json]:
    """The events of a streamed Response, raw."""
    body = {"input": "Go.", "stream": True, **request}
    with httpx2.Client(timeout=DEADLINE_S) as plain, plain.stream("POST", f"{url}/v1/responses", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        names, events = [], []
        for line in reply.iter_lines():
            if line.startswith("event: "):
                names.append(line[7:])
            elif line.startswith("data: "):
                events.append(orjson.loads(line[6:]))
    assert names == [event["type"] for event in events]
    return events


def without_ids(response: Json) -> Json:
    """A Response without what is new in every call."""
    output = [{name: value for name, value in item.items() if name != "id"} for item in response["output"]]
    return {**response, "id": None, "created_at": None, "output": output}


def added(chunks: list[Any]) -> Json:
    """The message that the chunks are the pieces of."""
    message: Json = {"role": "assistant", "content": None}
    for chunk in chunks:
        for choice in chunk.choices:
            for name, value in choice.delta.to_dict().items():
                if name == "tool_calls":
                    for piece in value:
                        calls = message.setdefault("tool_calls", [])
                        if piece["index"] == len(calls):
                            calls.append({"id": piece["id"], "type": "function", "function": piece["function"]})
                        else:
                            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
                elif name != "role" and value:
                    message[name] = (message.get(name) or "") + value
    return message


async def collected(model: Streaming, request: Json | None = None) -> list[Json]:
    result = [event async for event in model.stream(request or {"input": "Go."})]
    return [{**event, "sequence_number": number} for number, event in enumerate(result)]
