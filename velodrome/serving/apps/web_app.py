"""The common part of all servers: the middleware, errors that name their boundary, and the reported state."""

from __future__ import annotations

import hmac
import logging
import os
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from velodrome import context, http
from velodrome.contracts import Json
from velodrome.errors import RolloutError, TaskError, VelodromeError
from velodrome.serving import wire
from velodrome.serving.apps.measures import CORE, Core, Measures
from velodrome.serving.apps.routes import (
    JSON,
    BadRequest,
    Endpoint,
    Handler,
    Peers,
    RequestLimits,
    get,
    json_response,
    limit,
)
from velodrome.settings import mask_text
from velodrome.timing.exposition import PATH as METRICS
from velodrome.timing.spans import Span, put, root

Background = Callable[[], AbstractAsyncContextManager[None]]
Direct = dict[str, tuple[Handler, dict[str, str]]]
log = logging.getLogger(__name__)

_FAULT = 500
_NOT_ALLOWED, _NOT_JSON = 405, 415
_BUSY = 0.5  # of a core: below this, a process is not a bottleneck
_MOST_LOGGED = 200
_TRACE, _SEED = context.TRACE_HEADER.encode(), context.SEED_HEADER.encode()
_SPANS = wire.SPANS.encode()
_logged: set[str] = set()  # places of faults that are in the log


@dataclass
class Status:
    """The report at `/` and `/health`."""

    name: str
    kind: str
    implementation: str
    started: float = field(default_factory=time.time)
    extra: Json = field(default_factory=dict)
    live: dict[str, Callable[[], Any]] = field(default_factory=dict)  # computed for each request

    def report(self) -> Json:
        return {
            "status": "ok",
            "name": self.name,
            "type": self.kind,
            "implementation": self.implementation,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self.started, 3),
            **self.extra,
            **{name: value() for name, value in self.live.items()},
        }


def make_app(
    status: Status,
    routes: Sequence[Route],
    limits: RequestLimits,
    peers: Peers | None = None,
    *,
    tools: Sequence[Json] = (),
    background: Background = nullcontext,
) -> ASGIApp:
    """The app of one server: its own routes and the common ones. `background` is open while it runs."""

    async def report(request: Request) -> Response:
        return json_response(status.report())

    async def metrics(request: Request) -> Response:
        return await measures.report(request)

    all_routes = [*routes, get("/", report), get("/health", report), get(METRICS, metrics)]
    declared = [route.path for route in all_routes if "{" not in route.path]
    measures = Measures(status, peers, [*declared, *(f"/{tool['name']}" for tool in tools)])

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with background():
            with measures.lag_watched():
                yield

    return Guard(Router(all_routes, lifespan=lifespan), limits, measures, _direct_handlers(all_routes, tools))


def _direct_handlers(routes: Sequence[Route], tools: Sequence[Json]) -> Direct:
    """The POST handlers by full path, those of tools with the name: frequent calls skip the router."""
    posts = [(route.path, route.endpoint) for route in routes if "POST" in (route.methods or ())]
    handlers = {path: endpoint.handle for path, endpoint in posts if isinstance(endpoint, Endpoint)}
    names = [tool["name"] for tool in tools if "/{name}" in handlers and "/" not in tool["name"]]
    direct: Direct = {f"/{name}": (handlers["/{name}"], {"name": name}) for name in names}
    return direct | {path: (handler, {}) for path, handler in handlers.items() if "{" not in path}


