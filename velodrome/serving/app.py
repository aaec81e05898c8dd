"""A web app from a component: the routes of its kind, raw JSON in and out.

One parse and one encode a request, no model validation in between: what the component's contract asks for is
checked by the component. The description at `/docs` is made from the component's own tools.
"""

from __future__ import annotations

import hmac
import logging
import os
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from velodrome import http
from velodrome.errors import RolloutError, VelodromeError
from velodrome.serving import wire
from velodrome.serving.callers import Callers
from velodrome.serving.measures import Measures
from velodrome.settings import mask_text
from velodrome.timing.deadline import deadline
from velodrome.timing.exposition import PATH as METRICS
from velodrome.timing.trace import Trace

Json = dict[str, Any]
Background = Callable[[], AbstractAsyncContextManager[None]]
Handler = Callable[[Request], Awaitable[Response]]
log = logging.getLogger(__name__)

_ANY = "/{name}"
_FAULT = 500
_MOST_SHOWN = 200
_shown: set[str] = set()  # lines at fault whose traceback is in the log


@dataclass(frozen=True)
class Limits:
    """What one request may take."""

    max_body_bytes: int = 64 * 1024 * 1024
    body_timeout_s: float = 60.0
    token: str | None = None
    secrets: frozenset[str] = frozenset()  # what no error tells
    callers: Callers = field(default_factory=Callers)  # who may call without a token


@dataclass
class Status:
    """What `/` and `/health` tell."""

    name: str
    kind: str
    implementation: str
    started: float = field(default_factory=time.time)
    extra: Json = field(default_factory=dict)
    live: dict[str, Callable[[], Any]] = field(default_factory=dict)  # asked anew each time

    def told(self) -> Json:
        """As JSON."""
        return {
            "status": "ok",
            "name": self.name,
            "type": self.kind,
            "implementation": self.implementation,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self.started, 3),
            **self.extra,
            **{name: ask() for name, ask in self.live.items()},
        }


class BadRequest(Exception):
    """The request itself cannot be used: status and one line."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message


def json_response(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as the answer; encoded once."""
    body = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, headers, media_type="application/json")


async def read_json(request: Request, limits: Limits) -> Json:
    """The body as a JSON object: bounded in size and in time."""
    data = await read_any(request, limits)
    if not isinstance(data, dict):
        raise BadRequest(400, "the body is a JSON object")
    return data


async def read_any(request: Request, limits: Limits) -> Any:
    """The body as JSON, whatever it holds: bounded in size and in time."""
    try:
        with deadline(limits.body_timeout_s):
            body = await _read(request, limits.max_body_bytes)
    except TimeoutError:
        raise BadRequest(408, f"the body did not arrive within {limits.body_timeout_s:g} s") from None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(400, f"the body is not JSON: {error}") from error


async def _read(request: Request, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, "the body was cut off")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise BadRequest(413, f"the body is larger than {most} bytes")
        if not message.get("more_body", False):
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


def guarded(handle: Handler, secrets: frozenset[str] = frozenset()) -> Handler:
    """A handler whose errors are JSON: a rollout's with its boundary, a caller's with what is wrong."""

    async def handler(request: Request) -> Response:
        try:
            with Trace(_traceparent(request.scope)):
                return await handle(request)
        except BadRequest as error:
            return Response(wire.plain_error(error.message), error.status, media_type="application/json")
        except RolloutError as error:
            point_out(error, secrets)
            told = wire.error_body(error, secrets)
            return Response(told, wire.status_of(error), {http.SETTLED: "yes"}, media_type="application/json")
        except VelodromeError as error:
            told = wire.plain_error(mask_text(str(error), secrets), type(error).__name__)
            return Response(told, 503, media_type="application/json")

    return handler


def point_out(error: RolloutError, secrets: frozenset[str]) -> None:
    """Log the traceback of a fault in the component's own code, once per line at fault."""
    cause, place = error.__cause__, error.place
    if place is None or place in _shown or len(_shown) >= _MOST_SHOWN or isinstance(cause, VelodromeError):
        return  # an error of another server's is logged there
    _shown.add(place)
    trace = "" if cause is None else "\n" + "".join(traceback.format_exception(cause)).rstrip("\n")
    log.warning("%s", mask_text(f"{error.boundary} failed: {error} ({place}){trace}", secrets))


