"""An ASGI app that is called in this process: no socket, the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from starlette.types import ASGIApp, Message

_HOST = (b"host", b"localhost")
_JSON = (b"content-type", b"application/json")


class AsgiAnswer:
    """An answer, with the attributes of aiohttp's responses."""

    def __init__(self, status: int, body: bytes, headers: CIMultiDictProxy[str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.ok = status < 400
        self.cookies: dict[str, str] = {}

    async def read(self) -> bytes:
        return self.body

    async def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    async def json(self) -> Any:
        return orjson.loads(self.body)

    def raise_for_status(self) -> None:
        if not self.ok:
            raise RuntimeError(f"status {self.status}: {self.body[:500].decode('utf-8', 'replace')}")


class AsgiApp:
    """One app. Its first request starts it, and `aclose` ends it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._started: asyncio.Future[Any] | None = None
        self._ending = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> AsgiAnswer:
        """Send a request and return the answer. Exceptions of the app are raised."""
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._started))
        state = await asyncio.shield(self._started)
        sent = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [_HOST, _JSON, (b"content-length", str(len(body)).encode()), *sent],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
            "state": dict(state or {}),
        }
        exchange = _Exchange(body)
        await self._app(scope, exchange.receive, exchange.send)
        return AsgiAnswer(exchange.status, b"".join(exchange.parts), CIMultiDictProxy(exchange.headers))

    async def aclose(self) -> None:
        """Run the shutdown of the app."""
        self._ending.set()
        if self._life is not None:
            await asyncio.wait([self._life])
            if not self._life.cancelled():
                self._life.exception()  # read, so that asyncio does not report it: every request has its answer

    async def _live(self, started: asyncio.Future[Any]) -> None:
        """Run the startup and the shutdown of the app, in one task. An app without a router has neither."""
        router = getattr(self._app, "router", None)
        if router is None:
            started.set_result(None)
            return
        try:
            async with router.lifespan_context(self._app) as state:
                started.set_result(state)
                await self._ending.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)


class _Exchange:
    """One request and its answer."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._done = asyncio.Event()
        self.status = 500
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await self._done.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                self.headers.add(name.decode("latin-1"), value.decode("latin-1"))
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))
            if not message.get("more_body"):
                self._done.set()
