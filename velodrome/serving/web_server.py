"""uvicorn without its signal handlers, and with a limit for the size of request heads.

`routes.read_json` limits the body, and uvicorn's keep-alive limits idle connections. The head of an answer is sent
together with its body: uvicorn writes them separately, which would wake the caller twice.
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
    """Serves one app on sockets that the caller opened, without signal handlers."""

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
    """Serve an app on this loop while the block runs. Then the sockets and the app's connections are closed."""
    up: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with Scope():  # in a separate task: requests inherit the scope, the block does not
            await WebServer(await make(), drain_s=drain_s, up=up.set_result).serve(list(sockets))

    serving: asyncio.Future[Any] = asyncio.ensure_future(serve())
    try:
        await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # raises the error of making the app
            raise ServerError("the server did not start; the log says why")
        yield
    finally:
        if up.done():
            up.result().stop()
        else:
            serving.cancel()
        await asyncio.wait({serving})


class CorkedTransport:
    """A transport that holds the head of an answer until its body is written, or until the loop is idle."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Send the data, or hold it if it is a head."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._release)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send a held head, and close."""
        self._release()
        self._transport.close()

    def _release(self) -> None:
        if self._head and not self._transport.is_closing():
            self.write(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit for the size of a head."""

    max_head_bytes = 128 * 1024

    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", CorkedTransport(transport, self.loop))

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
