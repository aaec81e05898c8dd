"""The routes of an environment: `/seed_session`, one for each tool, `/verify`, `/close_session`.

A session lives in the worker that opened it. Its cookie says which one that is; a request that the kernel gave to
another worker is passed on to it, so any number of workers can stand behind one port.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response

from velodrome import http
from velodrome.contracts import Resources
from velodrome.errors import CallError, RolloutError, ToolError, VerifyError, blame, describe
from velodrome.serving import wire
from velodrome.serving.accounting import accounted
from velodrome.serving.app import App, BadRequest, Json, Limits, json_response, read_any, read_json
from velodrome.serving.seal import COOKIE, Seal, Ticket

log = logging.getLogger(__name__)

SESSION_TTL_S = 6 * 3600.0
_PASS_ON = http.Retry(max_retries=0, timeout_s=3600.0, total_timeout_s=3600.0)


class Sessions:
    """The sessions of one worker: tickets out, handles in, and the forgotten ones closed after their time."""

    def __init__(self, resources: Resources, seal: Seal, peers: list[str], worker: int, ttl_s: float) -> None:
        self._resources = resources
        self._seal = seal
        self._worker = worker
        self._start = secrets.token_hex(8)
        self._peers = [http.Target(url) for url in peers]
        self._ttl_s = ttl_s
        self._used: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._used)

    async def open(self, task: Json) -> str:
        """A new session's cookie value."""
        with blame(ToolError, "seed_session"):
            handle = await self._resources.open(task)
        self._used[handle] = time.monotonic()
        return self._seal.close(Ticket(handle, self._worker, self._start))

    def ticket(self, request: Request) -> Ticket | None:
        """The session a request belongs to; None if it brings no cookie."""
        value = request.cookies.get(COOKIE)
        if value is None:
            return None
        ticket = self._seal.open(value)
        if ticket is None:
            raise BadRequest(401, "the session cookie was not made by this server")
        return ticket

    def handle(self, ticket: Ticket) -> str:
        """The handle of a session that lives here."""
        if ticket.start != self._start or ticket.handle not in self._used:
            raise ToolError("the session is gone: its server was restarted, or it was closed")
        self._used[ticket.handle] = time.monotonic()
        return ticket.handle

    @asynccontextmanager
    async def session(self, ticket: Ticket | None, task: Json) -> AsyncIterator[str]:
        """The handle of a ticket; a caller without one has a session for this one call."""
        if ticket is not None:
            yield self.handle(ticket)
            return
        handle = await self._resources.open(task)
        try:
            yield handle
        finally:
            await self._resources.close(handle)

    def elsewhere(self, ticket: Ticket | None) -> http.Target | None:
        """The worker a request must be passed on to, if it is not this one."""
        if ticket is None or ticket.worker == self._worker or ticket.worker >= len(self._peers):
            return None
        return self._peers[ticket.worker]

    async def close(self, ticket: Ticket) -> None:
        """Forget one session. Handles begin anew with the worker: one from before is somebody else's now."""
        if ticket.start == self._start:
            await self._close(ticket.handle)

    async def _close(self, handle: str) -> None:
        if self._used.pop(handle, None) is not None:
            with blame(ToolError, "close_session"):
                await self._resources.close(handle)

    async def sweep(self) -> None:
        """Close, now and then, what nobody has used for too long."""
        while True:
            await asyncio.sleep(min(self._ttl_s, 60.0))
            limit = time.monotonic() - self._ttl_s
            for handle in [handle for handle, used in self._used.items() if used < limit]:
                try:
                    await self._close(handle)
                except RolloutError as error:
                    log.warning("a forgotten session could not be closed: %s", describe(error))

    @asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """Sweeping while this is open."""
        task = asyncio.create_task(self.sweep())
        try:
            yield
        finally:
            task.cancel()


async def pass_on(request: Request, body: Any, target: http.Target) -> Response:
    """Let the worker that holds the session answer."""
    headers = {
        name: request.headers[name] for name in ("cookie", "authorization", wire.BRIEF) if name in request.headers
    }
    there = http.Target(target.label.rstrip("/") + quote(request.scope["path"]))
    try:
        reply = await http.shared().post(there, orjson.dumps(body), _PASS_ON, headers=headers)
    except CallError as error:
        if error.status is None or error.status < 400:
            raise ToolError(f"the worker that holds the session does not answer: {error}") from error
        settled = {http.SETTLED: "yes"} if wire.error_in(error.body) else None
        return Response(error.body, error.status, settled, media_type="application/json")
    return Response(reply.body, reply.status, media_type=reply.headers.get("Content-Type"))


def add_resources(app: App, resources: Resources, limits: Limits, sessions: Sessions, tools: list[Json]) -> None:
    """All routes of an environment."""

    async def seed(request: Request) -> Response:
        cookie = await sessions.open(await read_json(request, limits))
        answer = json_response({})
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")
        return answer

    async def call(request: Request) -> Response:
        name = request.path_params["name"]
        arguments = await read_any(request, limits)  # what is wrong with them is told to the model
        ticket = sessions.ticket(request)
        other = sessions.elsewhere(ticket)
        if other is not None:
            return await pass_on(request, arguments, other)
        with blame(ToolError, name):
            async with sessions.session(ticket, {}) as handle:
                text = await resources.call(handle, name, arguments)
        return Response(text.encode("utf-8", "replace"), media_type="text/plain")

    async def verify(request: Request) -> Response:
        body = await read_json(request, limits)
        ticket = sessions.ticket(request)
        other = sessions.elsewhere(ticket)
        if other is not None:
            return await pass_on(request, body, other)
        response = body.get("response")
        if not isinstance(response, dict):
            raise BadRequest(422, "the body is a task with its response; there is no response object in it")
        task = {name: value for name, value in body.items() if name != "response"}
        with blame(VerifyError, "verify"):
            async with sessions.session(ticket, task) as handle:
                score = await resources.score(handle, task, response)
            return json_response(score if wire.BRIEF in request.headers else body | score)

    async def close(request: Request) -> Response:
        body = await read_json(request, limits)
        ticket = sessions.ticket(request)
        other = sessions.elsewhere(ticket)
        if other is not None:
            return await pass_on(request, body, other)
        if ticket is not None:
            await sessions.close(ticket)
        return json_response({})

    async def offered(request: Request) -> Response:
        return json_response(tools)

    app.add("GET", "/tools", offered)
    app.add("POST", "/seed_session", accounted(app.title, seed))
    app.add("POST", "/verify", accounted(app.title, verify))
    app.add("POST", "/close_session", close)
    app.add("POST", "/aggregate_metrics", aggregate(limits))
    app.add("POST", "/{name}", accounted(app.title, call))


def aggregate(limits: Limits) -> Any:
    """`/aggregate_metrics`: rows in, the mean of every number out."""

    async def handle(request: Request) -> Response:
        rows = (await read_json(request, limits)).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise BadRequest(422, 'the body is {"rows": [rollouts]}')
        sums: dict[str, list[float]] = {}
        for row in rows:
            for name, value in row.items():
                if isinstance(value, int | float):
                    sums.setdefault(name, []).append(value)
        return json_response({name: sum(values) / len(values) for name, values in sums.items()})

    return handle
