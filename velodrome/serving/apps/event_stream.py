"""A model's answer as server-sent events, in the form of either endpoint.

Both come from the events of a streamed Response: `/v1/responses` passes them on with numbers, `/v1/chat/completions`
turns them into chunks. For a model that does not stream they are made from its finished answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from velodrome.contracts import Json, Model, Streaming
from velodrome.errors import ModelError, blame
from velodrome.records.conversation import TOKEN_FIELDS
from velodrome.responses_api_models.conversion import chat_from_response
from velodrome.responses_api_models.events import ENDS, whole

Event = tuple[str | None, Json | None]


async def response_events(model: Model, request: Json) -> AsyncGenerator[Event, None]:
    """(name, data) of each event of `/v1/responses`."""
    number = 0
    async with aclosing(_events(model, request)) as events:
        async for event in events:
            yield event["type"], {**event, "sequence_number": number}
            number += 1


async def chat_events(model: Model, request: Json, *, usage: bool) -> AsyncGenerator[Event, None]:
    """(None, chunk) of `/v1/chat/completions`, and (None, None) for its [DONE]."""
    chunks = _Chunks(usage)
    async with aclosing(_events(model, request)) as events:
        with blame(ModelError, "model"):
            async for event in events:
                for chunk in chunks.of(event):
                    yield None, chunk
    yield None, None


async def _events(model: Model, request: Json) -> AsyncGenerator[Json, None]:
    with blame(ModelError, "model"):
        if not isinstance(model, Streaming):
            for event in whole(await model.respond(request)):
                yield event
            return
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                last = event["type"] in ENDS
                yield event
                if last:
                    return
        raise ModelError("model: the stream has no end")


class _Chunks:
    """Turns events into chunks. What only arrives whole is sent whole; nothing is sent twice."""

    def __init__(self, usage: bool) -> None:
        self._usage = usage
        self._head: Json = {}
        self._calls: dict[int, int] = {}  # place of an item -> number of its call
        self._shown: dict[int, str] = {}  # place of an item -> the event that last showed some of it
        self._summarised: tuple[int, int | None] | None = None  # the part of a summary that was last added to
        self._convert: dict[str, Callable[[Json], Iterator[Json]]] = {
            "response.created": self._begin,
            "response.output_text.delta": lambda event: self._text(event, "content"),
            "response.refusal.delta": lambda event: self._text(event, "refusal"),
            "response.reasoning_text.delta": lambda event: self._text(event, "reasoning_content"),
            "response.reasoning_summary_text.delta": self._summary,
            "response.output_item.added": self._item,
            "response.output_item.done": self._late,
            "response.function_call_arguments.delta": self._arguments,
            **dict.fromkeys(ENDS, self._end),
        }

    def of(self, event: Json) -> Iterator[Json]:
        """The chunks that an event becomes; many become none."""
        convert = self._convert.get(event["type"])
        return convert(event) if convert else iter(())

    def _begin(self, event: Json) -> Iterator[Json]:
        response = event["response"]
        self._head = {
            "id": response.get("id"),
            "object": "chat.completion.chunk",
            "created": int(response.get("created_at") or 0),
            "model": response.get("model"),
        }
        yield self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: Json, finish: str | None = None, logprobs: list[Json] | None = None) -> Json:
        tokens = {"content": logprobs} if logprobs else None
        choice = {"index": 0, "delta": delta, "logprobs": tokens, "finish_reason": finish}
        chunk = {**self._head, "choices": [choice]}
        return chunk | {"usage": None} if self._usage else chunk

    def _text(self, event: Json, name: str) -> Iterator[Json]:
        self._shown[event["output_index"]] = event["type"]
        yield self._chunk({name: event["delta"]}, logprobs=event.get("logprobs"))

    def _summary(self, event: Json) -> Iterator[Json]:
        last = self._shown.get(event["output_index"])
        if last == "response.reasoning_text.delta":
            return  # the text itself, of which this is the summary
        place = (event["output_index"], event.get("summary_index"))
        apart = "\n\n" if last and place != self._summarised else ""
        self._summarised = place
        yield from self._text({**event, "delta": apart + event["delta"]}, "reasoning_content")

    def _item(self, event: Json) -> Iterator[Json]:
        item = event["item"]
        if item["type"] == "function_call":
            number = self._calls[event["output_index"]] = len(self._calls)
            function = {"name": item["name"], "arguments": ""}
            call = {"index": number, "id": item.get("call_id"), "type": "function", "function": function}
            yield self._chunk({"tool_calls": [call]})

    def _arguments(self, event: Json) -> Iterator[Json]:
        self._shown[event["output_index"]] = event["type"]
        call = {"index": self._calls[event["output_index"]], "function": {"arguments": event["delta"]}}
        yield self._chunk({"tool_calls": [call]})

    def _late(self, event: Json) -> Iterator[Json]:
        place, item = event["output_index"], event["item"]
        if place in self._shown:
            return
        if place in self._calls:
            yield from self._arguments({**event, "delta": item.get("arguments") or ""})
            return
        message = chat_from_response({"output": [item]})["choices"][0]["message"]
        for name in ("reasoning_content", "content", "refusal"):
            if message.get(name):
                yield self._chunk({name: message[name]})

    def _end(self, event: Json) -> Iterator[Json]:
        completion = chat_from_response(event["response"])
        choice = completion["choices"][0]
        message = choice["message"]
        late = {name: message[name] for name in (*TOKEN_FIELDS, "annotations") if name in message}
        yield self._chunk(late, finish=choice["finish_reason"])
        if self._usage:
            yield {**self._head, "choices": [], "usage": completion["usage"]}