class Guard:
    """The one middleware: check the caller, continue its trace, answer errors as JSON, count the request."""

    def __init__(self, app: ASGIApp, limits: RequestLimits, measures: Measures, direct: Direct) -> None:
        self._app = app
        self._direct = direct
        self._measures = measures
        self._limits = limits
        self._expected = None if limits.token is None else f"Bearer {limits.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # so that Starlette raises for a route that does not exist
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit(scope, self._limits)
        began, status = time.perf_counter(), _FAULT

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._measures.in_flight += 1
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                headers = dict(scope["headers"])
                try:
                    with context.RolloutContext(trace=_text(headers, _TRACE), seed=_text(headers, _SEED)):
                        direct = self._direct.get(scope["path"]) if scope["method"] == "POST" else None
                        if direct is None:
                            await self._app(scope, receive, send_and_note_status)
                        else:
                            handle, scope["path_params"] = direct
                            answer = await handle(Request(scope, receive, send))
                            status = answer.status_code
                            await answer(scope, receive, send)
                    return
                except (BadRequest, VelodromeError, HTTPException) as error:
                    refusal = self._error_response(scope, error)
            if wire.is_messages(scope["path"]):
                refusal = _in_messages_shape(refusal)
            await refusal(scope, receive, send_and_note_status)
        finally:
            self._measures.finished(scope["method"], scope["path"], status, began)

    def _refusal(self, scope: Scope) -> Response | None:
        """The error for a caller without the token; without a token, for a caller that `callers` refuses."""
        if self._expected is None:
            forbidden = self._limits.callers.refusal(scope["method"], scope["headers"])
            if forbidden is None:
                return None
            kind = "invalid_request_error" if forbidden.status == _NOT_JSON else "forbidden"
            return plain_response(forbidden.status, forbidden.message, kind)
        if scope["path"] == "/health" and scope["method"] in ("GET", "HEAD"):  # it reveals nothing sensitive
            return None
        if scope["path"] == wire.MCP:  # its token is that of a session
            return None
        keys = {b"authorization": b"", b"x-api-key": b"Bearer "}  # the second is the header of Anthropic's clients
        sent = [keys[name] + value for name, value in scope["headers"] if name in keys]
        if any(hmac.compare_digest(each, self._expected) for each in sent):
            return None
        problem = "the token is wrong" if sent else "a bearer token is required"
        message = f"{problem} (server_token, or VELODROME_TOKEN)"
        return plain_response(401, message, "unauthorized", {"WWW-Authenticate": "Bearer"})

    def _error_response(self, scope: Scope, error: BadRequest | VelodromeError | HTTPException) -> Response:
        """The answer for an error: of a rollout with its boundary, of a caller with its message."""
        if isinstance(error, BadRequest):
            body = wire.plain_error(error.message, param=error.param, code=error.code)
            return Response(body, error.status, media_type=JSON)
        if isinstance(error, HTTPException):
            return _no_route(scope, error)
        return error_response(error, self._limits)


def error_response(error: VelodromeError, limits: RequestLimits) -> Response:
    """A VelodromeError as an answer: masked, and logged if it is a fault of the component."""
    if isinstance(error, RolloutError):
        log_fault(error, limits.secrets, whole=limits.tracebacks)
        body = wire.error_body(error, limits.secrets)
        return Response(body, wire.status_of(error), {http.SETTLED: "yes"}, media_type=JSON)
    return plain_response(503, mask_text(str(error), limits.secrets), type(error).__name__)


def _no_route(scope: Scope, error: HTTPException) -> Response:
    request = f"{scope['method']} {scope['path']}"
    if error.status_code != _NOT_ALLOWED:
        return plain_response(error.status_code, f"{request}: no such route")
    methods = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    return plain_response(_NOT_ALLOWED, f"{request}: only with {methods}", headers={"Allow": methods})


def _in_messages_shape(error: Response) -> Response:
    headers = {name: value for name, value in error.headers.items() if name != "content-length"}
    body = wire.messages_error(orjson.loads(error.body), error.status_code)
    return Response(orjson.dumps(body), error.status_code, headers)


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else str(value, "latin-1")


def timed(server: str, handle: Handler, *, always: bool = False, core: Core = CORE) -> Handler:
    """A handler whose answers and errors have their span tree in a header.

    With `always` (agents) every answer has it, because the caller records the times of the rollout. Other answers have
    it if there is something to report (a wait, a retry, CPU time, a busy process) or the caller records a trace.
    """
    name = f"@{server}"

    def worth_sending(tree: Span) -> bool:
        rollout = context.current()
        return bool(always or tree.children or tree.counts or (rollout is not None and rollout.sampled))

    async def handler(request: Request) -> Response:
        with root(name) as tree:
            try:
                answer = await handle(request)
            except RolloutError as error:
                is_sent = worth_sending(tree) and wire.SPANS in request.headers  # other clients do not use it
                error.spans = wire.spans_header(tree) if is_sent else None
                raise
            if core.share >= _BUSY:
                put("busy_pct", round(100 * core.share))
        if worth_sending(tree) and not isinstance(answer, StreamingResponse):
            answer.raw_headers.append((_SPANS, wire.spans_header(tree).encode()))
        return answer

    return handler


def plain_response(
    status: int, message: str, kind: str = "invalid_request_error", headers: dict[str, str] | None = None
) -> Response:
    """An error of the request itself."""
    return Response(wire.plain_error(message, kind), status, headers, media_type=JSON)


def log_fault(error: RolloutError, secrets: frozenset[str], *, whole: bool) -> None:
    """Log a fault in the code of the component once per place; `whole` adds the traceback."""
    cause, place = error.__cause__, error.place
    if place is None or place in _logged or len(_logged) >= _MOST_LOGGED:
        return
    if isinstance(error, TaskError) or isinstance(cause, VelodromeError):
        return  # a mistake of the caller, or an error that another server logs
    _logged.add(place)
    whole = (whole or log.isEnabledFor(logging.INFO)) and cause is not None
    lines = "\n" + "".join(traceback.format_exception(cause)).rstrip("\n") if whole else ""
    log.warning("%s", mask_text(f"{error.boundary} failed: {error} ({place}){lines}", secrets))
