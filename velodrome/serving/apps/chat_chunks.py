"""The events of a streamed Response as chunks of a chat completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from velodrome.contracts import Json
from velodrome.records.conversation import TOKEN_FIELDS
from velodrome.records.events import ENDS, EventConverter
from velodrome.responses_api_models.conversion import chat_from_response


class ChatChunks(EventConverter):
    """Turns the events of one choice into chunks. What only arrives whole is sent whole.

    `head` is what all chunks of all choices begin with; the first event fills it. `usage` is known at the end.
    """

    def __init__(self, index: int, head: Json, *, counted: bool) -> None:
        self.usage: Json | None = None
        self._index = index
        self._head = head
        self._counted = counted  # every chunk has a usage, which is null before the last
        self._calls: dict[int, int] = {}  # place of an item -> number of its call
        convert: dict[str, Callable[[Json], Iterator[Json]]] = {
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
        super().__init__(convert)

    def _begin(self, event: Json) -> Iterator[Json]:
        response = event["response"]
        if not self._head:
            self._head |= {
                "id": response.get("id"),
                "object": "chat.completion.chunk",
                "created": int(response.get("created_at") or 0),
                "model": response.get("model"),
            }
        yield self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: Json, finish: str | None = None, logprobs: list[Json] | None = None) -> Json:
        tokens = {"content": logprobs} if logprobs else None
        choice = {"index": self._index, "delta": delta, "logprobs": tokens, "finish_reason": finish}
        chunk = {**self._head, "choices": [choice]}
        return chunk | {"usage": None} if self._counted else chunk

    def _text(self, event: Json, name: str) -> Iterator[Json]:
        self._shown[event["output_index"]] = event["type"]
        yield self._chunk({name: event["delta"]}, logprobs=event.get("logprobs"))

    def _summary(self, event: Json) -> Iterator[Json]:
        piece = self.summary(event)
        if piece is not None:
            yield from self._text(piece, "reasoning_content")

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
        chunk = self._chunk(late, finish=choice["finish_reason"])
        if "token_ids" in choice:
            chunk["choices"][0]["token_ids"] = choice["token_ids"]
        if "prompt_token_ids" in completion:
            chunk["prompt_token_ids"] = completion["prompt_token_ids"]
        self.usage = completion["usage"]
        yield chunk
