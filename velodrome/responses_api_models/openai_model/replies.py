"""What a server sends: an answer that comes whole, and one that is streamed.

A 2xx without an answer in it is a fault of the server, and `velodrome.http` tries again. The events of `/responses` are
passed on as they are, chat's chunks are converted. Half an answer is none: a stream that makes no sense or stops before
its last event raises `ModelError`. One that the server itself ends with an error raises `CallError`, with the event as
its body: whose fault it is may be in there.
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


def response_in(reply: http.Reply) -> Json:
    """The Response in a reply."""
    answer = _object(reply)
    if not isinstance(answer.get("output"), list):
        raise http.Unusable(f'"output" is not a list but {answer.get("output")!r:.40}')
    if answer.get("status") not in (None, "completed", "incomplete"):
        raise http.Unusable(f'status "{answer["status"]}"')
    return answer


def _completion_in(reply: http.Reply) -> Json:
    answer = _object(reply)
    if not isinstance(answer.get("choices"), list) or not answer["choices"]:
        raise http.Unusable('no "choices"')
    return answer


def _object(reply: http.Reply) -> Json:
    try:
        answer: Any = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        raise http.Unusable("the body is not JSON") from None
    if not isinstance(answer, dict):
        raise http.Unusable(f"expected an object, found {type(answer).__name__}")
    if answer.get("error"):
        raise http.Unusable("an error inside")
    return answer


READ: dict[str, Callable[[http.Reply], Json]] = {"responses": response_in, "chat": _completion_in}


def read_late(endpoint: str, reply: http.Reply) -> Json:
    """The answer in a reply that cannot be requested again."""
    try:
        return READ[endpoint](reply)
    except http.Unusable as error:
        raise unusable(reply, str(error)) from error


def unusable(reply: http.Reply, what: str) -> ModelError:
    """The error of an answer that cannot be used."""
    text = reply.target.excerpt(reply.body)
    return ModelError(f"POST {reply.target.label}: {reply.status}, but {what}: {text}", status=reply.status)


def is_stream(reply: http.Stream) -> bool:
    """Whether this answer is made of events; a server that does not stream sends one JSON body."""
    return reply.headers.get("Content-Type", "").startswith("text/event-stream")


async def response_stream(reply: http.Stream) -> AsyncGenerator[Json, None]:
    async with aclosing(_objects(reply)) as objects:
        async for event in objects:
            kind = event.get("type")
            if kind == "response.failed" or kind == "error" or event.get("error"):
                raise _failed(reply, event)
            problem = _flaw(event)
            if problem is not None:
                raise _broken(reply, problem)
            yield event
            if kind in ENDS:
                return
    raise _broken(reply, "the stream has no end")


async def chat_stream(reply: http.Stream, request: Json) -> AsyncGenerator[Json, None]:
    stream = ChatStream(request, _where(reply))
    async with aclosing(_objects(reply)) as objects:
        async for chunk in objects:
            for event in stream.add(chunk):
                yield event
    for event in stream.end():
        problem = _flaw(event)
        if problem is not None:
            raise _broken(reply, problem)
        yield event


def _flaw(event: Json) -> str | None:
    """The problem with an item that begins, or with the whole answer at its end; None if there is none."""
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
                raise _broken(reply, f"an event is not JSON: {reply.target.excerpt(data)}") from error
            if not isinstance(event, dict):
                raise _broken(reply, f"an event is not an object: {reply.target.excerpt(data)}")
            yield event


async def _payloads(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of one event after another, without names, ids and comments; the last needs no blank line after it."""
    data: list[bytes] = []
    async for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    rest: list[bytes] = []  # of a line that has not ended
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [other]
    if any(rest):
        yield b"".join(rest).removesuffix(b"\r")
    yield b""


def _failed(reply: http.Stream, event: Json) -> CallError:
    error = event.get("error") or (event.get("response") or {}).get("error") or event
    code = error.get("code") if isinstance(error, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    text = reply.target.excerpt(str(message or error).encode())
    status = code if isinstance(code, int) else None
    return CallError(f"{_where(reply)}: {text}", status=status, excerpt=text, body=orjson.dumps(event))


def _broken(reply: http.Stream, what: str) -> ModelError:
    return ModelError(f"{_where(reply)}: {what}")


def _where(reply: http.Stream) -> str:
    return f"POST {reply.target.label}"
