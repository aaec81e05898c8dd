"""Routes with their handlers, JSON bodies, the limits of a request, and the other workers of the same server.

JSON is parsed and encoded once per request, without a schema: the component checks its input. A request reaches one
worker, but some answers cover all workers. A request to a peer has the header `ALONE`, so the peer answers only for
itself. A peer that does not answer in time is left out, because one hanging worker must not hide the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from velodrome import http
from velodrome.contracts import Json
from velodrome.errors import CallError
from velodrome.records.task import DEEPEST, can_be_encoded, is_too_deep
from velodrome.serving.callers import Callers
from velodrome.timing.deadline import deadline
from velodrome.wings import wing

Handler = Callable[[Request], Awaitable[Response]]

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"
_LIMITS = "velodrome.limits"


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request, and who may send it."""

    max_body_bytes: int = 64 * 1024 * 1024
    body_timeout_s: float = 60.0
    token: str | None = None
    secrets: frozenset[str] = frozenset()  # masked in every error
    callers: Callers = field(default_factory=Callers)  # who may call without a token
    tracebacks: bool = False  # log them for faults


class BadRequest(Exception):
    """The request cannot be used: status, message, the wrong field, and OpenAI's code."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code


@dataclass(frozen=True)
class Endpoint:
    """A handler as Starlette calls it. `Guard` answers its errors."""

    handle: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.handle(Request(scope, receive, send))
        await response(scope, receive, send)


def get(path: str, handle: Handler) -> Route:
    return Route(path, Endpoint(handle), methods=["GET"])


def post(path: str, handle: Handler) -> Route:
    return Route(path, Endpoint(handle), methods=["POST"])


async def _aggregate(request: Request) -> Response:
    answer: Response = await wing("connect.nemo_gym.aggregate").answer(request)
    return answer


AGGREGATE = post("/aggregate_metrics", _aggregate)  # of agents and environments


def limit(scope: Scope, limits: RequestLimits) -> None:
    scope[_LIMITS] = limits


def limits_of(request: Request) -> RequestLimits:
    limits: RequestLimits = request.scope[_LIMITS]
    return limits


def json_response(data: Any) -> Response:
    """JSON as the answer; encoded once."""
    return Response(encoded(data), media_type=JSON)


def encoded(data: Any) -> bytes:
    """The data as JSON; NumPy arrays become lists."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


async def read_json(request: Request) -> Json:
    """The body as a JSON object: bounded in size, in time and in depth."""
    body = await _read_body(request)
    data = _parsed(body)
    if not isinstance(data, dict):
        raise BadRequest(400, "the body must be a JSON object")
    if is_too_deep(body, data):
        param = next((name for name, value in data.items() if not can_be_encoded([value])), "")
        raise BadRequest(400, f'"{param:.100}" is nested too deep: a body has at most {DEEPEST} levels', param=param)
    return data


async def read_any(request: Request) -> Any:
    """The body as any JSON value: bounded in size and in time."""
    return _parsed(await _read_body(request))


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(400, f"the body is not JSON: {error}") from error


async def _read_body(request: Request) -> bytes:
    limits = limits_of(request)
    try:
        with deadline(limits.body_timeout_s):
            return await _read_chunks(request, limits.max_body_bytes)
    except TimeoutError:
        raise BadRequest(408, f"the body did not arrive within {limits.body_timeout_s:g} s") from None


async def _read_chunks(request: Request, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, "the body was cut off")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise BadRequest(413, f"the body is larger than {max_bytes} bytes")
        if not message.get("more_body", False):
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


ALONE = "x-velodrome-alone"


@dataclass(frozen=True)
class Peers:
    """The private URLs of all workers; `own` is the index of this process."""

    urls: Sequence[str] = ()
    own: int = 0
    token: str | None = None

    async def ask(self, path: str, *, patience_s: float = 1.0) -> dict[int, bytes | None]:
        """The answers of all other workers to a GET, by worker index; None if one does not answer."""
        once = http.Retry(max_retries=0, timeout_s=patience_s, total_timeout_s=patience_s)
        headers = {ALONE: "yes"} | ({"Authorization": f"Bearer {self.token}"} if self.token is not None else {})
        others = {worker: url for worker, url in enumerate(self.urls) if worker != self.own}
        targets = [http.Target(url.rstrip("/") + path, headers) for url in others.values()]
        answers = await asyncio.gather(*(_ask(target, once) for target in targets))
        return dict(zip(others, answers, strict=True))


async def _ask(peer: http.Target, once: http.Retry) -> bytes | None:
    try:
        return (await http.shared().get(peer, once)).body
    except CallError:
        return None
