"""Convert chat-completion chunks to the events of a streamed Response, and at the end to the Response.

`Fold` joins chunks into a completion. `ChatStream` converts chunks to events as they arrive; the items of the Response
have the ids and places of their events. Text pieces are collected in lists and joined once, so the work is linear in
the length of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from velodrome.errors import ModelError, blame
from velodrome.records import events
from velodrome.records.response_fields import item_id
from velodrome.responses_api_models.conversion import response_from_chat

Json = dict[str, Any]

_HEAD_FIELDS = ("id", "created", "model", "system_fingerprint", "service_tier", "prompt_token_ids")
_TEXTS = ("content", "reasoning_content", "refusal")
_PART_OF = {"content": "output_text", "refusal": "refusal", "reasoning_content": "reasoning_text"}


class Fold:
    """The completion so far. `where` is the prefix of its error messages."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._head: Json = {}
        self._texts: dict[str, list[str]] = {}
        self._annotations: list[Json] = []
        self._stop: Any = None  # the stop sequence, if the server reports it
        self._calls: dict[int, _CallPieces] = {}
        self._logprobs: list[Json] = []
        self._token_ids: list[int] = []
        self._finish: str | None = None
        self._usage: Json | None = None

    def add(self, chunk: Json) -> list[Json]:
        """Add a chunk; returns its deltas, with an id and a name in every piece of a call."""
        with blame(ModelError, f"{self._where}: not a chat completion chunk"):
            if chunk.get("error"):
                raise self._error(chunk["error"])
            for name in _HEAD_FIELDS:
                if chunk.get(name) is not None:
                    self._head.setdefault(name, chunk[name])
            self._usage = chunk.get("usage") or self._usage
            choices = chunk.get("choices") or ()
            return [self._delta(choice) for choice in choices if not choice.get("index")]

    def completed(self) -> Json:
        """The completion. Raises `ModelError` if the last chunk is missing."""
        if self._finish is None:
            raise ModelError(f"{self._where}: the answer has no end")
        message: Json = {"role": "assistant", "content": None}
        message |= {name: "".join(pieces) for name, pieces in self._texts.items()}
        if self._annotations:
            message["annotations"] = self._annotations
        if self._calls:
            message["tool_calls"] = [self._calls[index].completed() for index in sorted(self._calls)]
        choice: Json = {"index": 0, "finish_reason": self._finish, "message": message}
        choice |= {"stop_reason": self._stop} if self._stop else {}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        if self._token_ids and self._all_ids():
            choice["token_ids"] = self._token_ids
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage}

    def _all_ids(self) -> bool:
        """Whether every token has an id: some proxies drop chunks without text, and the ids in them."""
        generated = (self._usage or {}).get("completion_tokens")
        return generated is None or generated == len(self._token_ids)

    def _error(self, error: Any) -> ModelError:
        reported = error if isinstance(error, dict) else {"message": str(error)}
        code = reported.get("code")
        return ModelError(
            f"{self._where}: {reported.get('message', reported)}", status=code if isinstance(code, int) else None
        )

    def _delta(self, choice: Json) -> Json:
        raw_delta = choice.get("delta") or {}
        self._stop = choice.get("stop_reason") or self._stop
        role = raw_delta.get("role") or "assistant"
        if role != "assistant":
            raise ModelError(f"{self._where}: a model may not speak as {role!r:.40}, only as the assistant")
        delta: Json = {name: raw_delta[name] for name in _TEXTS if raw_delta.get(name) is not None}
        if "reasoning_content" not in delta and isinstance(raw_delta.get("reasoning"), str):
            delta["reasoning_content"] = raw_delta["reasoning"]
        for name, text in delta.items():
            if not isinstance(text, str):
                raise ModelError(f'{self._where}: "{name}" of a chunk must be text, found {type(text).__name__}')
            self._texts.setdefault(name, []).append(text)
        self._annotations += raw_delta.get("annotations") or ()
        if raw_delta.get("tool_calls"):
            delta["tool_calls"] = [self._call(piece) for piece in raw_delta["tool_calls"]]
        probs = (choice.get("logprobs") or {}).get("content")
        if probs:
            self._logprobs += probs
            delta["logprobs"] = probs
        hidden = choice.get("provider_specific_fields") or {}
        self._token_ids += choice.get("token_ids") or hidden.get("token_ids") or ()
        if choice.get("prompt_token_ids"):
            self._head.setdefault("prompt_token_ids", choice["prompt_token_ids"])
        self._finish = choice.get("finish_reason") or self._finish
        return delta

    def _call(self, piece: Json) -> Json:
        index = piece.get("index")
        if index is not None and not isinstance(index, int):
            raise TypeError("the index of a call must be a number")
        if index is None:  # some servers send complete calls without an index
            index = len(self._calls) if piece.get("id") else max(len(self._calls) - 1, 0)
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = _CallPieces(piece.get("id") or f"call_{uuid4().hex}")
        function = piece.get("function") or {}
        arguments = function.get("arguments") or ""
        is_named = bool(call.name)
        call.add(function.get("name") or "", arguments)
        if not is_named:  # the first delta with a name has all arguments so far
            arguments = "".join(call.arguments) if call.name else ""
        return {"id": call.id, "name": call.name[0] if call.name else "", "arguments": arguments}


