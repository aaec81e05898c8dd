"""Parse a server's replies: complete answers and streams.

A 2xx without an answer is a failure of the server, and `velodrome.http` retries it. Events of `/responses` pass through
unchanged; chat's chunks are converted. A partial answer is not an answer: an invalid stream, or one that stops before
its last event, raises `ModelError`. If the server ends the stream with an error, a `CallError` is raised with the event
as its body, which may give the cause.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from typing import Any

import orjson

from velodrome import http
from velodrome.contracts import Json
from velodrome.errors import CallError, ModelError
from velodrome.records.conversation import flaw
from velodrome.records.events import ENDS
from velodrome.records.turns import answer_flaw, forged
from velodrome.responses_api_models.chunks import ChatStream

_ITEMS = frozenset(("response.output_item.added", "response.output_item.done"))


def parse_response(reply: http.Reply) -> Json:
    """Parse the Response in a reply."""
    answer = _parse_object(reply)
    if not isinstance(answer.get("output"), list):
        raise http.Unusable(f'"output" is not a list but {answer.get("output")!r:.40}')
    if answer.get("status") not in (None, "completed", "incomplete"):
        raise http.Unusable(f'status "{answer["status"]}"')
    return answer


def _parse_completion(reply: http.Reply) -> Json:
    answer = _parse_object(reply)
    if not isinstance(answer.get("choices"), list) or not answer["choices"]:
        raise http.Unusable('no "choices"')
    return answer


def _parse_object(reply: http.Reply) -> Json:
    try:
        answer: Any = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        raise http.Unusable("the body is not JSON") from None
    if not isinstance(answer, dict):
        raise http.Unusable(f"expected an object, found {type(answer).__name__}")
    if answer.get("error"):
        raise http.Unusable("an error inside")
    return answer


PARSERS: dict[str, Callable[[http.Reply], Json]] = {"responses": parse_response, "chat": _parse_completion}


def parse_final(endpoint: str, reply: http.Reply) -> Json:
    """Parse the answer in a reply that can no longer be retried."""
    try:
        return PARSERS[endpoint](reply)
    except http.Unusable as error:
        raise unusable(reply, str(error)) from error


def unusable(reply: http.Reply, problem: str) -> ModelError:
    """The error of an answer that cannot be used."""
    text = reply.target.excerpt(reply.body)
    return ModelError(f"POST {reply.target.label}: {reply.status}, but {problem}: {text}", status=reply.status)


def is_stream(reply: http.Stream) -> bool:
    """Whether a reply is a stream of events; some servers send one JSON body instead."""
    return reply.headers.get("Content-Type", "").startswith("text/event-stream")


async def response_stream(reply: http.Stream) -> AsyncGenerator[Json, None]:
    async with aclosing(_objects(reply)) as objects:
        async for event in objects:
            kind = event.get("type")
            if kind == "response.failed" or kind == "error" or event.get("error"):
                raise _failure(reply, event)
            problem = _flaw(event)
            if problem is not None:
                raise _stream_error(reply, problem)
            yield event
            if kind in ENDS:
                return
    raise _stream_error(reply, "the stream has no end")


async def chat_stream(reply: http.Stream, request: Json) -> AsyncGenerator[Json, None]:
    stream = ChatStream(request, _where(reply))
    async with aclosing(_objects(reply)) as objects:
        async for chunk in objects:
            for event in stream.add(chunk):
                yield event
    for event in stream.end():
        problem = _flaw(event)
        if problem is not None:
            raise _stream_error(reply, problem)
        yield event


def _flaw(event: Json) -> str | None:
    """The problem with an event's item, or with the complete answer of the last event; None if there is none."""
    kind = event.get("type")
    if kind in ENDS:
        return answer_flaw(event.get("response"))
    item = event.get("item") if kind in _ITEMS else None
    return flaw(item) or forged(item) if isinstance(item, dict) else None


async def _objects(reply: http.Stream) -> AsyncGenerator[Json, None]:
    async with aclosing(reply.chunks()) as chunks:
        async for data in _payloads(chunks):
            if data == b"[DONE]":
                return
            try:
                event: Any = orjson.loads(data)
            except orjson.JSONDecodeError as error:
                raise _stream_error(reply, f"an event is not JSON: {reply.target.excerpt(data)}") from error
            if not isinstance(event, dict):
                raise _stream_error(reply, f"an event is not an object: {reply.target.excerpt(data)}")
            yield event


async def _payloads(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of each event, without names, ids and comments. The last event needs no blank line after it."""
    data: list[bytes] = []
    async for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    line_parts: list[bytes] = []  # of an incomplete line
    async for chunk in chunks:
        line_end, *lines = chunk.split(b"\n")
        line_parts.append(line_end)
        for line in lines:
            yield b"".join(line_parts).removesuffix(b"\r")
            line_parts = [line]
    if any(line_parts):
        yield b"".join(line_parts).removesuffix(b"\r")
    yield b""


def _failure(reply: http.Stream, event: Json) -> CallError:
    error = event.get("error") or (event.get("response") or {}).get("error") or event
    code = error.get("code") if isinstance(error, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    text = reply.target.excerpt(str(message or error).encode())
    status = code if isinstance(code, int) else None
    return CallError(f"{_where(reply)}: {text}", status=status, excerpt=text, body=orjson.dumps(event))


def _stream_error(reply: http.Stream, problem: str) -> ModelError:
    return ModelError(f"{_where(reply)}: {problem}")


def _where(reply: http.Stream) -> str:
    return f"POST {reply.target.label}"