def _traceparent(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"traceparent":
            return str(value, "latin-1")
    return None


class App(FastAPI):
    """FastAPI, with a short way to raw routes: what stands before them there costs more than most calls."""

    def __init__(self, limits: Limits, **settings: Any) -> None:
        super().__init__(**settings)
        self._entry = Entry(limits)
        self._secrets = limits.secrets
        self.add_middleware(Gate, entry=self._entry)
        self._raw: dict[tuple[str, str], Handler] = {}
        self.measures = Measures(self.title)

    def add(self, method: str, path: str, handle: Handler) -> None:
        """One raw route; the path is fixed, or `/{name}`."""
        handler = guarded(handle, self._secrets)
        self.router.add_route(path, handler, methods=[method])
        if "{" in path:
            self._raw[method, _ANY] = handler
        else:
            self._raw[method, path] = handler
            self.measures.declare(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The short way if there is one, and if nobody (CORS) wants to see requests first."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        measures, began, status = self.measures, time.perf_counter(), _FAULT
        measures.in_flight += 1
        try:
            handler = self._found(scope) if len(self.user_middleware) == 1 else None
            if handler is None:
                status = await self._long_way(scope, receive, send)
            else:
                response = self._entry.refusal(scope) or await handler(Request(scope, receive, send))
                status = response.status_code
                await response(scope, receive, send)
        finally:
            measures.finished(scope["method"], scope["path"], status, began)

    async def _long_way(self, scope: Scope, receive: Receive, send: Send) -> int:
        """FastAPI's own; the status it answers with."""
        status = _FAULT

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await super().__call__(scope, receive, noted)
        return status

    def _found(self, scope: Scope) -> Handler | None:
        method, path = scope["method"], scope["path"]
        found = self._raw.get((method, path))
        if found is None and "/" not in path[1:] and len(path) > 1:
            found = self._raw.get((method, _ANY))
            scope["path_params"] = {"name": path[1:]}
        return found


def make_app(status: Status, limits: Limits, *, background: Background = nullcontext) -> App:
    """The app of one server; `background` runs as long as it does."""

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with background():
            with app.measures.lag_watched():
                yield

    app = App(limits, title=status.name, version="1", lifespan=lifespan)

    async def tell(request: Request) -> Response:
        return json_response(status.told())

    async def nothing_here(request: Request, error: Exception) -> Response:
        what = wire.plain_error(f"{request.method} {request.url.path}: no such route")
        return Response(what, getattr(error, "status_code", 404), media_type="application/json")

    app.add("GET", "/", tell)
    app.add("GET", "/health", tell)
    app.add("GET", METRICS, app.measures.tell)
    app.measures.identify(status.kind, status.implementation)
    app.add_exception_handler(404, nothing_here)
    app.add_exception_handler(405, nothing_here)
    return app


class Entry:
    """With a token, who has it may come in; without one, programs of this machine (`callers`)."""

    def __init__(self, limits: Limits) -> None:
        self._expected = None if limits.token is None else f"Bearer {limits.token}".encode()
        self._callers = limits.callers

    def refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that may not come in; None if it may."""
        if self._expected is None:
            refused = self._callers.refusal(scope["method"], scope["headers"])
            return None if refused is None else _refused(refused.status, refused.message, "forbidden")
        if scope["path"] == "/health" and scope["method"] in ("GET", "HEAD"):  # it tells nothing that matters
            return None
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if hmac.compare_digest(given, self._expected):
            return None
        return _refused(401, "a bearer token is wanted (server_token, or VELODROME_TOKEN)", "unauthorized")


def _refused(status: int, message: str, kind: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return Response(wire.plain_error(message, kind), status, headers, media_type="application/json")


class Gate:
    """The entry before FastAPI's own routes."""

    def __init__(self, app: ASGIApp, entry: Entry) -> None:
        self._app = app
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._entry.refusal(scope) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)
