"""Components behind real uvicorn servers in threads of this process, one worker or several behind one port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx2
import orjson
import uvloop

from tests.support.patience import DEADLINE_S
from velodrome.serving.apps.routes import RequestLimits
from velodrome.serving.apps.web_app import Status
from velodrome.serving.hosting import server_app
from velodrome.serving.web_server import running


def listening() -> socket.socket:
    """A socket on a free loopback port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    sock.listen(1024)
    return sock


def address(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


async def ask(
    app: Any, method: str, path: str, body: Any = None, headers: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[int, bytes]:
    """Status and body of one request to an app, without a socket."""
    usual = [(b"content-type", b"application/json")]
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        content = None if body is None else orjson.dumps(body)
        reply = await client.request(method, path, content=content, headers=[*usual, *headers])
    return reply.status_code, reply.content


@contextmanager
def hosted(
    kind: str, make: Callable[[], Any], *, workers: int = 1, limits: RequestLimits | None = None
) -> Iterator[str]:
    """The URL of a server with this many workers, each with a component of its own; all on one loop, in a thread."""
    shared = listening()
    private = [listening() for _ in range(workers)]
    peers = [address(each) for each in private]
    up = threading.Semaphore(0)
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    loop, stop = runner.get_loop(), asyncio.Event()

    async def worker(number: int) -> None:
        component, status = make(), Status("hosted", kind, "test")
        make_app = partial(server_app, status, component, limits, key=b"a key for tests", peers=peers, worker=number)
        async with running(make_app, [shared.dup(), private[number]], drain_s=1):
            up.release()
            await stop.wait()
        await component.aclose()

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(worker(number))

    def whole() -> None:
        with runner:
            runner.run(serve())

    thread = threading.Thread(target=whole)
    with shared:
        thread.start()
        try:
            for _ in range(workers):
                assert up.acquire(timeout=DEADLINE_S), "the server did not start in time"
            yield address(shared)
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(timeout=DEADLINE_S)
            assert not thread.is_alive()
