"""uvicorn, as every server here runs it: no signal handlers of its own, and a bound that uvicorn does not have.

The head of a request must end. The body is bounded by `routes.read_json`, an idle connection by uvicorn's keep-alive.
The head of an answer leaves together with its body: uvicorn writes one after the other, which would wake the caller
twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from velodrome.errors import ServerError
from velodrome.scope import Scope
from velodrome.serving.process.listen import BACKLOG, UVICORN

KEEP_ALIVE_S = 75


class WebServer(uvicorn.Server):
    """One app behind sockets that its caller opened. It leaves the signals of the process alone."""

    def __init__(self, app: ASGIApp, *, drain_s: float, up: Callable[[WebServer], None] = lambda server: None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=HttpProtocol,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(drain_s)),
                **UVICORN,
            )
        )
        self._up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._up(self)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more requests, finish those in flight, end."""
        self.should_exit = True


@contextlib.asynccontextmanager
async def running(
    make: Callable[[], Awaitable[ASGIApp]], sockets: Sequence[socket.socket], *, drain_s: float
) -> AsyncIterator[None]:
    """Serve an app on this loop while the block runs. The sockets and the app's own connections end with it."""
    up: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with Scope():  # in a task of its own: requests inherit it, and the block does not
            await WebServer(await make(), drain_s=drain_s, up=up.set_result).serve(list(sockets))

    serving: asyncio.Future[Any] = asyncio.ensure_future(serve())
    try:
        await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # raises if making the app did
            raise ServerError("the server did not start; the log says why")
        yield
    finally:
        if up.done():
            up.result().stop()
        else:
            serving.cancel()
        await asyncio.wait({serving})


class Corked:
    """A transport that holds the head of an answer until the body comes, or until there is nothing else to do."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send, or hold if it is a head."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif data.startswith(b"HTTP/"):
            self._held = data
            self._loop.call_soon(self._release)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held, and close."""
        self._release()
        self._transport.close()

    def _release(self) -> None:
        if self._held and not self._transport.is_closing():
            self.write(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which alone takes a head of any size."""

    max_head_bytes = 128 * 1024

    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", Corked(transport, self.loop))

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        if self._head_bytes > self.max_head_bytes and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