class _CallPieces:
    """The pieces of one tool call."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name: list[str] = []
        self.arguments: list[str] = []

    def add(self, name: str, arguments: str) -> None:
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise TypeError("the name and the arguments of a call must be text")
        if name:
            self.name.append(name)
        if arguments:
            self.arguments.append(arguments)

    def completed(self) -> Json:
        function = {"name": "".join(self.name), "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class ChatStream:
    """The events of one answer: `add` each chunk, then `end`."""

    def __init__(self, request: Json, where: str) -> None:
        self._request = request
        self._fold = Fold(where)
        self._id = ""
        # The places of the items begun so far, by "reasoning", "message" or the id of a call.
        self._order: dict[str, int] = {}
        self._parts: list[str] = []  # of the message

    def add(self, chunk: Json) -> Iterator[Json]:
        """The events of a chunk; the first chunk begins the Response."""
        deltas = self._fold.add(chunk)
        if not self._id:
            self._id = chunk.get("id") or f"resp_{uuid4().hex}"
            head = {name: chunk[name] for name in _HEAD_FIELDS if name in chunk}
            yield from events.first_events(self._response({**head, "choices": [{"message": {"content": ""}}]}))
        for delta in deltas:
            for name in ("reasoning_content", "content", "refusal"):
                if delta.get(name):
                    yield from self._text("reasoning" if name == "reasoning_content" else "message", name, delta)
            for piece in delta.get("tool_calls") or ():
                yield from self._call(piece)

    def end(self) -> Iterator[Json]:
        """The final events: every item, including those without chunks, and the Response."""
        response = self._response(self._fold.completed())
        opened = len(self._order)
        output = sorted(response["output"], key=self._place)
        for index, item in enumerate(output):
            item["id"] = item_id(item["type"], self._id, index)
            if item["type"] == "message":
                item["content"].sort(key=lambda part: [*self._parts, part["type"]].index(part["type"]))
        response["output"] = output
        for index, item in enumerate(output):
            yield from events.item_done(item, index) if index < opened else events.item_events(item, index)
        yield events.last_event(response)

    def _response(self, completion: Json) -> Json:
        return response_from_chat({**completion, "id": self._id}, self._request)

    def _place(self, item: Json) -> int:
        """The place of an item; an item without chunks comes last."""
        key = item.get("call_id") or item["type"]
        return self._order.get(key, len(self._order))

    def _open(self, key: str, item: Json) -> Iterator[Json]:
        if key not in self._order:
            index = len(self._order)
            self._order[key] = index
            yield events.item_added({"id": item_id(item["type"], self._id, index), **item}, index)

    def _at(self, key: str, kind: str) -> Json:
        index = self._order[key]
        return {"item_id": item_id(kind, self._id, index), "output_index": index}

    def _text(self, key: str, name: str, delta: Json) -> Iterator[Json]:
        is_new = key not in self._order
        item: Json = {"type": key} if key == "reasoning" else {"type": key, "role": "assistant"}
        yield from self._open(key, item)
        part = _PART_OF[name]
        if key == "message":
            is_new = part not in self._parts
            if is_new:
                self._parts.append(part)
        at = {**self._at(key, key), "content_index": self._parts.index(part) if key == "message" else 0}
        if is_new:
            yield events.part_added(part, at)
        yield events.part_delta(part, at, delta[name], delta.get("logprobs"))

    def _call(self, piece: Json) -> Iterator[Json]:
        if not piece["name"]:
            return
        key = piece["id"]
        yield from self._open(key, {"type": "function_call", "call_id": key, "name": piece["name"]})
        if piece["arguments"]:
            yield events.call_delta(self._at(key, "function_call"), piece["arguments"])
