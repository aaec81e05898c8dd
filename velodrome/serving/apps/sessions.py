"""The sessions of an environment behind HTTP: signed cookies, and the worker that each session lives in.

A cookie holds a handle, its worker and a keyed hash of both. The worker's own name is new at every start, so a cookie
from before a crash never means somebody else's session.
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
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from velodrome import http
from velodrome.contracts import Json, Resources
from velodrome.errors import RolloutError, ToolError, blame, describe
from velodrome.serving.apps.peers import Peers
from velodrome.serving.apps.routes import BadRequest

Got = TypeVar("Got")
log = logging.getLogger(__name__)

COOKIE = "velodrome_session"
SESSION_TTL_S = 6 * 3600.0
MAX_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """A session: its handle, and the worker (index and start) that holds it."""

    handle: str
    worker: int
    start: str


class Seal:
    """Signs and checks tickets with a key that the workers of one server share."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key, digest_size=32).digest()

    def close(self, ticket: Ticket) -> str:
        text = f"{ticket.handle}.{ticket.worker}.{ticket.start}"
        return f"{text}.{self._sign(text)}"

    def open(self, value: str) -> Ticket | None:
        """The ticket of a cookie value, or None if it was not made with this key."""
        text, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(text).encode()):
            return None
        handle, worker, start = text.rsplit(".", 2)
        return Ticket(handle, int(worker), start)

    def _sign(self, text: str) -> str:
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=16).hexdigest()


class Sessions:
    """The sessions of one worker: cookies out, handles in, and abandoned ones closed after their time."""

    def __init__(self, resources: Resources, seal: Seal, peers: Peers, ttl_s: float, most: int = MAX_SESSIONS) -> None:
        self._resources = resources
        self._seal = seal
        self._worker = peers.own
        self._start = secrets.token_hex(8)
        self._peers = [http.Target(url) for url in peers.urls]
        self._ttl_s = ttl_s
        self._most = most
        self._used: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._used)

    async def open(self, task: Json) -> str:
        if len(self._used) >= self._most:
            raise BadRequest(
                503, f"{self._most} sessions are open (max_sessions): close one with /close_session, or wait"
            )
        with blame(ToolError, "seed_session"):
            handle = await self._resources.open(task)
        self._used[handle] = time.monotonic()
        return self._seal.close(Ticket(handle, self._worker, self._start))

    def ticket(self, request: Request, *, bearer: bool = False) -> Ticket | None:
        """The session a request belongs to; None if it brings no cookie, nor, with `bearer`, its value as a token."""
        value = request.cookies.get(COOKIE)
        if value is None and bearer:
            value = request.headers.get("Authorization", "").removeprefix("Bearer ") or None
        if value is None:
            return None
        ticket = self._seal.open(value)
        if ticket is None:
            raise BadRequest(401, f"the session {'token' if bearer else 'cookie'} was not made by this server")
        return ticket

    def handle(self, ticket: Ticket) -> str:
        """The handle of a session that lives here."""
        if ticket.start != self._start or ticket.handle not in self._used:
            raise ToolError("the session is gone: its server was restarted, or it was closed")
        self._used[ticket.handle] = time.monotonic()
        return ticket.handle

    async def use(self, ticket: Ticket | None, task: Json, call: Callable[[str], Awaitable[Got]]) -> Got:
        """The result of a call with the handle of a ticket; without one it has a session of its own."""
        if ticket is not None:
            return await call(self.handle(ticket))
        handle = await self._resources.open(task)
        try:
            return await call(handle)
        finally:
            await self._resources.close(handle)

    def elsewhere(self, ticket: Ticket | None) -> http.Target | None:
        """The worker a request must be passed on to, if it is not this one."""
        if ticket is None or ticket.worker == self._worker or ticket.worker >= len(self._peers):
            return None
        return self._peers[ticket.worker]

    async def close(self, ticket: Ticket) -> None:
        """Forget one session. Handles start over with the worker, so an old one may belong to another session now."""
        if ticket.start == self._start:
            await self._close(ticket.handle)

    async def _close(self, handle: str) -> None:
        if self._used.pop(handle, None) is not None:
            with blame(ToolError, "close_session"):
                await self._resources.close(handle)

    async def sweep(self) -> None:
        """Close sessions that have been idle for too long, from time to time."""
        while True:
            await asyncio.sleep(min(self._ttl_s, 60.0))
            limit = time.monotonic() - self._ttl_s
            for handle in [handle for handle, used in self._used.items() if used < limit]:
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
