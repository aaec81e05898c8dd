"""Which pool of connections a call uses: the one its caller owns, or the one its event loop shares.

A program that ends with its loop uses the shared pool. A library call that must leave no socket behind opens
`owned()`, and every call made inside it, in its own task or in one started there, uses that pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from velodrome import scope
from velodrome.http.client import LIMIT, LIMIT_PER_HOST, Http

_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Http] = WeakKeyDictionary()


def configure(*, limit: int = LIMIT, limit_per_host: int = LIMIT_PER_HOST) -> None:
    """Set the connector limits of the pools that are made from now on."""
    scope.connections.limit = limit
    scope.connections.limit_per_host = limit_per_host


def shared() -> Http:
    """The pool for a call made here: the owned one if there is one, else that of the running loop."""
    call = scope.current()
    if call is not None:
        return call.get(Http, _make)
    loop = asyncio.get_running_loop()
    pool = _by_loop.get(loop)
    if pool is None:
        pool = _by_loop[loop] = _make()
    return pool


def _make() -> Http:
    return Http(limit=scope.connections.limit, limit_per_host=scope.connections.limit_per_host)


@asynccontextmanager
async def owned() -> AsyncIterator[Http]:
    """A pool of one's own for everything called inside; its connections are closed at the end, however that comes."""
    async with scope.Scope() as call:
        yield call.get(Http, _make)


async def close_shared() -> None:
    """Close the pool of the running loop, if it has one."""
    pool = _by_loop.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.aclose()
