"""The routes of an environment: `/seed_session`, `/reset` and `/step`, one for each tool, `/verify`, `/close_session`.

A session belongs to the worker that opened it. Its signed cookie holds its handle and that worker. A request that
reaches another worker is forwarded, so any number of workers can share one port. Each start of a worker has a new id,
so a cookie from before a crash never matches another session.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from velodrome import http
from velodrome.contracts import Json, Resources, Turns
from velodrome.errors import CallError, RolloutError, ToolError, VerifyError, blame, describe
from velodrome.records.conversation import flaw
from velodrome.serving import wire
from velodrome.serving.apps.routes import (
    AGGREGATE,
    JSON,
    TEXT,
    BadRequest,
    Handler,
    Peers,
    get,
    json_response,
    post,
    read_any,
    read_json,
)
from velodrome.serving.apps.web_app import timed

Result = TypeVar("Result")
log = logging.getLogger(__name__)

COOKIE = "velodrome_session"
SESSION_TTL_S = 6 * 3600.0
MAX_SESSIONS = 10_000


class Ticket(NamedTuple):
    """A session: its handle, and the worker (index and start) that holds it."""

    handle: str
    worker: int
    start: str

    def cookie(self, key: bytes) -> str:
        """The ticket, signed with a key that the workers of one server share."""
        text = f"{self.handle}.{self.worker}.{self.start}"
        return f"{text}.{_signature(text, key)}"


def ticket_in(cookie: str, key: bytes) -> Ticket | None:
    """The ticket of a cookie; None if it was not made with this key."""
    text, _, signature = cookie.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(text, key).encode()):
        return None
    handle, worker, start = text.rsplit(".", 2)
    return Ticket(handle, int(worker), start)


def _signature(text: str, key: bytes) -> str:
    return hashlib.blake2b(text.encode(), key=key, digest_size=16).hexdigest()


class Sessions:
    """The sessions of one worker, by handle. Idle sessions are closed after a time-out."""

    def __init__(
        self, resources: Resources, key: bytes, peers: Peers, ttl_s: float, max_sessions: int = MAX_SESSIONS
    ) -> None:
        self._resources = resources
        self._key = hashlib.blake2b(key, digest_size=32).digest()
        self._worker = peers.own
        self._start = secrets.token_hex(8)
        self._peers = [http.Target(url) for url in peers.urls]
        self._ttl_s = ttl_s
        self._max_sessions = max_sessions
        self._opening = 0  # sessions that the environment is still making
        self._last_used: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._last_used)

    async def open(self, task: Json) -> str:
        """Open a session for a task and return its cookie."""
        if len(self._last_used) + self._opening >= self._max_sessions:
            raise BadRequest(
                503, f"{self._max_sessions} sessions are open (max_sessions): close one with /close_session, or wait"
            )
        self._opening += 1  # before the await: another request may come meanwhile
        try:
            with blame(ToolError, "seed_session"):
                handle = await self._resources.open(task)
        finally:
            self._opening -= 1
        self._last_used[handle] = time.monotonic()
        return Ticket(handle, self._worker, self._start).cookie(self._key)

    def ticket(self, request: Request, *, bearer: bool = False) -> Ticket | None:
        """The session of a request, from its cookie or, with `bearer`, its token; None if it has neither."""
        value = request.cookies.get(COOKIE)
        if value is None and bearer:
            value = request.headers.get("Authorization", "").removeprefix("Bearer ") or None
        if value is None:
            return None
        ticket = ticket_in(value, self._key)
        if ticket is None:
            raise BadRequest(401, f"the session {'token' if bearer else 'cookie'} was not made by this server")
        return ticket

    def handle(self, ticket: Ticket) -> str:
        """The handle of a session of this worker."""
        if ticket.start != self._start or ticket.handle not in self._last_used:
            raise ToolError("the session is gone: its server was restarted, or it was closed")
        self._last_used[ticket.handle] = time.monotonic()
        return ticket.handle

    async def use(self, ticket: Ticket | None, task: Json, call: Callable[[str], Awaitable[Result]]) -> Result:
        """Run a call with the handle of a ticket; without a ticket, in a new session that is closed afterwards."""
        if ticket is not None:
            return await call(self.handle(ticket))
        handle = await self._resources.open(task)
        try:
            return await call(handle)
        finally:
            await self._resources.close(handle)

    def elsewhere(self, ticket: Ticket | None) -> http.Target | None:
        """The worker that must answer a request, if it is not this one."""
        if ticket is None or ticket.worker == self._worker or ticket.worker >= len(self._peers):
            return None
        return self._peers[ticket.worker]

    async def close(self, ticket: Ticket) -> None:
        """Close one session. After a restart its handle may be that of another session: an old ticket does nothing."""
        if ticket.start == self._start:
            await self._close(ticket.handle)

    async def _close(self, handle: str) -> None:
        if self._last_used.pop(handle, None) is not None:
            with blame(ToolError, "close_session"):
                await self._resources.close(handle)

    async def sweep(self) -> None:
        """Close sessions that have been idle for too long, at least every minute."""
        while True:
            await asyncio.sleep(min(self._ttl_s, 60.0))
            limit = time.monotonic() - self._ttl_s
            for handle in [handle for handle, last_used in self._last_used.items() if last_used < limit]:
                try:
                    await self._close(handle)
                except RolloutError as error:
                    log.warning("an abandoned session could not be closed: %s", describe(error))

    @asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.sweep())
        try:
            yield
        finally:
            task.cancel()


_PASS_ON = http.Retry(max_retries=0, timeout_s=3600.0, total_timeout_s=3600.0, rate_limit_timeout_s=0.0)


def resources_routes(server: str, resources: Resources, sessions: Sessions, tools: list[Json]) -> list[Route]:
    async def seed(request: Request) -> Response:
        cookie = await sessions.open(await read_json(request))
        answer = json_response({})
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")
        return answer

    async def call(request: Request, arguments: Any, ticket: Ticket | None) -> Response:
        name = request.path_params["name"]
        with blame(ToolError, name):
            text = await sessions.use(ticket, {}, lambda handle: resources.call(handle, name, arguments))
        return Response(text.encode("utf-8", "replace"), media_type=TEXT)

    async def verify(request: Request, body: Json, ticket: Ticket | None) -> Response:
        response = body.get("response")
        if not isinstance(response, dict):
            raise BadRequest(422, "the body must be a task with its response; it has no response object")
        _check_output(response.get("output"))
        task = {name: value for name, value in body.items() if name != "response"}
        with blame(VerifyError, "verify"):
            score = await sessions.use(ticket, task, lambda handle: resources.score(handle, task, response))
            return json_response(score if wire.BRIEF in request.headers else body | score)

    async def close(request: Request, body: Json, ticket: Ticket | None) -> Response:
        if ticket is not None:
            await sessions.close(ticket)
        return json_response({})

    async def list_tools(request: Request) -> Response:
        return json_response(tools)

    call_tool = timed(server, in_session(sessions, call, read_any))  # wrong arguments are reported to the model
    return [
        get("/tools", list_tools),
        post("/seed_session", timed(server, seed)),
        post("/verify", timed(server, in_session(sessions, verify))),
        post("/close_session", in_session(sessions, close)),
        AGGREGATE,
        *(turn_routes(server, resources, sessions) if isinstance(resources, Turns) else ()),
        post("/{name}", call_tool),
    ]


def turn_routes(server: str, turns: Turns, sessions: Sessions) -> list[Route]:
    """The routes of turns, named as in Gymnasium."""
    by_player = bool(getattr(turns, "addresses_players", False))

    async def reset(request: Request, task: Json, ticket: Ticket | None) -> Response:
        with blame(ToolError, "reset"):
            return json_response(await turns.begin(_open(sessions, ticket), task))

    async def step(request: Request, body: Json, ticket: Ticket | None) -> Response:
        action: Any = body.get("action")
        texts = list(action.values()) if isinstance(action, dict) and by_player else [action]
        if not all(isinstance(text, str) for text in texts) or isinstance(action, dict) != by_player:
            expected = "texts by player" if by_player else "a text"
            raise BadRequest(422, f'"action" must be {expected}, not {action!r:.40}', param="action")
        with blame(ToolError, "step"):
            return json_response(await turns.advance(_open(sessions, ticket), action))

    return [
        post("/reset", timed(server, in_session(sessions, reset))),
        post("/step", timed(server, in_session(sessions, step))),
    ]


def _open(sessions: Sessions, ticket: Ticket | None) -> str:
    if ticket is None:
        raise BadRequest(400, "turns belong to a session; send the cookie of /seed_session")
    return sessions.handle(ticket)


def _check_output(output: Any) -> None:
    if output is not None and not isinstance(output, list):
        raise BadRequest(422, f'response: "output" must be a list, not {output!r:.40}', param="response")
    for index, item in enumerate(output or ()):
        problem = flaw(item)
        if problem is not None:
            raise BadRequest(422, f"response: output[{index}]: {problem}", param="response")


def in_session(
    sessions: Sessions,
    handle: Callable[[Request, Any, Ticket | None], Awaitable[Response]],
    read: Callable[[Request], Awaitable[Any]] = read_json,
) -> Handler:
    """A handler for requests with a session. Requests for another worker are forwarded."""

    async def handler(request: Request) -> Response:
        body = await read(request)
        ticket = sessions.ticket(request)
        other = sessions.elsewhere(ticket)
        return await (handle(request, body, ticket) if other is None else pass_on(request, body, other))

    return handler


async def pass_on(request: Request, body: Any, target: http.Target) -> Response:
    """Forward a request to the worker that holds the session."""
    forwarded = ("cookie", "authorization", "x-api-key", "accept", wire.BRIEF, wire.SPANS)
    headers = {name: value for name, value in request.headers.items() if name in forwarded or name.startswith("mcp-")}
    route = http.Target(target.label.rstrip("/") + quote(request.scope["path"]))
    try:
        reply = await http.shared().post(route, orjson.dumps(body), _PASS_ON, headers=headers)
    except CallError as error:
        if error.status is None or error.status < 400:
            raise ToolError(f"the worker that holds the session does not answer: {error}") from error
        final = {http.SETTLED: "yes"} if wire.error_in(error.body) else None
        return Response(error.body, error.status, final, media_type=JSON)
    return Response(reply.body, reply.status, media_type=reply.headers.get("Content-Type"))
