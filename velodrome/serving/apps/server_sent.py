"""Answers that take time: whole ones and server-sent events, given up if the caller disconnects.

A streamed answer begins with its first event, so an error before that has a status of its own. A later one is the last
event, in the form of the dialect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from velodrome.contracts import Json
from velodrome.errors import ModelError, VelodromeError, blame
from velodrome.serving.apps.event_stream import Event
from velodrome.serving.apps.routes import EVENTS, BadRequest, RequestLimits, encoded, limits_of
from velodrome.serving.apps.web_app import error_response

Failure = Callable[[Json, int, int], Event]
"""An error as the last event: from the body and the status of a whole answer, and the number of the event."""

_CLIENT_CLOSED = 499
_UNWATCHED_S = 0.1  # watching costs as much as a short call itself
_Got = TypeVar("_Got")


async def while_wanted(request: Request, work: Awaitable[_Got]) -> _Got:
    """The result of some work, which is cancelled if the caller disconnects first."""
    task = asyncio.current_task()
    assert task is not None
    watch: asyncio.Task[None] | None = None
    gone = False

    async def watching() -> None:
        nonlocal gone
        await request.receive()  # the body has been read: all that can come is the end
        gone = True
        task.cancel()

    def begin() -> None:
        nonlocal watch
        watch = asyncio.create_task(watching())

    timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, begin)
    try:
        return await work
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise BadRequest(_CLIENT_CLOSED, "the caller disconnected") from None
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()


async def streamed(request: Request, events: AsyncGenerator[Event, None], failure: Failure) -> Response:
    """Server-sent events, once there is a first one."""
    async with AsyncExitStack() as failed:
        failed.push_async_callback(events.aclose)
        event = await while_wanted(request, anext(events))
        with blame(ModelError, "model"):
            first = _encoded(event)
        failed.pop_all()
    return _EventStream(first, events, failure, limits_of(request))


class _EventStream(StreamingResponse):
    """Closes its events however it ends; an error in the middle is the last of them."""

    def __init__(
        self, first: bytes, events: AsyncGenerator[Event, None], failure: Failure, limits: RequestLimits
    ) -> None:
        super().__init__(self._body(first, events), headers={"Cache-Control": "no-cache"}, media_type=EVENTS)
        self._events = events
        self._failure = failure
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def _body(self, first: bytes, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
        number = 1
        yield first
        try:
            with blame(ModelError, "model"):
                async for event in events:
                    yield _encoded(event)
                    number += 1
        except VelodromeError as error:
            whole = error_response(error, self._limits)
            yield _encoded(self._failure(orjson.loads(whole.body), whole.status_code, number))


def _encoded(event: Event) -> bytes:
    name, data = event
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + (b"[DONE]" if data is None else encoded(data)) + b"\n\n"
